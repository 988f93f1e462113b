"""Verdicts: closed forms on linear models, attacks that lie, and the arithmetic in which the model is asked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from robustvit.attacks import FGSM, PGD, Attack, Restarts, WorstOf
from robustvit.data import DataSpec, Images
from robustvit.errors import UserError
from robustvit.evaluation.fits import check_fits
from robustvit.evaluation.judge import judge
from robustvit.models import Classifier
from robustvit.threat import Threat

SIDE = 4
LINF = Threat("linf", 0.1)
LOW = ("tf32", "bf16")


class Plane(nn.Module):
    """Two classes parted by w·(x − 1/2) = 0; notes what was amiss when it was asked without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(SIDE * SIDE, 1, generator=torch.Generator().manual_seed(0)))
        self.dropout = nn.Dropout(0.5)
        self.amiss: set[str] = set()

    def forward(self, x: Tensor) -> Tensor:
        side = self.dropout(x.flatten(1) - 0.5) @ self.weight
        if not side.requires_grad:
            self.amiss |= {"dropout"} if self.training else set()
            self.amiss |= {str(side.dtype)} if side.dtype != torch.float32 else set()
            self.amiss |= {place for place, precision in precisions().items() if precision in LOW}
        return torch.cat([-side, side], 1)

    def margin(self, images: Images) -> Tensor:
        """Positive where it is right."""
        return ((images.x.flatten(1) - 0.5) @ self.weight.detach()).squeeze(1) * (2 * images.y - 1)


class Answers(nn.Module):
    """Says `bright` of images with a pixel above 0.9, `dark` of the others."""

    def __init__(self, dark: list[float], bright: list[float]) -> None:
        super().__init__()
        self.dark, self.bright = torch.tensor(dark), torch.tensor(bright)

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x.flatten(1).amax(1, keepdim=True) > 0.9, self.bright, self.dark)


@dataclass(frozen=True)
class Returns(Attack):
    """Hands over whatever `make` makes of (model, x, y), past the base class's own checks."""

    make: Callable[[nn.Module, Tensor, Tensor], Tensor]
    threat: Threat = LINF
    seed: int | None = 0
    cost = 1

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return self.make(model, x, y)

    perturb = __call__


BRIGHTEN = Returns(lambda model, x, y: x + 0.45, Threat("linf", 0.45))


