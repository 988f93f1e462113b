"""What an estimate counts: trainings that are left, judging and analyses, by so many jobs at a time."""

from dataclasses import replace
from pathlib import Path

import pytest

from robustvit.papers import ARTEFACTS, find_artefacts
from robustvit.papers.estimate import estimate
from robustvit.papers.grid import Grid
from robustvit.papers.scales import PAPER, SMALL, TINY
from robustvit.papers.work import Work, together


def of(name: str):
    (artefact,) = find_artefacts(f"light-recipe/{name}")
    return artefact


def test_the_estimate_counts_what_is_left(grid: Grid, results: Path) -> None:
    artefact = of("table-2d")
    slow = replace(grid, scale=replace(grid.scale, flops=1e6, exact_flops=1e6), folder=results)
    before = estimate([artefact], slow)
    assert len(before.trainings) == 7
    assert before.hours > before.judging > 0
    doubled = estimate([artefact, artefact], slow)
    assert len(doubled.trainings) == 7  # shared
    text = "\n".join(before.lines())
    assert "1 × imagenet100-warmup-20-light-decay-0.5, xcit_mini" in text
    beside = estimate([artefact], slow, jobs=7)
    assert beside.hours == pytest.approx(before.hours)  # one device that computes all the time
    assert "training, 7 at a time: about" in "\n".join(beside.lines())
    calling = replace(slow, scale=replace(slow.scale, flops=1e12, exact_flops=1e12, overhead=10.0, exact_overhead=10.0))
    assert estimate([artefact], calling, jobs=7).hours == pytest.approx(estimate([artefact], calling).hours / 7)


def test_analyses_are_counted() -> None:
    found = estimate([of("figure-7")], Grid(PAPER, Path("nowhere"), {}))
    # Four models at eleven epochs of XCiT-S12's 4.8 G multiply–adds or about: 50,000 images, three seeds, 436 passes and five
    # more of each attack for its loss; at the scale's 40 TFLOP/s.
    per_model = 2 * 4.8e9 * 50_000 * 3 * 441 / PAPER.exact_flops / 3600
    assert found.looking == pytest.approx(44 * per_model, rel=0.15)
    assert found.judging == 0
    assert "analyses: about" in found.lines()[-2]


def test_the_papers_scale_says_hours_before_it_starts() -> None:
    found = estimate([of("table-4a")], Grid(PAPER, Path("nowhere"), {}))
    # XCiT-S12 for 110 epochs of 1.28M images at 5 passes of 4.8 G multiply–adds each and 100 TFLOP/s: 19 hours a model.
    (hours,) = {round(hours) for _, hours in found.trainings}
    assert 15 < hours < 25


def test_rows_that_are_left_out_cost_nothing() -> None:
    table = of("table-7b")
    without = replace(table, rows=tuple(row for row in table.rows if "WideResNet" not in row.label))
    grid = Grid(SMALL, Path("nowhere"), {})
    assert estimate([table], grid).hours == estimate([without], grid).hours


@pytest.mark.parametrize("artefact", ARTEFACTS.values(), ids=list(ARTEFACTS))
@pytest.mark.parametrize(("scale", "jobs", "minutes"), [(TINY, 1, 2), (SMALL, 8, 10)], ids=["tiny", "small"])
def test_no_artefact_takes_longer_than_its_scale_promises(artefact, scale, jobs: int, minutes: float) -> None:
    assert 60 * estimate([artefact], Grid(scale, Path("nowhere"), {}), jobs=jobs).hours <= minutes


def test_jobs_beside_each_other_overlap_their_calls_and_queue_for_the_device() -> None:
    calling, computing = [Work(1, 4)] * 4, [Work(4, 1)] * 4
    assert together([], 4) == 0
    assert together(calling, 1) == 16
    assert together(calling, 2) == 8
    assert together(calling, 3) == 8  # one of them has two to do
    assert together(calling, 8) == 4
    assert together(computing, 1) == together(computing, 8) == 16
