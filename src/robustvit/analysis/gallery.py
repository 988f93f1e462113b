"""Perturbation galleries: image, change and changed image, for several models side by side."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from robustvit.analysis.base import Analysis, check_counts, check_step
from robustvit.analysis.finding import Finding
from robustvit.analysis.subjects import Subject
from robustvit.attacks import PGD
from robustvit.data import Images
from robustvit.progress import progress
from robustvit.threat import Threat


@dataclass(frozen=True, slots=True)
class Gallery(Analysis):
    """The first `count` images as PGD-100 leaves them, by each model (light recipe, figure 8).

    Perturbations are kept as they are: grey scale and contrast are a matter of display. The step is not stated.
    """

    name: ClassVar[str] = "gallery"
    alone: ClassVar[bool] = False
    threat: Threat
    steps: int = 100
    step: float = 1.5
    count: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(self, "steps", "count")
        check_step(self)

    def cost(self, images: int) -> tuple[int, int]:
        return min(self.count, images), self._attack.cost() + 2

    @property
    def _attack(self) -> PGD:
        return PGD(self.threat, steps=self.steps, step=self.step, seed=self.seed)

    def examine(self, subjects: list[Subject], images: Images) -> Finding:
        attack = self._attack
        shown = images.subset(slice(self.count))
        x, y = shown.batch(slice(None))
        rows, changed = [], []
        count, passes = self.cost(len(images))
        with progress(len(subjects) * count * passes, self.name, "model calls") as advance:
            for subject in subjects:
                ask, here = subject.ask(shown, advance), x.to(subject.device)
                x_adv = attack(ask, here, y.to(subject.device))
                before, after = (ask(each).argmax(1).tolist() for each in (here, x_adv))
                rows.append({"model": subject.name, "epoch": subject.epoch, "n": len(shown), "before": before, "after": after})
                changed.append(x_adv.cpu().numpy())
        data: dict[str, Any] = {"label": y.tolist(), "classes": images.classes, "models": rows}
        data["summary"] = [_line(subject, row, data["label"]) for subject, row in zip(subjects, rows, strict=True)]
        # attacked: [models, images, C, H, W]
        return Finding(self.name, data, {"image": x.cpu().numpy(), "attacked": np.stack(changed)})


def _line(subject: Subject, row: dict[str, Any], labels: list[int]) -> str:
    right, left = (sum(map(int.__eq__, row[when], labels)) for when in ("before", "after"))
    return f"{subject.label}: of {row['n']} images {right} are right before and {left} after the attack"
