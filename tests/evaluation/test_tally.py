"""How far an evaluation is, in model calls."""

from dataclasses import replace

import torch

from robustvit.attacks import APGD, FAB, PGD, WorstOf
from robustvit.evaluation.judge import Verdicts
from robustvit.evaluation.tally import Tally
from robustvit.threat import Threat

THREAT = Threat("linf", 0.1)
ATTACK = WorstOf((PGD(THREAT, steps=5, seed=0), APGD(THREAT, steps=10, seed=0), PGD(THREAT, steps=7, seed=0)))
COSTS = [stage.cost() for stage in ATTACK.stages]


def verdicts(standing: int, stages: int, n: int = 10) -> Verdicts:
    y = torch.zeros(n, dtype=torch.int64)
    attacked = (torch.arange(n) >= standing).long()
    return Verdicts(y, y, attacked, -torch.ones_like(y), torch.zeros(n, 1, 2, 2), [{}] * stages)


def test_what_an_earlier_try_did_is_shown_as_done() -> None:
    """After a resume: two of three stages are known, and four images still stand."""
    told: list[tuple[int, str, int]] = []
    tally = Tally(lambda calls, note, spared=0: told.append((calls, note, spared)), ATTACK, classes=10)
    tally.enter(10)
    tally.stage_done(verdicts(4, 2))
    assert [sum(column) for column in zip(*((c, s) for c, _, s in told), strict=True)] == [0, 10 * sum(COSTS) - 4 * COSTS[2]]
    assert told[-1][1] == "40.0% of 10 robust so far, pgd-7"
    tally.asked(3 * COSTS[2])
    tally.stage_done(verdicts(3, 3))
    tally.leave(verdicts(3, 3))
    assert sum(calls for calls, *_ in told) == 3 * COSTS[2]  # of which alone the rate is told
    assert sum(calls + spared for calls, _, spared in told) == 10 * sum(COSTS)


def test_an_attack_that_asks_for_each_class_is_reckoned_with_as_many_as_there_are() -> None:
    few, many = (FAB(THREAT, steps=3).cost(classes) for classes in (10, 1000))
    assert many == (1000 + 2) * 3
    assert few == (10 + 2) * 3
    assert replace(FAB(THREAT, steps=3), targets=9).cost(4) == 1 + 3 * 3 * 3  # of four classes three are others
