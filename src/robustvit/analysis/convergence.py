"""Loss convergence: do attacks of more steps, and from other starts, end at the same loss?"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from robustvit.analysis.base import Analysis, check_counts, check_step
from robustvit.analysis.finding import Finding
from robustvit.analysis.subjects import Subject, loss_under
from robustvit.attacks import PGD, Queries
from robustvit.attacks.query import Ascent
from robustvit.data import Images
from robustvit.progress import progress
from robustvit.threat import Threat

NEAR = 0.01  # of its largest loss: a run that came so close has converged
MOMENTS = 60  # of a long run at which the loss of each image and start is kept; few early steps matter, and few late ones


@dataclass(frozen=True)
class Recorded(Queries):
    """Queries that keep the loss at every gradient: an attack's way up, without the attack knowing."""

    losses: list[Tensor] = field(default_factory=list)

    def gradient(self, x: Tensor, loss: Any, *aligned: Tensor) -> Ascent:
        ascent = super().gradient(x, loss, *aligned)
        self.losses.append(ascent.loss)
        return ascent


@dataclass(frozen=True, slots=True)
class Convergence(Analysis):
    """Final loss against the number of steps, and loss at every step of a long run (light recipe, figures 5, 6 and 14–17).

    On the first `points` images (all, where there are fewer), from `restarts` random starts each: separate runs of each of
    `steps`, stepping by `step`·eps/steps, and one of `long_steps` with the large step of `long_step`·eps (its size is not
    stated). Of the long run the mean loss is told at every step, that of each image and start at some (`moments`).
    """

    name: ClassVar[str] = "convergence"
    threat: Threat
    steps: tuple[int, ...] = (1, 5, 10, 50, 100, 200, 500)
    step: float = 1.5
    long_steps: int = 500
    long_step: float = 0.25
    points: int = 32
    restarts: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(self, "steps", "long_steps", "points", "restarts")
        check_step(self)
        check_step(self, "long_step")

    def cost(self, images: int) -> tuple[int, int]:
        return min(self.points, images) * self.restarts, sum(attack.cost() + 1 for attack in (*self._separate, self._long))

    @property
    def _separate(self) -> list[PGD]:
        return [PGD(self.threat, steps=steps, step=self.step) for steps in self.steps]

    @property
    def _long(self) -> PGD:
        return PGD(self.threat, steps=self.long_steps, step=self.long_step, step_unit="eps")

    def examine(self, subjects: list[Subject], images: Images) -> Finding:
        points = images.subset(slice(self.points))
        count, passes = self.cost(len(images))
        final, path = [], []
        with progress(len(subjects) * count * passes, self.name, "model calls") as advance:
            for subject in subjects:
                x, y = (part.to(subject.device).repeat_interleave(self.restarts, 0) for part in points.batch(slice(None)))
                ask = subject.ask(points, advance)
                final.append(self._by_point([self._final_loss(attack, ask, x, y) for attack in self._separate]))
                path.append(self._by_point(self._losses_on_the_way(self._long, ask, x, y)))
        rows = [self._row(*each) for each in zip(subjects, final, path, strict=True)]
        moments = np.unique(np.geomspace(1, self.long_steps + 1, MOMENTS).round().astype(int)) - 1
        if self.long_steps < MOMENTS:
            moments = np.arange(self.long_steps + 1)
        summary = [_line(*each) for each in zip(subjects, rows, strict=True)]
        data = {"summary": summary, "models": rows, "moments": moments.tolist()}
        # [models, points, restarts, attacks] and [models, points, restarts, moments]
        return Finding(self.name, data, {"final": np.stack(final), "path": np.stack(path)[..., moments]})

    def _final_loss(self, attack: PGD, ask: Queries, x: Tensor, y: Tensor) -> Tensor:
        # All starts of an image at once. Seeded noise follows from the image and would be the same for each of them, so the
        # attacks draw from torch's generator; all of them the same.
        torch.manual_seed(self.seed)
        return loss_under(attack, ask, x, y)

    def _losses_on_the_way(self, attack: PGD, ask: Queries, x: Tensor, y: Tensor) -> list[Tensor]:
        """At the start and after every step."""
        recorded = Recorded(ask.model, ask.precision, ledger=ask.ledger)
        last = self._final_loss(attack, recorded, x, y)
        return [*recorded.losses, last]

    def _by_point(self, losses: list[Tensor]) -> np.ndarray:
        return torch.stack(losses, 1).view(-1, self.restarts, len(losses)).cpu().numpy()

    def _row(self, subject: Subject, final: np.ndarray, path: np.ndarray) -> dict[str, Any]:
        near = path >= (1 - NEAR) * path.max(2, keepdims=True)
        return {
            "model": subject.name,
            "epoch": subject.epoch,
            "n": len(final),
            "restarts": self.restarts,
            "attacks": [
                {
                    "steps": steps,
                    "loss": float(final[:, :, i].mean(dtype=np.float64)),
                    # Between the starts of a point: the largest minus the smallest loss, on average over the points.
                    "spread": float(np.ptp(final[:, :, i], axis=1).mean(dtype=np.float64)),
                }
                for i, steps in enumerate(self.steps)
            ],
            "path": path.mean((0, 1), dtype=np.float64).tolist(),
            "steps_until_near": float(np.median(near.argmax(2))),
        }


def _line(subject: Subject, row: dict[str, Any]) -> str:
    first, last = row["attacks"][0], row["attacks"][-1]
    return (
        f"{subject.label}: loss {first['loss']:.4g} under PGD-{first['steps']}, {last['loss']:.4g} under PGD-{last['steps']}, "
        f"where {row['restarts']} starts lie {last['spread']:.2g} apart; with the large step within {NEAR:.0%} of the largest "
        f"loss after {row['steps_until_near']:.0f} steps in the median (n = {row['n']})"
    )
