"""Semantic perturbations: is the change alone an image of the class that it tries to hide?"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from robustvit.analysis.base import Analysis, check_counts, check_step
from robustvit.analysis.finding import Finding
from robustvit.analysis.subjects import Subject
from robustvit.attacks import PGD, Queries
from robustvit.data import Images
from robustvit.errors import UserError, unknown
from robustvit.evaluation.outcome import wilson
from robustvit.progress import progress
from robustvit.threat import Threat

SIGNS = {"negative": -1.0, "positive": 1.0}
SHOWN = 8  # images whose perturbations are kept to be looked at


@dataclass(frozen=True, slots=True)
class Semantic(Analysis):
    """Top-5 accuracy of other classifiers on perturbations alone, against the true label (light recipe, table 8).

    Perturbations of PGD-100 are mapped to [0, 1] as (δ+ε)/2ε, as the text says (`positive`), and as (−δ+ε)/2ε, as the authors'
    code does (`negative`, the one to quote): what an attack takes away from an image is its class. Every model's are shown to
    all others, or to those in `judges`, whose own are then not asked for. The step is not stated; in ℓ2 and ℓ1, where no pixel
    comes near ε, an image's largest change takes its place.
    """

    name: ClassVar[str] = "semantic"
    alone: ClassVar[bool] = False
    threat: Threat
    steps: int = 100
    step: float = 1.5
    top: int = 5
    judges: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(self, "steps", "top")
        check_step(self)

    def cost(self, images: int) -> tuple[int, int]:
        return images, self._attack.cost() + len(SIGNS) * max(1, len(self.judges)) + 1

    @property
    def _attack(self) -> PGD:
        return PGD(self.threat, steps=self.steps, step=self.step, seed=self.seed)

    def examine(self, subjects: list[Subject], images: Images) -> Finding:
        makers, judges = self._parts(subjects)
        attack = self._attack
        # [models, judges, signs (negative first), images]; False where a model would judge itself
        hits = np.zeros((len(makers), len(judges), len(SIGNS), len(images)), bool)
        clean = np.zeros((len(judges), len(images)), bool)
        shown = np.empty((len(makers), min(SHOWN, len(images)), *images.shape), np.float32)
        asked = sum(judge.label != maker.label for maker in makers for judge in judges)
        calls = len(images) * (len(makers) * attack.cost() + len(SIGNS) * asked + len(judges))
        with progress(calls, self.name, "model calls") as advance:
            asks = {subject.label: subject.ask(images, advance) for subject in subjects}
            for judge, of_judge in zip(judges, clean, strict=True):
                for rows, x, y in judge.windows(images):
                    of_judge[rows] = self._hits(asks[judge.label], x, y)
            for maker, of_maker, deltas in zip(makers, hits, shown, strict=True):
                for rows, x, y in maker.windows(images):
                    delta = attack(asks[maker.label], x, y) - x
                    kept = deltas[rows]
                    kept[:] = delta[: len(kept)].cpu().numpy()
                    for sign, of_sign in zip(SIGNS.values(), of_maker.swapaxes(0, 1), strict=True):
                        change = as_image(sign * delta, self.threat)
                        for judge, of_judge in zip(judges, of_sign, strict=True):
                            if judge is not maker:
                                of_judge[rows] = self._hits(asks[judge.label], change.to(judge.device), y.to(judge.device))
        arrays = {"hits": hits, "clean_hits": clean, "image": images.batch(slice(SHOWN))[0].cpu().numpy(), "delta": shown}
        shown_labels = {"label": images.y[:SHOWN].tolist(), "classes": images.classes}
        return Finding(self.name, self._data(makers, judges, hits, clean) | shown_labels, arrays)

    def _parts(self, subjects: list[Subject]) -> tuple[list[Subject], list[Subject]]:
        """Whose perturbations are judged, and who judges them."""
        labels = [subject.label for subject in subjects]
        for name in self.judges:
            if name not in labels:
                raise unknown("semantic.judges: no model", name, labels)
        if len(subjects) < 2:
            raise UserError(f"models: {labels[0]!r} alone; accepted: two or more, since others judge a model's perturbations")
        makers = [subject for subject in subjects if subject.label not in self.judges]
        if not makers:
            raise UserError(f"semantic.judges: {', '.join(self.judges)}; accepted: not all of the models")
        return makers, [subject for subject in subjects if not self.judges or subject.label in self.judges]

    def _hits(self, ask: Queries, x: Tensor, y: Tensor) -> np.ndarray:
        logits = ask(x)
        if self.top >= logits.shape[1]:
            raise UserError(f"semantic.top: {self.top}; accepted: 1 to {logits.shape[1] - 1}, or any of the classes is a hit")
        if not bool(logits.isfinite().all()):
            raise UserError("model: its logits are NaN or infinite; its weights may be broken")
        return (logits.topk(self.top, dim=1).indices == y[:, None]).any(1).cpu().numpy()

    def _data(self, makers: list[Subject], judges: list[Subject], hits: np.ndarray, clean: np.ndarray) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        for maker, of_maker in zip(makers, hits, strict=True):
            row: dict[str, Any] = {"model": maker.label}
            for name, of_sign in zip(SIGNS, of_maker.swapaxes(0, 1), strict=True):
                judged = zip(judges, of_sign, strict=True)
                row[name] = {judge.label: _share(of_judge) for judge, of_judge in judged if judge is not maker}
            rows.append(row)
        return {
            "summary": [f"{row['model']}: {_seen_by(row, self.top)} (n = {hits.shape[-1]})" for row in rows],
            "top": self.top,
            "judges": {judge.label: _share(of_judge) for judge, of_judge in zip(judges, clean, strict=True)},
            "models": rows,
        }


def as_image(delta: Tensor, threat: Threat) -> Tensor:
    """A perturbation on [0, 1]: no change is grey."""
    size: Tensor | float = threat.eps
    if threat.norm != "linf":
        size = delta.abs().flatten(1).amax(1).view(-1, *[1] * (delta.dim() - 1))
    size = torch.as_tensor(size, dtype=delta.dtype, device=delta.device).clamp(min=torch.finfo(delta.dtype).tiny)
    return ((delta + size) / (2 * size)).clamp(0, 1)  # rounding may pass an end


def _share(hits: np.ndarray) -> dict[str, Any]:
    correct = int(hits.sum())
    return {"accuracy": float(hits.mean()), "correct": correct, "n": len(hits), "interval_95": list(wilson(correct, len(hits)))}


def _seen_by(row: dict[str, Any], top: int) -> str:
    judged = (
        f"{judge} {share['accuracy']:.1%} (+δ {row['positive'][judge]['accuracy']:.1%})"
        for judge, share in row["negative"].items()
    )
    return f"−δ names the true class in the top {top} for " + ", ".join(judged)
