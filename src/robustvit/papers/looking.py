"""Looking: analyses of an artefact's models, each done once and kept in the grid, whichever artefacts share it."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from robustvit.analysis import Analysis, Finding, Subject
from robustvit.analysis.finding import FOLDER, joined
from robustvit.config import to_data
from robustvit.crew import Crew
from robustvit.data import Images
from robustvit.device import find_device
from robustvit.errors import concerning
from robustvit.models import fingerprint, load_model
from robustvit.papers.sets import Judged, Size

ORDER = 0  # the seed of the order in which images are shown: the first few are then a sample


@dataclass(frozen=True, slots=True)
class Looked:
    """A model under its name in the artefact, by what `load_model` takes; through training also the epoch.

    `size` is for estimates.
    """

    label: str
    model: str
    epoch: float | None
    size: Size


@dataclass(frozen=True, slots=True)
class Inquiry:
    """An analysis of some models on so many images (None: all): the job of one process, kept in `folder`."""

    analysis: Analysis
    looked: tuple[Looked, ...]
    judged: Judged
    images: int | None
    folder: Path
    device: str | None

    def answer(self) -> Finding:
        """What was found before, of these very weights and images, or is found now."""
        place = find_device(self.device)
        with concerning(f"{self.analysis.name} of {', '.join(sorted({each.label for each in self.looked}))}"):
            subjects = [Subject(each.label, load_model(each.model).to(place), each.epoch) for each in self.looked]
            images = self._images(subjects[0])
            folder = self.folder / f"{self.analysis.name}-{self._key(subjects, images)}"
            kept = folder / FOLDER / f"{self.analysis.name}.json"
            if kept.exists():
                return Finding.load(kept)
            finding = self.analysis(subjects, images, folder)
            finding.save(folder)
            return Finding.load(kept)  # as it will be found the next time

    def _images(self, subject: Subject) -> Images:
        everything = self.judged.data.fitted(subject.model.input_size, subject.model.crop).load("test")
        chosen, _ = everything.first(self.images, self.judged.sample_seed if self.images else None)
        order = torch.randperm(len(chosen), generator=torch.Generator().manual_seed(ORDER))
        return chosen.subset(order)

    def _key(self, subjects: Sequence[Subject], images: Images) -> str:
        models = [(subject.label, subject.epoch, fingerprint(subject.model)) for subject in subjects]
        key = json.dumps([to_data(self.analysis), models, images.digest()], sort_keys=True)
        return hashlib.sha256(key.encode()).hexdigest()[:12]


def inquire(inquiry: Inquiry) -> Finding:
    """For a crew, which takes functions of a module."""
    return inquiry.answer()


def look_at(of_seeds: Sequence[Sequence[Inquiry]], crew: Crew) -> list[Finding]:
    """A finding a seed, from its inquiries: one, or one a model where each is looked at alone."""
    # Weights of others are in every seed, and are looked at once.
    asked = {_who(inquiry): inquiry for of_seed in of_seeds for inquiry in of_seed}
    found = dict(zip(asked, crew.all(inquire, list(asked.values()), "analyses done"), strict=True))
    answers = [[found[_who(inquiry)] for inquiry in of_seed] for of_seed in of_seeds]
    return [joined(of_seed) if len(of_seed) > 1 else of_seed[0] for of_seed in answers]


def _who(inquiry: Inquiry) -> tuple[tuple[str, str, float | None], ...]:
    return tuple((each.label, each.model, each.epoch) for each in inquiry.looked)


LARGEST = 300_000  # bytes of an array that is kept beside a result


def save_small(finding: Finding, out: Path) -> Path:
    """Numbers and texts whole; arrays in half precision, and without those that are too large to lie beside a result."""
    halved = {name: each.astype("float16") if each.dtype.kind == "f" else each for name, each in finding.arrays.items()}
    left_out = sorted(name for name, each in halved.items() if each.nbytes > LARGEST)
    about = finding.provenance | {"arrays_left_out": left_out}
    arrays = {name: each for name, each in halved.items() if name not in left_out}
    return Finding(finding.name, finding.data, arrays, about).save(out)
