"""FAB against the closed form on linear models, its promises on a trained one, and the authors' implementation."""

import copy
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import pytest
import torch
from torch import Tensor

from robustvit.attacks.base import attackable
from robustvit.attacks.fab import FAB
from robustvit.attacks.hyperplane import nearest
from robustvit.attacks.query import Queries
from robustvit.data import DataSpec
from robustvit.errors import UserError
from robustvit.models import Classifier
from robustvit.threat import Threat

Batch = tuple[Tensor, Tensor]
ORDER = {"linf": torch.inf, "l2": 2, "l1": 1}
DUAL = {"linf": 1, "l2": 2, "l1": torch.inf}
RADII = {"linf": 0.05, "l2": 0.25, "l1": 0.6}  # at which some of sixteen digits break
every_norm = pytest.mark.parametrize("norm", ORDER)
both = pytest.mark.parametrize("targets", [0, 9], ids=["fab", "fab-t"])


def linear(classes: int, centre: float = 0.5) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    weight = torch.randn(classes, 64, generator=torch.Generator().manual_seed(classes)).double()
    return lambda z: (z.flatten(1) - centre) @ weight.T, weight


def near(centre: float, width: float, count: int = 12) -> Tensor:
    uniform = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(0)).double()
    return (centre + width * (uniform - 0.5)).clamp(0, 1)


