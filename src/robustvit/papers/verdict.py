"""Verdicts: did the paper's ordering hold? Where seeds or images do not separate, nobody knows, and it says so."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

HELD, FAILED, OPEN = "held", "did not hold", "inconclusive"
SEEDS = 3  # trainings of each side below which no ordering of trainings is believed
LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class Numbers:
    """A cell's values, one a seed, and what each image gave (where an image has a value of its own)."""

    values: tuple[float, ...]
    images: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    text: str
    why: str


def judge(larger: Numbers | None, smaller: Numbers | None, training: bool) -> Verdict:
    """Of two cells of which the first is said to be the larger; `training` if what differs has been trained.

    Seeds separate if all values of one side lie above all of the other, of three seeds at least. Where no training is
    compared, the same images under both, tested in pairs, may separate too: then in every seed.
    """
    if larger is None or smaller is None or not larger.values or not smaller.values:
        return Verdict(OPEN, "a side was left out")
    n = min(len(larger.values), len(smaller.values))
    if n >= SEEDS and (order := _separated(larger.values, smaller.values)):
        return Verdict(HELD if order > 0 else FAILED, f"{n} seeds separate")
    if not training and larger.images and [len(each) for each in larger.images] == [len(each) for each in smaller.images]:
        return _paired(larger.images, smaller.images)
    return Verdict(OPEN, f"{n} seeds overlap" if n >= SEEDS else _too_few(n))


def within(numbers: Numbers | None, at_least: float, at_most: float) -> Verdict:
    """Of one cell that is said to lie within limits: believed if all of three seeds at least do, or none."""
    if numbers is None or not numbers.values:
        return Verdict(OPEN, "left out")
    values = numbers.values
    inside = sum(at_least <= value <= at_most for value in values)
    if len(values) < SEEDS:
        return Verdict(OPEN, _too_few(len(values)))
    why = f"{inside} of {len(values)} seeds"
    return Verdict(HELD if inside == len(values) else FAILED if inside == 0 else OPEN, why)


def _too_few(seeds: int) -> str:
    return f"{seeds} seed{'s' if seeds > 1 else ''}; {SEEDS} are needed"


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Of an artefact: one ordering that did not hold decides, and one that is open leaves it open."""
    if not verdicts:
        return Verdict("no ordering claimed", "the paper shows it to be looked at")
    counts = {text: sum(verdict.text == text for verdict in verdicts) for text in (HELD, FAILED, OPEN)}
    text = FAILED if counts[FAILED] else OPEN if counts[OPEN] else HELD
    why = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return Verdict(text, f"of {len(verdicts)} ordering{'s' if len(verdicts) > 1 else ''}: {why}")


def _separated(larger: Sequence[float], smaller: Sequence[float]) -> int:
    return (min(larger) > max(smaller)) - (max(larger) < min(smaller))


def _paired(larger: Sequence[np.ndarray], smaller: Sequence[np.ndarray]) -> Verdict:
    wins = [(int((a > b).sum()), int((b > a).sum())) for a, b in zip(larger, smaller, strict=True)]
    worst = max(mcnemar(*each) for each in wins)
    counts = ", ".join(f"{more} : {less}" for more, less in wins)
    why = f"images that differ {counts}, exact McNemar test p = {worst:.2g}"
    directions = {more > less for more, less in wins}
    if worst >= LEVEL or len(directions) > 1:
        return Verdict(OPEN, why)
    return Verdict(HELD if directions == {True} else FAILED, why)


def mcnemar(one: int, other: int) -> float:
    """The exact two-sided p of so many discordant pairs either way: a fair coin's (McNemar, 1947)."""
    n = one + other
    tail = sum(comb(n, k) for k in range(min(one, other) + 1))
    return min(1.0, tail / 2 ** (n - 1)) if n else 1.0
