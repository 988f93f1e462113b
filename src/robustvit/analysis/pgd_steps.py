"""The table of PGD steps: accuracy gently plateaus as steps are added."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from robustvit.analysis.base import Analysis, check_counts, check_step
from robustvit.analysis.finding import Finding
from robustvit.analysis.subjects import Subject, judged
from robustvit.attacks import PGD
from robustvit.data import Images
from robustvit.evaluation.suites import Suite
from robustvit.threat import Threat


@dataclass(frozen=True, slots=True)
class PGDSteps(Analysis):
    """Accuracy under PGD of more and more steps (light recipe, table 10, which says 8/255 and holds models of 4/255).

    A step is `step`·eps/steps.
    """

    name: ClassVar[str] = "pgd_steps"
    threat: Threat
    steps: tuple[int, ...] = (5, 10, 50, 100)
    step: float = 1.5
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(self, "steps")
        check_step(self)

    @property
    def suite(self) -> Suite:
        return [None, *(PGD(self.threat, steps=steps, step=self.step, seed=self.seed) for steps in self.steps)]

    def cost(self, images: int) -> tuple[int, int]:
        return images, sum(attack.cost() + 1 if attack else 1 for attack in self.suite)

    def examine(self, subjects: list[Subject], images: Images) -> Finding:
        rows, correct = [], []
        for subject in subjects:
            clean, *attacked = judged(subject, images, self.suite)
            of_steps = [{"steps": steps, **outcome.summary} for steps, outcome in zip(self.steps, attacked, strict=True)]
            row = {"model": subject.name, "epoch": subject.epoch, "n": clean.n, "clean": clean.summary, "attacks": of_steps}
            rows.append(row)
            correct.append(np.stack([outcome.correct for outcome in (clean, *attacked)]))
        data = {"summary": [_line(*each) for each in zip(subjects, rows, strict=True)], "models": rows}
        # [models, attacks (clean first), images]
        return Finding(self.name, data, {"correct": np.stack(correct)})


def _line(subject: Subject, row: dict[str, Any]) -> str:
    attacked = ", ".join(f"PGD-{each['steps']} {each['accuracy']:.2%}" for each in row["attacks"])
    return f"{subject.label}: clean {row['clean']['accuracy']:.2%}, {attacked} (n = {row['n']})"
