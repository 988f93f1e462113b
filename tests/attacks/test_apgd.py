"""APGD and GAMA against closed forms, and APGD's step rule against a plain reading of its definition."""

import pytest
import torch
from torch import Tensor, nn

from robustvit.attacks import APGD, GAMA, PGD, Queries, Restarts
from robustvit.attacks.targets import likeliest_others
from robustvit.errors import UserError
from robustvit.models import Classifier
from robustvit.threat import Threat

Batch = tuple[Tensor, Tensor]
NORMS = {"linf": 0.1, "l2": 1.0, "l1": 4.0}


class Linear(nn.Module):
    """Logits (10, 10 + w·(x − ½) + b): label 0 holds as long as w·(x − ½) + b < 0."""

    def __init__(self, bias: float) -> None:
        super().__init__()
        self.w, self.bias = torch.randn(64, generator=torch.Generator().manual_seed(0)), bias

    def forward(self, x: Tensor) -> Tensor:
        score = (x.flatten(1) - 0.5) @ self.w + self.bias
        return torch.stack([torch.full_like(score, 10.0), 10 + score], 1)

    def reach(self, norm: str) -> float:
        """The distance at which the centre (all ½) is fooled, by the dual norm; nothing meets the box on the way."""
        dual = {"linf": self.w.abs().sum(), "l2": self.w.norm(), "l1": self.w.abs().max()}[norm]
        return -self.bias / float(dual)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("make", [APGD, GAMA])
def test_a_linear_model_falls_just_beyond_its_margin(norm: str, make: type) -> None:
    model = Linear(bias=-0.9)  # ℓ1 reach below ½: one pixel is enough
    x, y = torch.full((2, 1, 8, 8), 0.5), torch.zeros(2, dtype=torch.long)
    reach = model.reach(norm)
    # Sparse steps of APGD stop at the two heaviest pixels, a little short of ℓ1's optimum on one.
    for factor, falls in ((1.4 if norm == "l1" and make is APGD else 1.05, True), (0.95, False)):
        x_adv = make(Threat(norm, factor * reach), seed=0)(model, x, y)
        assert ((model(x_adv).argmax(1) != y) == falls).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_best_example_reaches_the_optimum_of_a_linear_model(norm: str) -> None:
    model, threat = Linear(bias=-100.0), Threat(norm, 0.2)
    x, y = torch.full((2, 1, 8, 8), 0.5), torch.zeros(2, dtype=torch.long)
    direction = model.w.sign() if norm == "linf" else model.w / model.w.norm()
    x_adv = APGD(threat, loss="margin", seed=0)(model, x, y)
    torch.testing.assert_close(x_adv, x + 0.2 * direction.view(1, 1, 8, 8), atol=1e-4, rtol=0)


def test_the_step_halves_when_progress_stalls() -> None:
    """On a loss that oscillates round its maximum the later iterates come ever nearer to it."""

    def peak(x: Tensor) -> Tensor:
        score = -((x - 0.53) ** 2).flatten(1).sum(1) - 1
        return torch.stack([torch.zeros_like(score), score], 1)

    seen: list[float] = []

    def watched(x: Tensor) -> Tensor:
        seen.append(float((x.detach() - 0.53).abs().max()))
        return peak(x)

    x, y = torch.full((1, 1, 4, 4), 0.5), torch.zeros(1, dtype=torch.long)
    best = APGD(Threat("linf", 0.1), loss="margin", seed=0)(watched, x, y)
    assert max(seen[5:20]) > 0.05  # the first step is 2·eps
    assert max(seen[-5:]) < 0.01
    assert (best - 0.53).abs().max() < 1e-3


def test_apgd_beats_pgd_at_equal_cost_on_a_trained_model(trained_vit: Classifier, images: Batch) -> None:
    x, y = images
    for norm, eps in {"linf": 0.01, "l2": 0.1}.items():
        with torch.no_grad():
            pgd, apgd = (trained_vit(kind(Threat(norm, eps), steps=20, seed=0)(trained_vit, x, y)) for kind in (PGD, APGD))
        fooled = [logits.argmax(1) != y for logits in (pgd, apgd)]
        assert not (fooled[0] & ~fooled[1]).any()
        # Fooled images left with the first example that did it.
        by_pgd, by_apgd = (nn.functional.cross_entropy(logits, y, reduction="none")[~fooled[1]] for logits in (pgd, apgd))
        assert len(by_apgd) > 2
        assert (by_apgd > by_pgd - 1e-3).float().mean() > 0.7


