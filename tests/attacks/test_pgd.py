"""PGD, FGSM and restarts against closed forms: on a linear model the strongest example is known."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from robustvit.attacks import EOT, FAB, FGSM, PGD, Restarts, WorstOf
from robustvit.errors import UserError
from robustvit.models import Classifier
from robustvit.threat import Threat

Batch = tuple[Tensor, Tensor]


class Linear(torch.nn.Module):
    """Logits (0, w·x): for label 0 the loss rises with w·x."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.w = torch.randn(64, generator=torch.Generator().manual_seed(seed)) / 4

    def forward(self, x: Tensor) -> Tensor:
        score = x.flatten(1) @ self.w
        return torch.stack([torch.zeros_like(score), score], 1)


def points(inside: bool, seed: int = 1) -> Batch:
    x = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    return (0.4 + 0.2 * x if inside else x), torch.zeros(8, dtype=torch.long)


def l2_optimum(x: Tensor, w: Tensor, eps: float) -> Tensor:
    """max w·p over ball ∩ box: clip(x + t·w) with the t, found by bisection, that spends eps."""
    best = []
    for image in x.flatten(1).double():
        low, high = 0.0, 1e6
        for _ in range(200):
            t = (low + high) / 2
            low, high = (t, high) if ((image + t * w).clamp(0, 1) - image).norm() < eps else (low, t)
        best.append((image + low * w).clamp(0, 1))
    return torch.stack(best).view_as(x)


@pytest.mark.parametrize("eps", [1 / 255, 8 / 255, 0.3])
@pytest.mark.parametrize("attack", [FGSM, PGD])
def test_linf_reaches_the_optimum_of_a_linear_model(attack: type, eps: float) -> None:
    model, (x, y) = Linear(), points(inside=False)
    expected = (x + eps * model.w.sign().view(1, 1, 8, 8)).clamp(0, 1)
    torch.testing.assert_close(attack(Threat("linf", eps), seed=0)(model, x, y), expected, atol=2e-7, rtol=0)


