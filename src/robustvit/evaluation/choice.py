"""Which images an evaluation judges, and what is to be said of them."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from robustvit.config import to_data
from robustvit.data import DataSpec, Images
from robustvit.evaluation.judge import check_fits
from robustvit.models import Classifier


@dataclass(frozen=True, slots=True)
class Choice:
    """`images` are those of `everything` at the places `index`; `about` goes into the provenance."""

    everything: Images
    images: Images
    index: Tensor
    about: dict[str, Any]


def choose(classifier: Classifier, data: str | DataSpec | Images, images: int | None, sample_seed: int | None) -> Choice:
    """The first so many test images, a sample of them, or all; encoded ones at the size that the model takes."""
    spec = DataSpec.parse(data) if isinstance(data, str) else data
    if isinstance(spec, DataSpec):
        spec = spec.fitted(classifier.input_size, classifier.crop)  # recorded as what it came to
    everything = spec if isinstance(spec, Images) else spec.load("test")
    chosen, index = everything.first(images, sample_seed)
    check_fits(classifier, everything)
    about = {
        "name": everything.name,
        "spec": None if isinstance(spec, Images) else to_data(spec),
        "size": len(everything),
        "sample_seed": sample_seed,
        "classes": chosen.classes,
        "digest": everything.digest(),
    }
    return Choice(everything, chosen, index, about)