def cloud(count: int = 200, low: float = 0.4, high: float = 0.6) -> Images:
    """Points on both sides of the plane, every tenth with the other side's label."""
    x = low + (high - low) * torch.rand(count, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    side = ((x.flatten(1) - 0.5) @ Plane().weight.detach()).squeeze(1) > 0
    return Images("cloud", x, torch.where(torch.arange(count) % 10 == 0, ~side, side).long())


def blanks(count: int = 9, label: int = 0) -> Images:
    return Images("blanks", torch.full((count, 1, SIDE, SIDE), 0.5), torch.full((count,), label))


def precisions() -> dict[str, str]:
    b = torch.backends
    kinds = {"cuda.matmul": b.cuda.matmul, "cudnn.conv": b.cudnn.conv, "cpu.matmul": b.mkldnn.matmul, "cpu.conv": b.mkldnn.conv}
    return {place: kind.fp32_precision for place, kind in kinds.items()}


@pytest.fixture
def switches() -> Iterator[None]:
    """Torch's precision switches, put back as torch sets them."""
    yield
    b = torch.backends
    for kind in (b, b.cudnn.conv, b.mkldnn.matmul, b.mkldnn.conv):
        kind.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    b.cuda.matmul.allow_tf32, b.cudnn.allow_tf32 = False, True
    torch.set_autocast_enabled("cpu", False)


@pytest.mark.parametrize(("norm", "eps", "dual"), [("linf", 0.01, 1), ("l2", 0.04, 2), ("l1", 0.06, torch.inf)])
def test_robust_is_what_lies_further_from_the_plane_than_the_ball_reaches(norm: str, eps: float, dual: float) -> None:
    model, images = Plane(), cloud()
    expected = model.margin(images) > eps * model.weight.detach().norm(p=dual)
    assert 0.2 < expected.float().mean() < 0.8
    assert torch.equal(judge(model, images, FGSM(Threat(norm, eps))).correct, expected)


def test_the_box_protects_what_lies_at_its_walls() -> None:
    model, images, eps = Plane(), cloud(low=0.0, high=1.0), 0.1
    x, weight = images.x.flatten(1), model.weight.detach().squeeze(1)
    rising = weight.sign() * (1 - 2 * images.y)[:, None] > 0
    room = torch.where(rising, 1 - x, x).clamp(max=eps)
    expected = model.margin(images) > room @ weight.abs()
    assert (expected & (model.margin(images) <= eps * weight.abs().sum())).any()
    assert torch.equal(judge(model, images, FGSM(Threat("linf", eps))).correct, expected)


def test_without_an_attack_the_images_themselves_are_judged() -> None:
    images = cloud()
    assert torch.equal(judge(Plane(), images, None).correct, torch.arange(len(images)) % 10 > 0)


def test_an_empty_ball_takes_nothing() -> None:
    model, images = Plane(), cloud()
    assert torch.equal(judge(model, images, PGD(Threat("linf", 0.0), seed=0)).correct, model.margin(images) > 0)


def test_an_example_that_fools_the_model_counts() -> None:
    assert not judge(Answers([1.0, 0.0], [0.0, 1.0]), blanks(), BRIGHTEN).correct.any()


def test_a_loss_that_rises_without_changing_the_class_is_no_success() -> None:
    model, images = Plane(), cloud()

    def almost(_: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """99% of the way to the plane."""
        weight = model.weight.detach()
        away = (x.flatten(1) - 0.5) @ weight / weight.square().sum()
        return x - 0.99 * (away @ weight.T).view_as(x)

    verdicts = judge(model, images, Returns(almost, Threat("l2", 1.0)))
    assert torch.equal(verdicts.correct, model.margin(images) > 0)


def test_images_that_were_wrong_before_stay_wrong_and_are_not_attacked() -> None:
    model, images, attacked = Plane(), cloud(), []

    def note(_: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        attacked.append(x.clone())
        return x

    assert torch.equal(judge(model, images, Returns(note)).correct, model.margin(images) > 0)
    assert torch.equal(torch.cat(attacked), images.x[model.margin(images) > 0])


def test_an_attack_cannot_mend_a_wrong_image() -> None:
    assert not judge(Answers([0.0, 1.0], [1.0, 0.0]), blanks(), BRIGHTEN).correct.any()


OUTSIDE = {
    "the ball": lambda x: x + 0.2,
    "the ball by little": lambda x: x + 0.1001,
    "the box, below": lambda x: x - 0.02,
    "the box, above": lambda x: x + 0.06,
    "all numbers": lambda x: x * torch.nan,
}


@pytest.mark.parametrize("kind", OUTSIDE)
@pytest.mark.parametrize("batch_size", [2, 9])
def test_an_example_outside_ball_or_box_is_an_error_that_names_the_image(kind: str, batch_size: int) -> None:
    images = blanks()
    images.x[5], images.x[7] = 0.01, 0.95

    def astray(_: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        marked = x.amax((1, 2, 3), keepdim=True) > 0.9 if kind == "the box, above" else x.amax((1, 2, 3), keepdim=True) < 0.1
        return torch.where(marked, OUTSIDE[kind](x), x)

    place = 7 if kind == "the box, above" else 5
    with pytest.raises(UserError, match=rf"returns: 1 examples lie outside linf ≤ 0\.1 or the box \[0, 1\]; image {place} "):
        judge(Answers([1.0, 0.0], [1.0, 0.0]), images, Returns(astray), batch_size)


def test_writing_to_images_or_labels_gains_an_attack_nothing() -> None:
    model, images = Plane(), cloud()

    def darken(_: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return x.zero_()

    def relabel(_: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        y.fill_(0)
        return x

    with pytest.raises(UserError, match="outside"):
        judge(model, images, Returns(darken))
    assert torch.equal(judge(model, images, Returns(relabel)).correct, model.margin(images) > 0)
    assert torch.equal(images.x, cloud().x)
    assert torch.equal(images.y, cloud().y)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_not_numbers_are_an_error(value: float) -> None:
    with pytest.raises(UserError, match="logits hold NaN or infinite"):
        judge(Answers([1.0, value], [1.0, 0.0]), blanks(), None)
    with pytest.raises(UserError, match="logits hold NaN or infinite"):
        judge(Answers([1.0, 0.0], [1.0, value]), blanks(), BRIGHTEN)


def test_a_targeted_attack_is_refused() -> None:
    with pytest.raises(UserError, match=r"attack\.targeted: True"):
        judge(Plane(), cloud(), PGD(LINF, targeted=True))


def test_noise_that_would_depend_on_the_batch_is_refused() -> None:
    for attack in (PGD(LINF), Restarts(PGD(LINF), 2), WorstOf((FGSM(LINF), PGD(LINF)))):
        with pytest.raises(UserError, match=r"attack\.seed: null"):
            judge(Plane(), cloud(), attack)
    judge(Plane(), cloud(), WorstOf((FGSM(LINF), PGD(LINF, random_start=False))))


def test_verdicts_are_made_in_float32_whatever_the_caller_allowed(switches: None) -> None:
    """In bfloat16 the two logits would be equal, and the first class would win."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 2, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[0.125], [0.125 + 2**-12]]).expand(2, SIDE * SIDE))
    images = blanks(label=1)
    with torch.autocast("cpu", torch.bfloat16):
        assert not model(images.x).argmax(1).any()
        assert judge(model, images, Returns(lambda model, x, y: x)).correct.all()
        assert model(images.x).dtype == torch.bfloat16


def test_tf32_and_autocast_are_off_inside_and_as_before_outside(switches: None) -> None:
    matmul, cudnn, model = torch.backends.cuda.matmul, torch.backends.cudnn, Plane()
    matmul.allow_tf32 = cudnn.allow_tf32 = True
    with torch.autocast("cpu", torch.bfloat16):
        judge(model, cloud(), FGSM(LINF))
        assert torch.is_autocast_enabled("cpu")
        with pytest.raises(UserError, match="outside"):
            judge(model, cloud(), BRIGHTEN)
        assert torch.is_autocast_enabled("cpu")
    assert (matmul.allow_tf32, cudnn.allow_tf32) == (True, True)
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    judge(model, cloud(), FGSM(LINF))
    assert (matmul.allow_tf32, cudnn.allow_tf32) == (False, False)
    assert not model.amiss & {"cuda.matmul", "cudnn.conv", "torch.bfloat16"}


@pytest.mark.parametrize("switch", ["older", "newer", "newer, matmul alone"])
def test_torch_s_other_switches_of_precision_are_off_inside_and_as_before_outside(switch: str, switches: None) -> None:
    if switch == "older":
        torch.set_float32_matmul_precision("medium")
    else:
        (torch.backends if switch == "newer" else torch.backends.cuda.matmul).fp32_precision = "tf32"
    before, model = precisions(), Plane()
    judge(model, cloud(), FGSM(LINF))
    assert not model.amiss
    assert precisions() == before
    assert switch != "older" or torch.get_float32_matmul_precision() == "medium"


def test_dropout_is_off_inside_and_the_model_is_as_before_outside() -> None:
    model, images = Plane().train(), cloud()
    assert torch.equal(judge(model, images, FGSM(Threat("linf", 0.0))).correct, model.margin(images) > 0)
    assert model.training
    assert model.dropout.training
    assert model.weight.requires_grad
    assert model.weight.grad is None
    assert torch.equal(model.weight, Plane().weight)
    assert not model.amiss


LEFT = {
    "train mode": lambda model: model.train(),
    "tf32": lambda model: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "autocast": lambda model: torch.set_autocast_enabled("cpu", True),
}


@pytest.mark.parametrize("left", ["train mode", "tf32", "autocast"])
def test_what_a_loose_attack_leaves_behind_does_not_reach_the_verdict(left: str, switches: None) -> None:
    model, images = Plane().eval(), cloud()

    def loose(_: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        LEFT[left](model)
        return x

    verdicts = judge(model, images, Returns(loose), batch_size=50)
    assert not model.amiss
    assert torch.equal(verdicts.correct, model.margin(images) > 0)


def test_an_attack_that_changes_the_weights_is_not_believed() -> None:
    model, images = Plane(), cloud()

    def sabotage(_: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            model.weight.neg_()
        return x

    with pytest.raises(UserError, match="returns: changed the model's weights or buffers"):
        judge(model, images, Returns(sabotage))


class Counting(nn.Module):
    """Keeps count of what it is asked, as BatchNorm in train mode does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("asked", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.asked += 1
        return Plane()(x)


@pytest.mark.parametrize("attack", [None, FGSM(LINF)])
def test_a_model_that_changes_as_it_is_asked_is_an_error(attack: Attack | None) -> None:
    with pytest.raises(UserError, match="asking it changed its weights or buffers"):
        judge(Counting(), cloud(), attack)


# Half a step back from a random start: on a plane, the noise of an image alone decides its verdict.
NOISY = FGSM(Threat("linf", 0.02), step=0.5, random_start=True, seed=0)


@pytest.mark.parametrize("batch_size", [1, 7, 64, 1000])
def test_verdicts_do_not_depend_on_the_batch_size(batch_size: int) -> None:
    model, images = Plane(), cloud()
    whole, parts = judge(model, images, NOISY, len(images)), judge(model, images, NOISY, batch_size)
    assert 0.2 < whole.correct.float().mean() < 0.8
    assert torch.equal(whole.correct, parts.correct)


def test_verdicts_follow_their_images() -> None:
    model, images = Plane(), cloud()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(2))
    shuffled = judge(model, images.subset(order), NOISY, batch_size=30)
    assert torch.equal(shuffled.correct, judge(model, images, NOISY, batch_size=30).correct[order])
    alone = [bool(judge(model, images.subset(slice(i, i + 1)), NOISY).correct) for i in range(20)]
    assert alone == judge(model, images, NOISY).correct[:20].tolist()


def test_a_transformer_s_verdicts_agree_between_batch_sizes_up_to_rounding(trained_vit: Classifier) -> None:
    images, attack = DataSpec("digits").load("test").subset(slice(60)), PGD(Threat("linf", 0.04), steps=5, seed=0)
    whole, parts = (judge(trained_vit, images, attack, batch_size).correct for batch_size in (60, 7))
    assert 0.1 < whole.float().mean() < 0.9
    assert (whole != parts).sum() <= 1


def fits(shape: tuple[int, int, int] = (1, 8, 8), classes: int | None = 3, labels: int = 3) -> Images:
    names = tuple("abcdefgh"[:classes]) if classes else None
    return Images("set", torch.zeros(8, *shape), torch.arange(8) % labels, names)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (fits((1, 9, 8)), r"data 'set': images of shape \(1, 9, 8\).*accepted by the model: \(1, 8, 8\)"),
        (fits((3, 8, 8)), r"\(3, 8, 8\)"),
        (fits(classes=4), "model: 3 classes, but data 'set' has 4"),
        (fits(classes=2, labels=2), "model: 3 classes, but data 'set' has 2"),
        (fits(classes=None, labels=4), "data 'set': labels up to 3; accepted by the model: 0 to 2"),
    ],
)
def test_a_model_that_does_not_fit_its_data_is_an_error_with_both_sides(images: Images, message: str) -> None:
    model = Classifier(nn.Identity(), num_classes=3, input_size=(1, 8, 8))
    with pytest.raises(UserError, match=message):
        check_fits(model, images)


def test_classes_in_another_order_are_an_error_before_they_become_a_number() -> None:
    model = Classifier(nn.Identity(), num_classes=3, classes=("a", "c", "b"))
    with pytest.raises(UserError, match="class 1 is 'b', when the model was trained it was 'c'"):
        check_fits(model, fits())
    check_fits(Classifier(nn.Identity(), num_classes=3, classes=("a", "b", "c")), fits())
    check_fits(model, fits(classes=None))


def test_what_model_or_data_do_not_say_is_no_misfit() -> None:
    check_fits(Classifier(nn.Identity(), num_classes=3, input_size=(1, 8, 8)), fits(classes=None, labels=2))
    check_fits(Classifier(nn.Identity(), num_classes=3), fits((1, 9, 8)))
    check_fits(Classifier(nn.Identity()), fits())
