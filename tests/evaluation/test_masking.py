"""The checks against gradient masking: each made defence must be named, no healthy model may be."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from robustvit.attacks import PGD, Queries
from robustvit.config import override
from robustvit.data import DataSpec
from robustvit.errors import UserError
from robustvit.evaluation import evaluate
from robustvit.evaluation.masking import IMAGES, of_stages, probe
from robustvit.models import Classifier, load_model
from robustvit.recipes import RECIPES
from robustvit.threat import Threat
from robustvit.training.loop import fit

THREATS = [
    Threat("linf", 0.0),
    Threat("linf", 1 / 255),
    Threat("linf", 0.12),
    Threat("linf", 0.4),
    Threat("l2", 0.05),
    Threat("l2", 0.6),
    Threat("l1", 0.5),
    Threat("l1", 4.0),
]


class BatchStatistics(nn.Module):
    """Normalises by the images that are asked with it, in eval mode too."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.norm, self.model = nn.BatchNorm2d(1, affine=False, track_running_stats=False), model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(0.3 + 0.3 * self.norm(x))


class Tiring(nn.Module):
    """Another function after so many questions."""

    def __init__(self, model: nn.Module, after: int) -> None:
        super().__init__()
        self.model, self.left = model, after

    def forward(self, x: Tensor) -> Tensor:
        self.left -= 1
        return self.model(x) if self.left > 0 else self.model(x).roll(1, 1)


class Around(nn.Module):
    """A model with something done to its images and to its logits."""

    def __init__(
        self,
        model: nn.Module,
        before: Callable[[Tensor], Tensor] = lambda x: x,
        after: Callable[[Tensor], Tensor] = lambda logits: logits,
    ) -> None:
        super().__init__()
        self.model, self.before, self.after = model, before, after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.model(self.before(x)))


def zigzag(x: Tensor) -> Tensor:
    """Up to 0.06 more in each pixel, up and down 50 times over its range: far steeper than the image itself."""
    return x + 0.12 * ((50 * x) % 1 - 0.5).abs()


def sawtooth(x: Tensor) -> Tensor:
    """Eight steps whose treads slope down, so that every gradient points the wrong way."""
    steps = (8 * x).round() / 8
    return 2 * steps - x


HIDDEN = {"loss-flat-in-steps", "loss-flat-in-eps", "accuracy-at-large-eps"}
# defence: how it is made, the names that must appear, the names that must not
DEFENCES: dict[str, tuple[Callable[[nn.Module], nn.Module], set[str], set[str]]] = {
    "softmax": (lambda m: Around(m, after=lambda z: z.softmax(1)), {"softmax-output"}, {"zero-gradients", *HIDDEN}),
    "noise": (
        lambda m: Around(m, before=lambda x: x + 0.05 * torch.randn_like(x)),
        {"randomised-output"},
        {"softmax-output", "zero-gradients", "vanishing-gradients"},
    ),
    "quantised": (
        lambda m: Around(m, before=lambda x: (8 * x).round() / 8),
        {"zero-gradients", "accuracy-at-large-eps"},
        {"vanishing-gradients", "randomised-output"},
    ),
    "half precision": (lambda m: Around(m, after=lambda z: z.half()), {"low-precision-output"}, {"zero-gradients", *HIDDEN}),
    "no graph": (lambda m: Around(m, after=torch.detach), {"zero-gradients"}, {"vanishing-gradients"}),
    "large logits": (lambda m: Around(m, after=lambda z: 1e4 * z), {"vanishing-gradients"}, {"zero-gradients", *HIDDEN}),
    "zigzag": (lambda m: Around(m, before=zigzag), HIDDEN, {"zero-gradients", "vanishing-gradients"}),
    "sawtooth": (lambda m: Around(m, before=sawtooth), HIDDEN, {"zero-gradients", "vanishing-gradients"}),
}


def digits(split: str, classes: int = 10) -> tuple[Tensor, Tensor]:
    images = DataSpec("digits").load(split)
    x, y = images.batch(slice(0, len(images)))
    return x, (y if classes == 10 else (y >= 5).long())


def least_squares(classes: int) -> nn.Module:
    """The linear model that fits the training digits best."""
    x, y = digits("train", classes)
    flat = torch.cat([x.flatten(1), torch.ones(len(x), 1)], 1)
    wanted = nn.functional.one_hot(y, classes).float()
    weights = torch.linalg.solve(flat.T @ flat + torch.eye(65), flat.T @ wanted)
    linear = nn.Linear(64, classes)
    with torch.no_grad():
        linear.weight.copy_(weights[:-1].T)
        linear.bias.copy_(weights[-1])
    return nn.Sequential(nn.Flatten(), linear).eval()


