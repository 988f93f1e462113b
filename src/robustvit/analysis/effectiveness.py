"""Attack effectiveness: what a few steps leave of a strong attack's loss."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from robustvit.analysis.base import Analysis, check_counts, check_step
from robustvit.analysis.finding import Finding
from robustvit.analysis.subjects import Subject, loss_under
from robustvit.attacks import PGD, Attack, InPrecision
from robustvit.data import Images
from robustvit.precision import Precision
from robustvit.progress import progress
from robustvit.threat import Threat


@dataclass(frozen=True, slots=True)
class Effectiveness(Analysis):
    """How far k-step attacks fall short of a strong one, over training (light recipe, eq. 2, figures 7, 12 and 13).

    d_k = (L_O − L_k) / L_O, L being the mean cross-entropy over the images and L_O that of PGD with `oracle` steps. The figures
    have this sign; the equation as printed has the other. It is kept: an oracle that k steps beat shows as d_k < 0. All attacks
    of a seed start at the same point, with a step of `step`·eps/steps. The authors attacked in train mode because of a compiler
    bug; here it is eval mode.
    """

    name: ClassVar[str] = "effectiveness"
    threat: Threat
    steps: tuple[int, ...] = (1, 2, 5, 10)
    oracle: int = 200
    step: float = 1.5
    seeds: int = 3
    seed: int = 0
    precision: Precision = "fp32"  # of the attacks; their losses are compared in float32

    def __post_init__(self) -> None:
        check_counts(self, "steps", "oracle", "seeds")
        check_step(self)

    def cost(self, images: int) -> tuple[int, int]:
        return images, sum(attack.cost() + 1 for run in self._runs() for attack in run)

    def examine(self, subjects: list[Subject], images: Images) -> Finding:
        runs = self._runs()
        # [models, seeds, attacks (the oracle last), images]
        losses = np.empty((len(subjects), self.seeds, len(self.steps) + 1, len(images)), np.float32)
        count, passes = self.cost(len(images))
        with progress(len(subjects) * count * passes, self.name, "model calls") as advance:
            for subject, of_model in zip(subjects, losses, strict=True):
                ask = subject.ask(images, advance)
                for rows, x, y in subject.windows(images):
                    for run, of_seed in zip(runs, of_model, strict=True):
                        for attack, row in zip(run, of_seed, strict=True):
                            row[rows] = loss_under(attack, ask, x, y).cpu().numpy()
        models = [self._row(*each) for each in zip(subjects, losses, strict=True)]
        summary = [_line(*each) for each in zip(subjects, models, strict=True)]
        return Finding(self.name, {"summary": summary, "models": models}, {"loss": losses})

    def _runs(self) -> list[list[Attack]]:
        """Of each seed the attacks, the strong one last."""
        seeds = range(self.seed, self.seed + self.seeds)
        return [[self._attack(steps, seed) for steps in (*self.steps, self.oracle)] for seed in seeds]

    def _attack(self, steps: int, seed: int) -> Attack:
        return InPrecision(PGD(self.threat, steps=steps, step=self.step, seed=seed), self.precision)

    def _row(self, subject: Subject, losses: np.ndarray) -> dict[str, Any]:
        means = losses.mean(2, dtype=np.float64)
        attacks = []
        for number, steps in enumerate(self.steps):
            lags = [_lag(few, strong) for few, strong in zip(means[:, number], means[:, -1], strict=True)]
            known = [lag for lag in lags if lag is not None]
            attacks.append(
                {
                    "steps": steps,
                    "loss": means[:, number].tolist(),
                    "difference": lags,
                    "mean": float(np.mean(known)) if known else None,
                    "std": float(np.std(known, ddof=1)) if len(known) > 1 else None,
                    "median_of_images": [_median(of_seed[number], of_seed[-1]) for of_seed in losses],
                }
            )
        oracle = {"steps": self.oracle, "loss": means[:, -1].tolist()}
        return {"model": subject.name, "epoch": subject.epoch, "n": losses.shape[-1], "oracle": oracle, "attacks": attacks}


def _lag(few: float, strong: float) -> float | None:
    """None where even the strong attack has no loss, so that nothing can be compared with it."""
    return float((strong - few) / strong) if strong > 0 else None


def _median(few: np.ndarray, strong: np.ndarray) -> float | None:
    """Over the images on which the strong attack has a loss."""
    compared = strong > 0
    lags = (strong[compared].astype(np.float64) - few[compared]) / strong[compared]
    return float(np.median(lags)) if compared.any() else None


def _line(subject: Subject, row: dict[str, Any]) -> str:
    parts = []
    for attack in row["attacks"]:
        spread = f" ± {attack['std']:.2%}" if attack["std"] is not None else ""
        parts.append(f"d_{attack['steps']} " + ("unknown" if attack["mean"] is None else f"{attack['mean']:.2%}{spread}"))
    return f"{subject.label}: {', '.join(parts)} (n = {row['n']})"