def test_l2_fgsm_reaches_the_optimum_of_a_linear_model_inside_the_box() -> None:
    model, (x, y) = Linear(), points(inside=True)
    expected = x + 0.3 * (model.w / model.w.norm()).view(1, 1, 8, 8)
    torch.testing.assert_close(FGSM(Threat("l2", 0.3))(model, x, y), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("inside", [True, False])
def test_l2_pgd_reaches_the_optimum_of_a_linear_model(inside: bool) -> None:
    model, (x, y) = Linear(), points(inside)
    x_adv = PGD(Threat("l2", 1.0), steps=300, step=0.5, step_unit="eps", seed=0)(model, x, y)
    expected = l2_optimum(x, model.w.double(), 1.0)
    torch.testing.assert_close(x_adv.double(), expected, atol=2e-3, rtol=0)
    reached, best = (z.double().flatten(1) @ model.w.double() for z in (x_adv, expected))
    assert (best - reached).abs().max() < 1e-4


def test_l1_pgd_puts_everything_on_the_heaviest_pixel() -> None:
    model, (x, y) = Linear(), points(inside=True)
    heaviest = model.w.abs().argmax()
    expected = x.flatten(1).clone()
    expected[:, heaviest] += 0.3 * model.w[heaviest].sign()
    x_adv = PGD(Threat("l1", 0.3), steps=50, seed=0)(model, x, y)
    torch.testing.assert_close(x_adv.flatten(1), expected, atol=1e-5, rtol=0)


def test_l1_pgd_is_not_stuck_on_a_pixel_that_is_already_at_the_box() -> None:
    """With the heaviest pixel exhausted, the optimum lies on the second heaviest."""
    model, (x, y) = Linear(), points(inside=True)
    first, second = model.w.abs().topk(2).indices
    flat = x.flatten(1)
    flat[:, first] = float(model.w[first] > 0)
    expected = flat.clone()
    expected[:, second] += 0.3 * model.w[second].sign()
    x_adv = PGD(Threat("l1", 0.3), steps=50, seed=0)(model, flat.view_as(x), y)
    torch.testing.assert_close(x_adv.flatten(1), expected, atol=1e-3, rtol=0)


def test_more_steps_strengthen_the_attack(trained_vit: Classifier, images: Batch) -> None:
    x, y = images

    def loss(steps: int) -> float:
        x_adv = PGD(Threat("linf", 0.1), steps=steps, seed=0)(trained_vit, x, y)
        with torch.no_grad():
            return F.cross_entropy(trained_vit(x_adv), y).item()

    losses = [loss(steps) for steps in (1, 5, 20)]
    assert losses[0] < losses[1] < losses[2]


def test_targeted_pgd_raises_the_targets_probability(tiny_vit: Classifier, images: Batch) -> None:
    x, y = images
    target = (y + 3) % 10
    for norm, eps in (("linf", 0.1), ("l2", 1.0), ("l1", 4.0)):
        x_adv = PGD(Threat(norm, eps), targeted=True, seed=0)(tiny_vit, x, target)
        with torch.no_grad():
            before, after = (tiny_vit(z).softmax(1).gather(1, target[:, None]) for z in (x, x_adv))
        assert (after > before).all()


@pytest.mark.parametrize("unit", ["eps/steps", "eps", "absolute"])
def test_the_step_shrinks_with_eps_in_every_unit(unit: str) -> None:
    attack = PGD(Threat("linf", 0.1), steps=10, step=0.02, step_unit=unit)
    assert attack.step_size == pytest.approx({"eps/steps": 0.0002, "eps": 0.002, "absolute": 0.02}[unit])
    assert attack.scaled(0.5).step_size == pytest.approx(attack.step_size / 2)
    assert attack.scaled(0.0).threat.eps == 0


def test_one_pgd_step_without_a_random_start_is_fgsm(tiny_vit: Classifier, images: Batch) -> None:
    threat = Threat("linf", 8 / 255)
    one = PGD(threat, steps=1, step=1.0, random_start=False)
    assert torch.equal(one(tiny_vit, *images), FGSM(threat)(tiny_vit, *images))


def test_without_a_seed_the_start_comes_from_torchs_generator(tiny_vit: Classifier, images: Batch) -> None:
    attack = FGSM(Threat("linf", 0.1), step=0.1, random_start=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first, second = attack(tiny_vit, *images), attack(tiny_vit, *images)
        torch.manual_seed(0)
        assert torch.equal(attack(tiny_vit, *images), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_restarts_are_at_least_as_strong_as_one_run_on_every_image(norm: str, trained_vit: Classifier, images: Batch) -> None:
    x, y = images
    one = PGD(Threat(norm, {"linf": 0.05, "l2": 0.5, "l1": 2.0}[norm]), steps=2, seed=0)
    with torch.no_grad():
        single, several = trained_vit(one(trained_vit, x, y)), trained_vit(Restarts(one, count=4)(trained_vit, x, y))
    fooled_by_one, fooled = (logits.argmax(1) != y for logits in (single, several))
    assert (fooled | ~fooled_by_one).all()
    loss_one, loss = (F.cross_entropy(logits, y, reduction="none") for logits in (single, several))
    same = fooled_by_one == fooled  # a run that fools may have a lower loss than one that does not
    assert (loss[same] >= loss_one[same] - 1e-5).all()
    assert loss.sum() > loss_one.sum()


def test_neighbouring_seeds_share_no_restart() -> None:
    x = torch.full((1, 1, 8, 8), 0.5)
    seen: list[Tensor] = []

    def watched(z: Tensor) -> Tensor:
        seen.append(z.detach().clone())
        return Linear()(z) + torch.tensor([100.0, 0.0])  # never fooled, so that no restart is left out

    for seed in range(3):
        Restarts(PGD(Threat("linf", 0.1), steps=1, seed=seed), count=3)(watched, x, torch.zeros(1, dtype=torch.long))
    starts = seen[::2]  # each run asks once for the gradient at its start and once for the damage
    assert len({start.numpy().tobytes() for start in starts}) == 9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: PGD(t, steps=0), "pgd.steps: 0"),
        (lambda t: PGD(t, step=0.0), "pgd.step: 0.0"),
        (lambda t: PGD(t, step=np.nan), "pgd.step: nan"),
        (lambda t: PGD(t, loss="cross_entrop"), "did you mean 'cross_entropy'"),
        (lambda t: PGD(t, loss="kl", targeted=True), "pgd.targeted"),
        (lambda t: PGD(t, step_unit="epsilon"), "pgd.step_unit 'epsilon': did you mean 'eps'"),
        (lambda t: FGSM(t, step=-1.0), "fgsm.step: -1.0"),
        (lambda t: Restarts(PGD(t), count=0), "restarts.count: 0"),
        (lambda t: PGD(t, loss="kl", random_start=False), "pgd.random_start: False"),
        (lambda t: Restarts(FGSM(t)), "restarts.inner: fgsm has no random start"),
        (lambda t: Restarts(FAB(t, targets=9)), "restarts.inner: fab-t has no random start"),
        (lambda t: Restarts(EOT(FGSM(t))), "restarts.inner: fgsm-eot20 has no random start"),
        (lambda t: Restarts(WorstOf((FGSM(t), FAB(t)))), "restarts.inner: worst-of has no random start"),
        (lambda t: Restarts(PGD(t, targeted=True)), "restarts.inner.targeted"),
    ],
)
def test_settings_that_make_no_attack_are_errors(make, message: str) -> None:
    with pytest.raises(UserError) as error:
        make(Threat("linf", 0.1))
    assert message in str(error.value)