@pytest.fixture(scope="module")
def robust_vit(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    """A one-block ViT trained against PGD for some seconds."""
    cheap = ["phases.0.objective.adversary.steps=1", "phases.0.objective.adversary.step=1.25", "select_every=6"]
    short = [*cheap, "phases.0.epochs=6", "phases.0.eps.epochs=2", "optim.schedule.warmup=1", "model.args.depth=1"]
    recipe = override(RECIPES["digits-robust"](), short)
    with torch.random.fork_rng(devices=[]):
        return load_model(fit(recipe, tmp_path_factory.mktemp("runs") / "robust", "cpu"))


@pytest.fixture
def models(robust_vit: Classifier, trained_vit: Classifier, tiny_vit: Classifier) -> dict[str, nn.Module]:
    linear = {"linear": least_squares(10), "two classes": least_squares(2)}
    return {"robust": robust_vit, "undefended": trained_vit, "untrained": tiny_vit, **linear}


def right(model: nn.Module, count: int = 16) -> tuple[Tensor, Tensor]:
    x, y = digits("test", model(torch.zeros(1, 1, 8, 8)).shape[1])
    with torch.no_grad():
        index = (model(x).argmax(1) == y).nonzero().squeeze(1)[:count]
    return x[index], y[index]


def names(model: nn.Module, threat: Threat, count: int = 16) -> set[str]:
    return {suspicion.name for suspicion in probe(model, *right(model, count), threat)}


@pytest.mark.parametrize("threat", THREATS, ids=lambda threat: f"{threat.norm} {threat.eps:.3g}")
@pytest.mark.parametrize("model", ["robust", "undefended", "untrained", "linear", "two classes"])
def test_a_healthy_model_raises_no_suspicion(models: dict[str, nn.Module], model: str, threat: Threat) -> None:
    assert names(models[model], threat) == set()


@pytest.mark.parametrize(
    ("model", "threat"),
    [
        ("undefended", Threat("linf", 0.12)),
        ("robust", Threat("linf", 0.12)),
        ("robust", Threat("l2", 0.6)),
        ("robust", Threat("l1", 4.0)),
    ],
    ids=lambda value: value if isinstance(value, str) else value.norm,
)
@pytest.mark.parametrize("defence", DEFENCES)
def test_a_made_defence_is_named(models: dict[str, nn.Module], defence: str, model: str, threat: Threat) -> None:
    made, expected, excluded = DEFENCES[defence]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        found = names(made(models[model]).eval(), threat)
    if threat.norm != "linf" and expected == HIDDEN:
        # Steps in other norms move few pixels far, or all of them by little: they jump the teeth, or climb a single one.
        assert "accuracy-at-large-eps" in found or found >= {"loss-flat-in-steps", "loss-flat-in-eps"}
    else:
        assert found >= expected
    assert not found & excluded


def test_every_suspicion_says_how_many_images_and_what_to_do(models: dict[str, nn.Module]) -> None:
    for made, _, _ in DEFENCES.values():
        model = made(models["linear"]).eval()
        for suspicion in probe(model, *right(model, 8), Threat("linf", 0.12)):
            assert any(character.isdigit() for character in suspicion.message)
            assert len(suspicion.advice) > 40


def test_no_image_raises_nothing_and_one_image_no_comparison(models: dict[str, nn.Module]) -> None:
    for made, _, _ in DEFENCES.values():
        model = made(models["linear"]).eval()
        x, y = right(models["linear"], 1)
        assert probe(model, x[:0], y[:0], Threat("linf", 0.12)) == []
        assert not {suspicion.name for suspicion in probe(model, x, y, Threat("linf", 0.12))} & HIDDEN


def test_the_probe_is_cheap_and_looks_at_64_images_at_most(models: dict[str, nn.Module]) -> None:
    ask = Queries(Around(models["linear"], before=zigzag))
    x, y = right(models["linear"], 100)
    assert len(x) == 100
    probe(ask, x, y, Threat("linf", 0.12))
    assert 100 * IMAGES < ask.ledger.forward + ask.ledger.backward <= 250 * IMAGES


def test_the_probe_leaves_the_model_as_it_was_and_repeats_itself(models: dict[str, nn.Module]) -> None:
    model = Around(models["robust"], before=zigzag).train()
    x, y = right(model, 8)
    state = torch.get_rng_state()
    first = probe(model, x, y, Threat("linf", 0.12), seed=3)
    assert probe(model, x, y, Threat("linf", 0.12), seed=3) == first
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training for module in model.modules())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_dropout_in_train_mode_is_no_randomness_since_verdicts_are_made_in_eval_mode(models: dict[str, nn.Module]) -> None:
    model = nn.Sequential(nn.Dropout(0.5), models["linear"]).train()
    x, y = right(models["linear"])
    assert probe(model, x, y, Threat("linf", 0.12)) == []


