"""Broken images leave at once, and only for good reason."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from robustvit.attacks import APGD, FAB, GAMA, Attack, InPrecision, Queries
from robustvit.attacks.window import Window
from robustvit.models import Classifier
from robustvit.threat import Threat

Y = torch.tensor([0, 1, 0, 1])


def answers(*classes: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(classes), 2).float()


def window(ask: Queries | None = None) -> Window:
    return Window(ask or Queries(lambda x: answers(*[0] * len(x))), torch.zeros(4, 1, 2, 2), Y)


def test_fooled_images_leave_with_their_example_and_the_rest_is_packed() -> None:
    w = window()
    tried = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 1, 2, 2)
    stay = w.claim(tried, answers(1, 1, 0, 0))
    assert stay.tolist() == [1, 2]
    assert w.place.tolist() == [1, 2]
    assert w.y.tolist() == [1, 0]
    assert w.claim(tried[stay] + 10, answers(1, 1)).tolist() == [0]
    w.settle(torch.full((1, 1, 2, 2), 7.0))
    assert w.result[:, 0, 0, 0].tolist() == [0, 7, 12, 3]


def test_nothing_changes_while_all_stand() -> None:
    w = window()
    assert w.claim(torch.ones(4, 1, 2, 2), answers(0, 1, 0, 1)) is None
    assert torch.equal(w.result, w.x)


def test_examples_that_are_not_eligible_do_not_count() -> None:
    w = window()
    stay = w.claim(torch.ones(4, 1, 2, 2), answers(1, 0, 1, 0), eligible=torch.tensor([True, False, False, True]))
    assert stay.tolist() == [1, 2]


def test_what_an_approximate_answer_claims_is_asked_again() -> None:
    """The low-precision answers say all are fooled; the exact model fools only the third."""
    exact = Queries(lambda x: torch.where(x[:, 0, 0, :1] == 2, answers(1), answers(0)), precision="bf16")
    w = Window(exact, torch.zeros(3, 1, 2, 2), torch.zeros(3, dtype=torch.long))
    tried = torch.arange(3.0).view(3, 1, 1, 1).expand(3, 1, 2, 2)
    assert w.claim(tried, answers(1, 1, 1)).tolist() == [0, 1]


def test_an_attack_asks_no_more_about_images_that_fell() -> None:
    """A linear model that some images leave at the first step; the rest are too far from the boundary."""
    sizes = []

    def model(x: Tensor) -> Tensor:
        sizes.append(len(x))
        score = x.flatten(1).sum(1) - 32
        return torch.stack([score, -score], 1)

    x = torch.full((6, 1, 8, 8), 0.9)
    x[::2] = 0.51
    for attack in (APGD(Threat("linf", 0.05), seed=0), GAMA(Threat("linf", 0.05), seed=0)):
        sizes.clear()
        attack(model, x, torch.zeros(6, dtype=torch.long))
        assert sizes[0] == 6
        assert set(sizes[3:]) == {3}


def test_a_low_precision_attack_reports_only_what_holds_exactly() -> None:
    """Every bf16 answer is wrong here, no exact one: no image may leave."""
    seen = []

    def model(x: Tensor) -> Tensor:
        low = torch.is_autocast_enabled("cpu")
        seen.append(low)
        score = x.flatten(1).sum(1, keepdim=True) * 0 + (-1.0 if low else 1.0)
        return torch.cat([score, -score], 1)

    x, y = torch.rand(2, 1, 4, 4), torch.zeros(2, dtype=torch.long)
    x_adv = InPrecision(APGD(Threat("linf", 0.1), steps=5, seed=0), "bf16")(model, x, y)
    assert Queries(model)(x_adv).argmax(1).tolist() == [0, 0]
    assert any(seen)
    assert not all(seen)


def test_an_image_leaves_all_runs_with_the_first_that_fools_the_model() -> None:
    ask = Queries(lambda x: answers(*[0] * len(x)), busy=4 * 2 * 2 * 2)
    w = Window(ask, torch.zeros(4, 1, 2, 2), Y)
    runs = w.in_turn(3)
    next(runs)
    assert w.place.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert w.run.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    tried = torch.arange(8.0).view(8, 1, 1, 1).expand(8, 1, 2, 2)
    # Image 1 falls in both runs, image 2 in the second.
    stay = w.claim(tried, answers(0, 0, 0, 1, 0, 0, 1, 1))
    assert stay.tolist() == [0, 3, 4, 7]
    assert w.result[:, 0, 0, 0].tolist() == [0, 1, 6, 0]
    w.settle(tried[stay] + 10)
    assert w.result[:, 0, 0, 0].tolist() == [10, 1, 6, 13]
    next(runs)  # two stand, so the third run is alone
    assert (w.place.tolist(), w.run.tolist()) == ([0, 3], [2, 2])
    assert next(runs, "no more") == "no more"


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize(
    "make",
    [
        lambda threat: APGD(threat, loss="targeted_dlr", steps=20, targets=5, seed=0),
        lambda threat: FAB(threat, steps=10, targets=3, restarts=2, seed=0),
    ],
    ids=["apgd-t", "fab-t"],
)
def test_runs_made_at_once_find_what_they_find_one_after_the_other(
    make: Callable[[Threat], Attack], norm: str, trained_vit: Classifier, images: tuple[Tensor, Tensor]
) -> None:
    x, y = images
    asked, fooled = [], []
    for busy in (1, 10**9):
        ask = Queries(trained_vit, busy=busy)
        times = 0

        def watch(calls: int) -> None:
            nonlocal times
            times += 1

        ask.ledger.watch = watch
        x_adv = make(Threat(norm, {"linf": 0.06, "l2": 0.3, "l1": 0.4}[norm]))(ask, x, y)
        asked.append(times)
        fooled.append((trained_vit(x_adv).argmax(1) != y).tolist())
    assert fooled[0] == fooled[1]
    assert 0 < sum(fooled[0]) < len(y)
    assert asked[1] < asked[0] / 2
