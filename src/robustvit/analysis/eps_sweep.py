"""The eps sweep: under a reliable attack accuracy falls with every eps, and in the end to 0."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from robustvit.analysis.base import Analysis
from robustvit.analysis.finding import Finding
from robustvit.analysis.subjects import Subject, judged, passes
from robustvit.attacks import Attack, autoattack
from robustvit.data import Images
from robustvit.errors import UserError
from robustvit.evaluation import Outcome
from robustvit.evaluation.suites import Suite
from robustvit.threat import Threat


@dataclass(frozen=True, slots=True)
class EpsSweep(Analysis):
    """Accuracy against eps under AutoAttack, with what stands after each of its stages (light recipe, figure 3, section IV-A).

    At `factors` times eps, as far as a pixel's range goes; another `attack` than AutoAttack must be of the same threat. Whether
    accuracy falls without exception, and to 0, is reported; so are images that a larger eps left standing although a smaller
    one had broken them: each is an example that the attack at the larger eps missed.
    """

    name: ClassVar[str] = "eps_sweep"
    threat: Threat
    factors: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
    attack: Attack | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.factors or min(self.factors) <= 0 or list(self.factors) != sorted(set(self.factors)):
            raise UserError(f"eps_sweep.factors: {list(self.factors)}; accepted: rising numbers above 0")
        if self.attack is not None and self.attack.threat != self.threat:
            raise UserError(f"eps_sweep.attack: is for {self.attack.threat}; accepted: the analysis' own threat, {self.threat}")

    @property
    def suite(self) -> Suite:
        attack = self.attack or autoattack(self.threat, seed=self.seed)
        reachable = [f for f in self.factors if self.threat.norm != "linf" or self.threat.eps * f <= 1]
        return [None, *(attack.scaled(factor) for factor in reachable)]

    def cost(self, images: int) -> tuple[int, int]:
        return images, round(sum(passes(attack) if attack else 1 for attack in self.suite))

    def examine(self, subjects: list[Subject], images: Images) -> Finding:
        suite = self.suite
        rows, correct = [], []
        for subject in subjects:
            outcomes = judged(subject, images, suite)
            rows.append(_row(subject, outcomes))
            correct.append(np.stack([outcome.correct for outcome in outcomes]))
        attack = (self.attack or autoattack(self.threat)).name
        data = {"summary": [_line(*each) for each in zip(subjects, rows, strict=True)], "attack": attack, "models": rows}
        # [models, points (clean first), images]
        return Finding(self.name, data, {"correct": np.stack(correct)})


def _row(subject: Subject, outcomes: list[Outcome]) -> dict[str, Any]:
    points = [{"eps": o.eps, **o.summary, "stages": standing(o)} for o in outcomes]
    numbers = [point["correct"] for point in points]
    revived = np.logical_or.reduce([~smaller.correct & larger.correct for smaller, larger in pairwise(outcomes)])
    return {
        "model": subject.name,
        "epoch": subject.epoch,
        "n": outcomes[0].n,
        "points": points,
        "falls_monotonically": all(smaller >= larger for smaller, larger in pairwise(numbers)),
        "reaches_zero": numbers[-1] == 0,
        "broken_by_less": int(revived.sum()),
    }


def standing(outcome: Outcome) -> list[dict[str, Any]]:
    """Images that are still right after each stage of the attack."""
    return [{"name": s["name"], "standing": s["entered"] - s["broken"]} for s in outcome.provenance["stages"]]


def _line(subject: Subject, row: dict[str, Any]) -> str:
    accuracies = ", ".join(f"{point['accuracy']:.1%} at {point['eps']:.4g}" for point in row["points"])
    falls = "falls monotonically" if row["falls_monotonically"] else "DOES NOT FALL monotonically"
    ends = "reaches 0" if row["reaches_zero"] else "does not reach 0"
    missed = f", {row['broken_by_less']} images stand that a smaller eps had broken" if row["broken_by_less"] else ""
    return f"{subject.label}: {accuracies}; {falls}, {ends}{missed} (n = {row['n']})"
