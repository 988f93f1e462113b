"""Schedules, phases and the calendar of a run."""

from dataclasses import replace

import pytest
import torch

from robustvit.attacks import PGD
from robustvit.config import override
from robustvit.errors import UserError
from robustvit.objectives import PGDAT, Standard
from robustvit.recipes import RECIPES
from robustvit.threat import Threat
from robustvit.training.loop import Calendar
from robustvit.training.schedule import Constant, Cosine, Linear, Phase, Progress, Steps


def at(epoch: float, total: int = 20) -> Progress:
    return Progress(step=0, epoch=epoch, total_epochs=total)


def test_steps_warm_up_and_fall_by_a_factor_at_each_epoch() -> None:
    schedule = Steps((2, 3), factor=0.1, warmup=1, start=0.5)
    at = [schedule(Progress(0, epoch, 4)) for epoch in (0, 0.5, 1, 1.9, 2, 3, 3.9)]
    assert at == pytest.approx([0.5, 0.75, 1, 1, 0.1, 0.01, 0.01])
    with pytest.raises(UserError, match=r"steps\.at: \[3, 2\]; accepted: rising"):
        Steps((3, 2))


def test_cosine_peaks_exactly_where_the_warm_up_ends():
    schedule = Cosine(warmup=5, start=0.01)
    assert schedule(at(0)) == 0.01
    assert schedule(at(5)) == 1.0
    assert max(schedule(at(step / 10)) for step in range(200)) == 1.0


def test_cosine_falls_to_its_floor_and_stays_there_while_it_cools_down():
    schedule = Cosine(warmup=2, cooldown=4, floor=0.1)
    assert schedule(at(9)) == pytest.approx(0.55)  # half way between 2 and 16
    falling = [schedule(at(2 + step / 10)) for step in range(140)]
    assert falling == sorted(falling, reverse=True)
    assert all(schedule(at(epoch)) == pytest.approx(0.1) for epoch in (16, 18, 19.9))


def test_cosine_without_room_for_a_cosine_is_still_defined():
    assert Cosine(warmup=3, cooldown=3, floor=0.2)(at(4, total=5)) == pytest.approx(0.2)


def test_linear_rises_a_little_at_every_iteration():
    schedule = Linear(epochs=2)
    values = [schedule(at(step / 5)) for step in range(15)]
    assert values[:11] == pytest.approx([step / 10 for step in range(11)])
    assert values[10:] == [1.0] * 5
    assert Linear(epochs=0)(at(0)) == Constant()(at(0)) == 1.0


def test_phase_scales_eps_and_absolute_steps_alike():
    adversary = PGD(Threat("linf", 0.1), step=0.02, step_unit="absolute")
    now = Phase(PGDAT(adversary), epochs=20, eps=Linear(10)).at(at(2.5)).adversary
    assert now.threat.eps == pytest.approx(0.025)
    assert now.step_size == pytest.approx(0.005)
    relative = Phase(PGDAT(PGD(Threat("linf", 0.1), steps=10)), epochs=20, eps=Linear(10)).at(at(2.5)).adversary
    assert relative.step_size == pytest.approx(2.5 * 0.025 / 10)


def test_trainable_pattern_that_matches_nothing_is_refused(tiny_vit):
    with pytest.raises(UserError, match=r"trainable 'haed\*': did you mean 'head'.*patch_embed"):
        Phase(Standard(), epochs=1, trainable="haed*").select_parameters(tiny_vit)


def test_calendar_uses_every_image_at_most_once_an_epoch_in_a_new_order():
    recipe = override(RECIPES["digits-standard"](), ["batch_size=10", "phases.0.epochs=2"])
    calendar = Calendar(recipe, images=47)
    first, second = (torch.cat([calendar.batch(step) for step in steps]) for steps in (range(4), range(4, 8)))
    assert calendar.end(0) == 8
    assert len(first.unique()) == len(second.unique()) == 40
    assert not torch.equal(first, second)


def test_each_phase_begins_its_own_progress():
    recipe = replace(RECIPES["digits-standard"](), batch_size=10, phases=(Phase(Standard(), 2), Phase(Standard(), 3)))
    calendar = Calendar(recipe, images=47)
    assert calendar.progress(0, 6) == Progress(6, 1.5, 2)
    assert calendar.progress(1, 8) == Progress(8, 0.0, 3)
    assert calendar.end(1) == 20


def test_batch_larger_than_the_set_is_refused():
    with pytest.raises(UserError, match=r"batch_size: 64.*at most 47"):
        Calendar(RECIPES["digits-standard"](), images=47)