@pytest.mark.parametrize("norm", NORMS)
def test_a_targeted_run_goes_through_the_likeliest_other_classes(norm: str) -> None:
    """Three groups of pixels raise three classes; only the least likely of them can win within eps."""
    weight = torch.zeros(4, 64)
    weight[1, :20], weight[2, 20:40], weight[3, 40:60] = 0.1, 0.1, 10.0
    bias = torch.tensor([4.0, 1.0, 0.5, 0.0])

    def model(x: Tensor) -> Tensor:
        return (x.flatten(1) - 0.5) @ weight.T + bias

    x, y = torch.full((3, 1, 8, 8), 0.5), torch.zeros(3, dtype=torch.long)
    assert likeliest_others(model(x), y, 9)[0].tolist() == [1, 2, 3]
    threat = Threat(norm, NORMS[norm])
    found = [
        (model(APGD(threat, steps=20, loss="targeted_dlr", targets=targets, seed=0)(model, x, y)).argmax(1) == 3).all()
        for targets in (2, 3)
    ]
    assert found == [False, True]


@pytest.mark.parametrize(("classes", "targets"), [(2, 1), (3, 2), (4, 3), (10, 9), (1000, 9)])
def test_any_number_of_classes_works(classes: int, targets: int) -> None:
    weight = torch.randn(classes, 64, generator=torch.Generator().manual_seed(0))
    bias = torch.zeros(classes)
    bias[0] = 100.0

    def model(x: Tensor) -> Tensor:
        return (x.flatten(1) - 0.5) @ weight.T + bias

    x, y = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.zeros(2, dtype=torch.long)
    ask = Queries(model)
    attack = APGD(Threat("linf", 0.01), steps=2, loss="targeted_dlr", seed=0)
    if classes < 4:
        with pytest.warns(UserWarning, match=f"targeted_dlr needs 4 classes and the model has {classes}"):
            attack(ask, x, y)
    else:
        attack(ask, x, y)
    assert ask.ledger.backward == 2 * 3 * targets


def test_dlr_on_two_classes_is_the_margin(trained_vit: Classifier) -> None:
    model = Linear(bias=-0.9)
    x, y = torch.full((2, 1, 8, 8), 0.5), torch.zeros(2, dtype=torch.long)
    threat = Threat("linf", 0.01)
    with pytest.warns(UserWarning, match="dlr needs 3 classes and the model has 2: margin is used"):
        dlr = APGD(threat, loss="dlr", seed=0)(model, x, y)
    assert torch.equal(dlr, APGD(threat, loss="margin", seed=0)(model, x, y))


def test_in_l1_only_examples_within_eps_count() -> None:
    """The first stages walk at 3·eps and 2·eps, where this model falls; within eps it stands."""
    model = Linear(bias=-0.9)
    x, y = torch.full((2, 1, 8, 8), 0.5), torch.zeros(2, dtype=torch.long)
    threat = Threat("l1", 0.8 * model.reach("l1"))
    assert (model(APGD(threat, seed=0)(model, x, y)).argmax(1) == 0).all()


def test_gama_lowers_its_step_and_its_relaxation_over_time() -> None:
    attack = GAMA(Threat("linf", 0.1), steps=100)
    steps = [attack._step_size(number) for number in range(100)]
    assert steps[0] == steps[59] == pytest.approx(0.2)
    assert steps[60] == steps[84] == pytest.approx(0.02)
    assert steps[85] == steps[99] == pytest.approx(0.002)


def test_restarts_of_apgd_ask_only_about_what_stands(trained_vit: Classifier, images: Batch) -> None:
    x, y = images
    one = APGD(Threat("linf", 0.05), steps=5, seed=0)
    first, all_three = Queries(trained_vit), Queries(trained_vit)
    fell = trained_vit(one(first, x, y)).argmax(1) != y
    Restarts(one, 3)(all_three, x, y)
    assert fell.any()
    standing = int((~fell).sum())
    assert all_three.ledger.forward <= first.ledger.forward + len(x) + 2 * standing * (one.cost() // 2 + 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: APGD(t, steps=0), "apgd.steps: 0"),
        (lambda t: APGD(t, targets=0), "apgd.targets: 0"),
        (lambda t: APGD(t, rho=1.0), "apgd.rho: 1.0"),
        (lambda t: APGD(t, loss="dlrr"), "did you mean 'dlr'"),
        (lambda t: APGD(t, loss="kl"), "apgd.loss 'kl'"),
        (lambda t: GAMA(t, steps=0), "gama.steps: 0"),
        (lambda t: GAMA(t, weight=-1.0), "gama.weight: -1.0"),
    ],
)
def test_settings_that_make_no_attack_are_errors(make, message: str) -> None:
    with pytest.raises(UserError) as error:
        make(Threat("linf", 0.1))
    assert message in str(error.value)
