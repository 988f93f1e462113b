"""What every attack promises, tested on every entry of the registry. A new attack joins with one row in `TABLE`."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustvit.attacks import (
    APGD,
    ATTACKS,
    EOT,
    FAB,
    FGSM,
    GAMA,
    PGD,
    Attack,
    InPrecision,
    LogitScaling,
    Queries,
    Restarts,
    Square,
    WorstOf,
    attackable,
)
from robustvit.errors import UserError
from robustvit.models import Classifier
from robustvit.threat import ULP, Threat

RADII = {"linf": 0.1, "l2": 1.0, "l1": 4.0}
TABLE: dict[str, Callable[[Threat], Attack]] = {
    "fgsm": lambda threat: FGSM(threat, random_start=True, seed=0),
    "pgd": lambda threat: PGD(threat, steps=5, seed=0),
    "apgd": lambda threat: APGD(threat, steps=10, seed=0),
    "fab": lambda threat: FAB(threat, steps=5, targets=2, restarts=2, seed=0),
    "square": lambda threat: Square(threat, queries=20, seed=0),
    "gama": lambda threat: GAMA(threat, steps=8, seed=0),
    "restarts": lambda threat: Restarts(PGD(threat, steps=3, seed=0), count=2),
    "worst_of": lambda threat: WorstOf((PGD(threat, steps=2, seed=0), APGD(threat, steps=3, loss="dlr", seed=0))),
    "in_precision": lambda threat: InPrecision(PGD(threat, steps=3, seed=0), "bf16"),
    "eot": lambda threat: EOT(PGD(threat, steps=3, seed=0), draws=2),
    "logit_scaling": lambda threat: LogitScaling(PGD(threat, steps=3, seed=0), factor=0.1),
}
# Nearest adversarial image or the image itself: nothing in between.
ALL_OR_NOTHING = ("fab",)
CASES = [
    pytest.param(make(Threat(norm, eps)), id=f"{name}-{norm}") for name, make in TABLE.items() for norm, eps in RADII.items()
]
every_attack = pytest.mark.parametrize("attack", CASES)
Batch = tuple[Tensor, Tensor]


class Constant(nn.Module):
    """The same logits for every image, with no path back to it."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.arange(10.0).repeat(len(x), 1)


class Broken(nn.Module):
    """A linear model that answers NaN, for the images that hold a pixel above `limit`."""

    def __init__(self, limit: float = -1.0) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        return torch.where(flat.amax(1, keepdim=True) > self.limit, torch.nan, flat[:, :10])


