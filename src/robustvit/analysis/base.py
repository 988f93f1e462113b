"""The contract of an analysis: (models, images) -> Finding."""

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from robustvit.analysis.finding import FOLDER, Finding
from robustvit.analysis.subjects import Models, Subject, subjects_of
from robustvit.config import to_data
from robustvit.data import Images
from robustvit.errors import UserError
from robustvit.evaluation.judge import judging
from robustvit.models import fingerprint
from robustvit.versions import versions


class Analysis:
    """Base of all analyses: frozen dataclasses, whose fields are their parameters, that implement `examine` and `cost`.

    One that looks at each model `alone` finds the same of it whichever others are there.
    """

    name: ClassVar[str]
    alone: ClassVar[bool] = True

    def __call__(self, models: Models, images: Images | tuple[Tensor, Tensor], out: Path | None = None) -> Finding:
        """The way in: every model is checked against the images and asked in eval mode and full float32.

        In `out` an analysis that evaluates keeps what it has so far, and goes on from it.
        """
        started, subjects = time.monotonic(), subjects_of(models)
        images = images if isinstance(images, Images) else Images("images", *images)
        if out is not None:
            subjects = [replace(subject, kept=self._kept(out, subject, images)) for subject in subjects]
        # The caller's random state is kept, whatever a model or a start draws.
        with ExitStack() as stack, torch.random.fork_rng():
            for subject in subjects:
                stack.enter_context(judging(subject.model))
                subject.check(images)
            finding = self.examine(subjects, images)
        provenance = {**self._provenance(subjects, images), "seconds": round(time.monotonic() - started, 3)}
        return replace(finding, provenance=provenance)

    def examine(self, subjects: list[Subject], images: Images) -> Finding:
        """The analysis itself; `data` must have a `summary`: a line of text for each thing worth telling."""
        raise NotImplementedError(f"{type(self).__name__} does not implement examine()")

    def cost(self, images: int) -> tuple[int, int]:
        """Of so many images, how many are attacked, and how many passes each of them costs a model, about."""
        raise NotImplementedError(f"{type(self).__name__} does not implement cost()")

    def _kept(self, out: Path, subject: Subject, images: Images) -> Path:
        """Outcomes of one model on one set of images have a folder of their own."""
        return out / FOLDER / f"{self.name}.outcomes" / f"{fingerprint(subject.model)}-{images.digest()}"

    def _provenance(self, subjects: list[Subject], images: Images) -> dict[str, Any]:
        return {
            "parameters": to_data(self),
            "models": [{"name": s.name, "epoch": s.epoch, "fingerprint": fingerprint(s.model)} for s in subjects],
            "data": {"name": images.name, "images": len(images), "classes": images.classes, "digest": images.digest()},
            "versions": versions(subjects[0].device),
        }


def check_counts(analysis: Analysis, *names: str) -> None:
    """Fields that count something: 1 or more, each of a list."""
    for name in names:
        value = getattr(analysis, name)
        numbers = value if isinstance(value, tuple) else (value,)
        if not numbers or min(numbers) < 1:
            shown = list(value) if isinstance(value, tuple) else value
            raise UserError(f"{analysis.name}.{name}: {shown}; accepted: 1 or more")


def check_step(analysis: Analysis, name: str = "step") -> None:
    if not getattr(analysis, name) > 0:
        raise UserError(f"{analysis.name}.{name}: {getattr(analysis, name)}; accepted: more than 0")
