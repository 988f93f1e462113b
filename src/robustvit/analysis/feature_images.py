"""Targeted feature images: what a model wants to see of a class, climbed to from noise."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from robustvit.analysis.base import Analysis, check_counts, check_step
from robustvit.analysis.finding import Finding
from robustvit.analysis.subjects import Subject, loss_at
from robustvit.attacks import PGD
from robustvit.data import Images
from robustvit.errors import UserError
from robustvit.progress import progress
from robustvit.threat import Threat

BALL = Threat("l2", 15.0)


@dataclass(frozen=True, slots=True)
class FeatureImages(Analysis):
    """Targeted PGD-100 from U[0, 1] noise to a class (light recipe, figure 18): robust models draw it, others hide it in noise.

    The paper's ε of 15 has no norm: by default ℓ2 within the box, about the noise. The other readings are `linf` with 15/255,
    and with 1, where only the box bounds. The step is not stated. `targets` are classes, by default `count` random ones. Models
    share noise and classes; of the images only shape and class names matter.
    """

    name: ClassVar[str] = "feature_images"
    alone: ClassVar[bool] = False
    threat: Threat = BALL
    steps: int = 100
    step: float = 2.5
    targets: tuple[int, ...] = ()
    count: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(self, "steps", "count")
        check_step(self)

    def cost(self, images: int) -> tuple[int, int]:
        return len(self.targets) or self.count, self._attack.cost() + 2

    @property
    def _attack(self) -> PGD:
        return PGD(self.threat, steps=self.steps, step=self.step, random_start=False, targeted=True)

    def examine(self, subjects: list[Subject], images: Images) -> Finding:
        attack = self._attack
        generator = torch.Generator().manual_seed(self.seed)
        targets = self._targets(subjects, images, generator)
        start = torch.rand(len(targets), *images.shape, generator=generator)
        count, passes = self.cost(len(images))
        rows, made = [], []
        with progress(len(subjects) * count * passes, self.name, "model calls") as advance:
            for subject in subjects:
                ask = subject.ask(images, advance)
                x, y = start.to(subject.device), targets.to(subject.device)
                x_adv = attack(ask, x, y)
                confidence = (-loss_at(ask, x_adv, y)).exp()
                rows.append(
                    {
                        "model": subject.name,
                        "epoch": subject.epoch,
                        "n": len(targets),
                        "prediction": ask(x_adv).argmax(1).tolist(),
                        "confidence": confidence.tolist(),
                        "distance": self.threat.distance(x_adv, x).tolist(),
                    }
                )
                made.append(x_adv.cpu().numpy())
        classes = [images.classes[target] if images.classes else str(target) for target in targets.tolist()]
        data: dict[str, Any] = {"targets": targets.tolist(), "classes": classes, "models": rows}
        data["summary"] = [_line(subject, row, data["targets"]) for subject, row in zip(subjects, rows, strict=True)]
        # image: [models, targets, C, H, W]
        return Finding(self.name, data, {"start": start.numpy(), "image": np.stack(made)})

    def _targets(self, subjects: list[Subject], images: Images, generator: torch.Generator) -> Tensor:
        """Classes that all models have, each once before any comes twice."""
        answers = [subject.model(images.batch(slice(1))[0].to(subject.device)) for subject in subjects]
        known = min(logits.shape[1] for logits in answers)
        if not self.targets:
            return torch.randperm(known, generator=generator)[torch.arange(self.count) % known]
        if min(self.targets) < 0 or max(self.targets) >= known:
            raise UserError(f"feature_images.targets: {list(self.targets)}; accepted: classes 0 to {known - 1}")
        return torch.tensor(self.targets)


def _line(subject: Subject, row: dict[str, Any], targets: list[int]) -> str:
    reached = sum(prediction == target for prediction, target in zip(row["prediction"], targets, strict=True))
    return (
        f"{subject.label}: {reached} of {row['n']} images reach their class, with a mean confidence of "
        f"{np.mean(row['confidence']):.1%}"
    )