def test_the_rounding_of_changing_kernels_is_no_randomness(models: dict[str, nn.Module]) -> None:
    model = Around(models["linear"], after=lambda z: z * (1 + 1e-6 * torch.randn_like(z)))
    assert "randomised-output" not in names(model, Threat("linf", 0.0))


def test_a_constant_model_resists_any_radius_and_is_not_accused_of_it() -> None:
    model = Around(least_squares(10), after=lambda z: 0 * z + 5 * torch.eye(10)[3])
    assert names(model, Threat("linf", 0.12)) == {"zero-gradients", "loss-flat-in-steps", "loss-flat-in-eps"}


def test_an_answer_that_depends_on_the_batch_is_named(models: dict[str, nn.Module]) -> None:
    model = BatchStatistics(models["undefended"])
    assert "batch-dependent-output" in names(model, Threat("linf", 0.12))
    x, y = right(model)
    ask = Queries(model)
    ask.ledger.size = 1  # asked one by one it is a function of the image
    assert "batch-dependent-output" not in {suspicion.name for suspicion in probe(ask, x, y, Threat("linf", 0.12))}


@pytest.mark.parametrize(("after", "expected"), [(25, ["changing-output"]), (10**6, [])])
def test_a_model_that_changes_during_the_attack_is_named(
    after: int, expected: list[str], models: dict[str, nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = DataSpec("digits").load("test").subset(slice(8))
    monkeypatch.setattr("robustvit.evaluation.masking.probe", lambda *given: [])  # it has tests of its own
    (found,) = evaluate(Tiring(models["linear"], after), images, [PGD(Threat("linf", 0.1), steps=30, seed=0)], device="cpu")
    assert [warning["name"] for warning in found.provenance["warnings"]] == expected


def test_nan_logits_are_an_error(models: dict[str, nn.Module]) -> None:
    x, y = right(models["linear"], 4)
    with pytest.raises(UserError, match="NaN"):
        probe(Around(models["linear"], after=lambda z: z * torch.nan), x, y, Threat("linf", 0.12))


def stages(*given: tuple[str, int, int]) -> list[dict[str, object]]:
    return [{"name": name, "entered": entered, "broken": broken} for name, entered, broken in given]


WHITE = [("apgd-ce", 900, 400), ("apgd-t", 500, 20), ("fab-t", 480, 0)]


@pytest.mark.parametrize(
    ("given", "n", "suspect"),
    [
        ([*WHITE, ("square", 480, 2)], 1000, False),  # 0.2%: the reference's chance
        ([*WHITE, ("square", 480, 3)], 1000, True),
        ([*WHITE, ("square-tf32", 480, 30)], 1000, True),
        ([("apgd-ce", 90, 40), ("square", 50, 1)], 100, False),  # 1%, but a single image
        ([("apgd-ce", 90, 40), ("square", 50, 2)], 100, True),
        ([("square", 900, 500)], 1000, False),  # nothing to compare with
        ([("square", 900, 500), ("apgd-ce", 400, 10)], 1000, False),
        ([("apgd-ce", 900, 400), ("square", 500, 5), ("apgd-t", 495, 20)], 1000, False),  # apgd-t's, had it come first
        ([("apgd-ce", 900, 10), ("square", 890, 300), ("apgd-t", 590, 5)], 1000, True),
        ([("apgd-ce", 900, 400)], 1000, False),
        ([], 0, False),
    ],
)
def test_square_is_suspect_where_it_breaks_what_gradients_left(given: list, n: int, suspect: bool) -> None:
    found = of_stages(stages(*given), n)
    assert [suspicion.name for suspicion in found] == (["black-box-beats-white-box"] if suspect else [])


def test_the_warning_about_square_gives_its_figures() -> None:
    (found,) = of_stages(stages(*WHITE, ("square", 480, 30)), 1000)
    assert "30 of the 480 images that apgd-ce, apgd-t, fab-t had left (3.0% of all 1000" in found.message