def stateful_network() -> nn.Sequential:
    """Convolution, BatchNorm and Dropout in train mode, with one module in eval mode and one frozen parameter."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(288, 10), nn.Dropout(0.5)
    )
    network[6].eval()
    network[0].bias.requires_grad_(False)
    return network


def test_the_table_covers_the_registry() -> None:
    assert TABLE.keys() == ATTACKS.keys()
    assert {name: type(make(Threat("linf", 0.1))) for name, make in TABLE.items()} == ATTACKS


@every_attack
def test_examples_lie_inside_ball_and_box(attack: Attack, tiny_vit: Classifier, images: Batch) -> None:
    x, y = images
    x_adv = attack(tiny_vit, x, y)
    threat = attack.threat
    assert (x_adv.shape, x_adv.dtype, x_adv.requires_grad) == (x.shape, x.dtype, False)
    assert x_adv.min() >= 0
    assert x_adv.max() <= 1
    order = {"linf": torch.inf, "l2": 2, "l1": 1}[threat.norm]
    assert (x_adv.double() - x.double()).flatten(1).norm(p=order, dim=1).max() <= threat.eps + threat.tolerance(64)
    if threat.norm == "linf":
        assert (x_adv - x).abs().max().item() <= threat.eps + ULP


@every_attack
def test_the_loss_rises_for_nearly_every_image(attack: Attack, trained_vit: Classifier, images: Batch) -> None:
    x, y = images
    with torch.no_grad():
        right = trained_vit(x).argmax(1) == y
        x, y = x[right], y[right]
        x_adv = attack.scaled(0.3)(trained_vit, x, y)
        before, after = (trained_vit(z) for z in (x, x_adv))
    fooled = after.argmax(1) != y
    rose = F.cross_entropy(after, y, reduction="none") > F.cross_entropy(before, y, reduction="none")
    if attack.name.startswith(ALL_OR_NOTHING):
        assert torch.equal((x_adv != x).flatten(1).any(1), fooled)
    else:
        # One step from a random start may land lower, and a margin may rise while the cross-entropy does not.
        assert (rose | fooled).float().mean() > 0.8


@every_attack
def test_correct_images_of_a_trained_model_are_fooled(attack: Attack, trained_vit: Classifier, images: Batch) -> None:
    x, y = images
    with torch.no_grad():
        right = trained_vit(x).argmax(1) == y
        far = attack.scaled(4.0)
        fooled = trained_vit(far(trained_vit, x[right], y[right])).argmax(1) != y[right]
    assert right.sum() >= 8
    assert fooled.float().mean() > 0.7


@every_attack
def test_the_cost_bounds_the_passes_that_an_image_takes(attack: Attack, tiny_vit: Classifier, images: Batch) -> None:
    x, y = images
    ask = Queries(tiny_vit)
    attack(ask, x, y)
    assert 0 < ask.ledger.forward + ask.ledger.backward <= len(x) * attack.cost()


@every_attack
def test_input_and_labels_are_not_written_to(attack: Attack, tiny_vit: Classifier, images: Batch) -> None:
    x, y = images
    x_before, y_before = x.clone(), y.clone()
    attack(tiny_vit, x, y)
    assert torch.equal(x, x_before)
    assert torch.equal(y, y_before)
    assert not x.requires_grad


@every_attack
def test_labels_may_be_shares_of_classes(attack: Attack, trained_vit: Classifier, images: Batch) -> None:
    x, y = images
    one_hot, mixed = F.one_hot(y, 10).float(), 0.8 * F.one_hot(y, 10) + 0.02
    alike = (attack(trained_vit, x, one_hot) - attack(trained_vit, x, y)).abs() < 1e-4
    assert alike.float().mean() > 0.99  # where a gradient is nearly zero, rounding decides its sign
    assert attack.threat.contains(attack(trained_vit, x, mixed), x).all()


@every_attack
def test_the_model_and_the_random_state_are_left_untouched(attack: Attack, images: Batch) -> None:
    network = stateful_network()
    network[5].weight.grad = torch.ones_like(network[5].weight)
    modes = [module.training for module in network.modules()]
    wants = [p.requires_grad for p in network.parameters()]
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    rng = torch.get_rng_state()

    attack(network, *images)

    assert [module.training for module in network.modules()] == modes
    assert [p.requires_grad for p in network.parameters()] == wants
    assert all(torch.equal(tensor, state[name]) for name, tensor in network.state_dict().items())
    assert torch.equal(network[5].weight.grad, torch.ones_like(network[5].weight))
    assert all(p.grad is None for p in network.parameters() if p is not network[5].weight)
    assert torch.equal(rng, torch.get_rng_state())


@every_attack
def test_the_model_is_restored_when_it_fails_half_way(attack: Attack, images: Batch) -> None:
    network = stateful_network()
    network.append(nn.Linear(3, 3))  # does not fit
    modes = [module.training for module in network.modules()]
    wants = [p.requires_grad for p in network.parameters()]
    with pytest.raises(RuntimeError, match="shape"):
        attack(network, *images)
    assert [module.training for module in network.modules()] == modes
    assert [p.requires_grad for p in network.parameters()] == wants


@every_attack
def test_dropout_and_batch_statistics_are_off_during_the_attack(attack: Attack, images: Batch) -> None:
    trained, evaluated = stateful_network(), stateful_network().eval()
    assert torch.equal(attack(trained, *images), attack(evaluated, *images))


@every_attack
@pytest.mark.parametrize("count", [0, 1])
def test_small_batches_work(attack: Attack, tiny_vit: Classifier, images: Batch, count: int) -> None:
    x, y = images
    assert attack(tiny_vit, x[:count], y[:count]).shape == (count, 1, 8, 8)


@every_attack
def test_a_model_without_gradient_gets_a_valid_image(attack: Attack, images: Batch) -> None:
    x, y = images
    assert attack.threat.contains(attack(Constant(), x, y), x).all()


@every_attack
def test_a_plain_function_is_a_model(attack: Attack, tiny_vit: Classifier, images: Batch) -> None:
    x, y = images
    assert torch.equal(attack(lambda z: tiny_vit(z), x, y), attack(tiny_vit, x, y))


@every_attack
def test_logits_that_are_not_numbers_are_reported(attack: Attack, images: Batch) -> None:
    with pytest.raises(UserError, match="16 of 16 images"):
        attack(Broken(), *images)


@every_attack
def test_one_image_with_broken_logits_is_named(attack: Attack, images: Batch) -> None:
    x, y = images
    x = x * 0.3
    x[5] = 1.0  # above the limit whatever the attack does to it: an ℓ1 ball of 4 reaches 4 pixels of 64
    with pytest.raises(UserError, match=r"1 of 16 images \(first: number 5"):
        attack.scaled(0.1)(Broken(limit=0.8), x, y)


@every_attack
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.full((2, 1, 8, 8), 1.5), r"from 1.5 to 1.5; accepted: \[0, 1\]"),
        (torch.full((2, 1, 8, 8), -0.1), r"accepted: \[0, 1\]"),
        (torch.full((2, 1, 8, 8), torch.nan), r"accepted: \[0, 1\]"),
        (torch.zeros(2, 64), r"shape \(2, 64\)"),
        (torch.zeros(2, 1, 8, 8, dtype=torch.uint8), "uint8"),
    ],
)
def test_bad_images_are_an_error(attack: Attack, tiny_vit: Classifier, x: Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        attack(tiny_vit, x, torch.zeros(2, dtype=torch.long))


@every_attack
@pytest.mark.parametrize("size", [1, 7])
def test_an_example_does_not_depend_on_its_batch(attack: Attack, tiny_vit: Classifier, images: Batch, size: int) -> None:
    """In float64, where rounding in another batch size is too small to turn a gradient's sign."""
    x, y = images[0].double(), images[1]
    tiny_vit.double()
    whole = attack(tiny_vit, x, y)
    parts = torch.cat([attack(tiny_vit, a, b) for a, b in zip(x.split(size), y.split(size), strict=True)])
    assert ((whole - parts).abs() > 1e-5).float().mean() < 0.005