def fooled(attack: FAB, model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        return model(attack(model, x, y)).argmax(1) != y


@every_norm
@both
@pytest.mark.parametrize("classes", [2, 5])
def test_on_a_linear_model_it_finds_what_lies_just_beyond_the_nearest_boundary(norm: str, targets: int, classes: int) -> None:
    model, weight = linear(classes)
    x = near(0.5, 1.0)
    y = model(x).argmax(1)
    slopes = (weight[y][:, None] - weight).norm(p=DUAL[norm], dim=2)
    margins = model(x).gather(1, y[:, None]) - model(x)
    reach = torch.where(slopes > 0, margins / slopes, torch.inf).amin(1)
    # Nearer to the centre, where all logits are equal, the margins shrink alike: all at the same reach, and far from the box.
    near_by = {"linf": 1e-4, "l2": 5e-4, "l1": 5e-4}[norm]
    x = 0.5 + (x - 0.5) * (near_by / reach).view(-1, 1, 1, 1)
    assert ((x > 0.1) & (x < 0.9)).all()
    assert fooled(FAB(Threat(norm, 1.01 * near_by), targets=targets), model, x, y).all()
    assert not fooled(FAB(Threat(norm, 0.98 * near_by), steps=30, targets=targets), model, x, y).any()


@every_norm
@both
def test_where_pixels_meet_the_box_the_others_go_further(norm: str, targets: int) -> None:
    model, weight = linear(2, centre=0.35)
    x = near(0.5, 1.6, count=4)
    y = model(x).argmax(1)
    difference = (weight[1] - weight[0]).repeat(len(x), 1)
    at_boundary = nearest(norm, x.flatten(1), difference, 0.35 * difference.sum(1))
    assert ((at_boundary % 1) == 0).any()
    reach = (at_boundary - x.flatten(1)).norm(p=ORDER[norm], dim=1)
    for image, label, distance in zip(x.split(1), y.split(1), reach.tolist(), strict=True):
        assert fooled(FAB(Threat(norm, 1.02 * distance), targets=targets), model, image, label)
        assert not fooled(FAB(Threat(norm, 0.999 * distance), steps=30, targets=targets), model, image, label)


@every_norm
@both
def test_examples_lie_in_the_ball_and_unbroken_images_come_back(
    norm: str, targets: int, trained_vit: Classifier, images: Batch
) -> None:
    x, y = images
    attack = FAB(Threat(norm, RADII[norm]), steps=10, targets=targets)
    x_adv = attack(trained_vit, x, y)
    with torch.no_grad():
        broken = trained_vit(x_adv).argmax(1) != y
    assert 0 < broken.sum() < len(x)
    assert attack.threat.contains(x_adv, x).all()
    assert torch.equal(x_adv[~broken], x[~broken])


@every_norm
@both
def test_an_example_does_not_depend_on_its_batch(norm: str, targets: int, trained_vit: Classifier, images: Batch) -> None:
    """In float64, where rounding in another batch size does not change the path."""
    model, x, y = trained_vit.double(), images[0].double(), images[1]
    attack = FAB(Threat(norm, RADII[norm]), steps=6, targets=min(targets, 3), restarts=2, seed=0)
    whole = attack(model, x, y)
    parts = torch.cat([attack(model, a, b) for a, b in zip(x.split(5), y.split(5), strict=True)])
    torch.testing.assert_close(whole, parts, rtol=0, atol=1e-7)


@pytest.mark.parametrize("classes", [2, 3])
def test_there_are_no_more_targets_than_other_classes(classes: int) -> None:
    model, _ = linear(classes)
    x = near(0.5, 0.04)
    y = model(x).argmax(1)
    asked = []
    for targets in (classes - 1, 9):
        ask = Queries(model)
        FAB(Threat("linf", 1e-6), steps=4, targets=targets)(ask, x, y)
        asked.append((ask.ledger.forward, ask.ledger.backward))
    assert asked[0] == asked[1] == (len(x) * (1 + 8 * (classes - 1)), len(x) * 4 * (classes - 1))


@both
def test_cost_is_what_an_unbroken_image_costs(targets: int, trained_vit: Classifier, images: Batch) -> None:
    x, y = images
    with torch.no_grad():
        right = trained_vit(x).argmax(1) == y
    attack, ask = FAB(Threat("linf", 1e-6), steps=2, targets=targets, restarts=2, seed=0), Queries(trained_vit)
    with attackable(trained_vit):
        attack.perturb(ask, x[right], y[right])
    assert ask.ledger.forward + ask.ledger.backward == attack.cost() * right.sum()


@every_norm
@both
def test_restarts_only_add_to_what_is_found(norm: str, targets: int, trained_vit: Classifier, images: Batch) -> None:
    x, y = images
    once = FAB(Threat(norm, RADII[norm]), steps=4, targets=min(targets, 2), seed=0)
    one, three = (fooled(replace(once, restarts=count), trained_vit, x, y) for count in (1, 3))
    assert not (one & ~three).any()


def test_a_restart_begins_away_from_a_point_without_gradient() -> None:
    """A model that is flat round each image holds up a run that starts there."""

    def flat_inside(z: Tensor) -> Tensor:
        far = ((z - 0.5).flatten(1).square().sum(1) - 0.2).clamp(min=0)
        return torch.stack([torch.ones_like(far), 2 * far], 1)

    x, y = torch.full((4, 1, 8, 8), 0.5), torch.zeros(4, dtype=torch.long)
    attack = FAB(Threat("l2", 1.0), seed=0)
    assert not fooled(attack, flat_inside, x, y).any()
    assert fooled(replace(attack, restarts=2), flat_inside, x, y).all()


def test_an_image_that_is_misclassified_costs_one_question(trained_vit: Classifier, images: Batch) -> None:
    x, _ = images
    with torch.no_grad():
        wrong = trained_vit(x).argmax(1).add(1) % 10
    ask = Queries(trained_vit)
    with attackable(trained_vit):
        x_adv = FAB(Threat("linf", 0.1), targets=9).perturb(ask, x, wrong)
    assert torch.equal(x_adv, x)
    assert (ask.ledger.forward, ask.ledger.backward) == (32, 16)


def test_the_least_margin_is_the_nearest_of_all_classes_whatever_the_micro_batch() -> None:
    model, weight = linear(5)
    x = near(0.5, 0.5)
    y = model(x).argmax(1)

    def distance(margin: Tensor, grad: Tensor) -> Tensor:
        return margin.abs() / grad.flatten(1).norm(dim=1)

    ask = Queries(model)
    whole = ask.least_margin(x, y, distance)
    assert (ask.ledger.forward, ask.ledger.backward) == (12, 60)
    ask.ledger.size = 5
    parts = ask.least_margin(x, y, distance)
    averaged = replace(ask, draws=3).least_margin(x, y, distance)
    margins = model(x) - model(x).gather(1, y[:, None])
    slopes = (weight - weight[y][:, None]).norm(dim=2)
    chosen = torch.where(slopes > 0, -margins / slopes, torch.inf).argmin(1)
    for ascent in (whole, parts, averaged):
        torch.testing.assert_close(ascent.loss, margins.gather(1, chosen[:, None])[:, 0])
        torch.testing.assert_close(ascent.grad.flatten(1), weight[chosen] - weight[y])
    torch.testing.assert_close(whole.logits, model(x))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, r"fab.steps: 0; accepted: 1 or more"),
        ({"targets": -1}, r"fab.targets: -1; accepted: 0 or more"),
        ({"restarts": 0}, r"fab.restarts: 0; accepted: 1 or more"),
        ({"alpha_max": 1.1}, r"fab.alpha_max: 1.1"),
        ({"eta": 0.9}, r"fab.eta: 0.9"),
        ({"beta": 0.0}, r"fab.beta: 0.0"),
    ],
)
def test_values_out_of_range_are_named(changes: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        FAB(Threat("linf", 0.1), **changes)


@pytest.fixture
def reference() -> ModuleType:
    return pytest.importorskip("pyautoattack.fab_pt")


@pytest.mark.slow
@every_norm
@pytest.mark.parametrize("targets", [0, 3], ids=["fab", "fab-t"])
def test_it_breaks_what_the_authors_implementation_breaks(
    norm: str, targets: int, trained_vit: Classifier, reference: ModuleType
) -> None:
    """At the median of the distances that theirs finds; ours may find more, as it also looks at the points stepped back to."""
    x, y = DataSpec("digits").load("test").batch(slice(0, 100))
    with torch.no_grad():
        right = trained_vit(x).argmax(1) == y
    x, y = x[right], y[right]
    distances = theirs(reference, trained_vit, x, y, norm, targets)
    eps = float(distances.median()) * 1.0001
    found = fooled(FAB(Threat(norm, eps), steps=20, targets=targets), trained_vit, x, y)
    missed, more = (~found & (distances <= eps)).sum(), (found & (distances > eps)).sum()
    # The paths are equal up to rounding, which seldom matters.
    assert missed <= 0.02 * len(x)
    assert more <= 0.05 * len(x)


def theirs(reference: ModuleType, model: Classifier, x: Tensor, y: Tensor, norm: str, targets: int) -> Tensor:
    """The least distance at which the authors' code fools the model, infinity where it does not."""
    names = {"linf": "Linf", "l2": "L2", "l1": "L1"}
    model = copy.deepcopy(model)  # their backward passes leave `.grad` on the parameters
    attack = reference.FABAttack_PT(model, norm=names[norm], n_iter=20, eps=10.0, device=x.device)
    best = torch.full((len(x),), torch.inf)
    for target in range(2, targets + 2) if targets else [None]:
        attack.target_class = target
        x_adv = attack.attack_single_run(x, y, is_targeted=target is not None)
        with torch.no_grad():
            broken = model(x_adv).argmax(1) != y
        best = torch.where(broken, torch.minimum(best, (x_adv - x).flatten(1).norm(p=ORDER[norm], dim=1)), best)
    return best