def seeded(attack: Attack, seed: int | None) -> Attack:
    if isinstance(attack, WorstOf):
        return replace(attack, attacks=tuple(seeded(part, seed) for part in attack.attacks))
    return replace(attack, inner=seeded(attack.inner, seed)) if hasattr(attack, "inner") else replace(attack, seed=seed)


@every_attack
def test_the_seed_decides_the_result(attack: Attack, trained_vit: Classifier, images: Batch) -> None:
    far = attack.scaled(2.0)
    first, again, other = (seeded(far, seed)(trained_vit, *images) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    # FAB draws only where a first run from the image itself found nothing: see its own tests.
    assert attack.name.startswith(ALL_OR_NOTHING) or not torch.equal(first, other)


@every_attack
def test_attacks_work_where_the_caller_turned_gradients_off(attack: Attack, tiny_vit: Classifier, images: Batch) -> None:
    expected = attack(tiny_vit, *images)
    with torch.no_grad():
        assert torch.equal(attack(tiny_vit, *images), expected)
        assert not torch.is_grad_enabled()


@every_attack
def test_scaled_halves_eps_and_keeps_everything_else(attack: Attack) -> None:
    half = attack.scaled(0.5)
    assert half.threat == Threat(attack.threat.norm, attack.threat.eps / 2)
    assert half.scaled(2.0) == attack


@every_attack
def test_at_eps_zero_the_image_comes_back(attack: Attack, tiny_vit: Classifier, images: Batch) -> None:
    x, y = images
    assert torch.equal(attack.scaled(0.0)(tiny_vit, x, y), x)


@every_attack
def test_every_attack_has_a_name_for_reports(attack: Attack) -> None:
    assert attack.name
    assert attack.name == attack.name.lower()


def test_a_label_beyond_the_models_classes_is_an_error(tiny_vit: Classifier, images: Batch) -> None:
    with pytest.raises(UserError, match="labels: up to 12; accepted by the model: 0 to 9"):
        PGD(Threat("linf", 0.1), steps=1)(tiny_vit, images[0], images[1].clamp(min=12))


@pytest.mark.parametrize(
    "y",
    [torch.zeros(3, dtype=torch.int64), torch.zeros(4, dtype=torch.int32), torch.zeros(4), torch.tensor([0, 1, -1, 2])],
    ids=["too few", "int32", "one number an image", "negative"],
)
def test_labels_that_cannot_be_are_an_error(y: Tensor) -> None:
    with pytest.raises(UserError, match="labels: "):
        FGSM(Threat("linf", 0.1))(lambda x: x.flatten(1), torch.rand(4, 1, 2, 2), y)


def test_attackable_freezes_inside_and_restores_outside() -> None:
    network = stateful_network()
    with torch.no_grad(), attackable(network):
        assert torch.is_grad_enabled()
        assert not any(module.training for module in network.modules())
        assert not any(p.requires_grad for p in network.parameters())
    assert network.training
    assert not network[6].training
    assert [p.requires_grad for p in network[0].parameters()] == [True, False]
