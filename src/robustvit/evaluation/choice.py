"""Which images an evaluation judges, and what is to be said of them."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from robustvit.config import to_data
from robustvit.data import DataSpec, Images
from robustvit.errors import UserError
from robustvit.evaluation.fits import check_fits
from robustvit.models import Classifier


@dataclass(frozen=True, slots=True)
class Choice:
    """`images` are those of `everything` at the places `index`; `about` goes into the provenance."""

    everything: Images
    images: Images
    index: Tensor
    about: dict[str, Any]


Data = str | DataSpec | Images | tuple[Tensor, Tensor]


def choose(classifier: Classifier, data: Data, images: int | None, sample_seed: int | None) -> Choice:
    """The first so many test images, a sample of them, or all; encoded ones at the size that the model takes."""
    spec = _specified(data)
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


def _specified(data: Data) -> DataSpec | Images:
    if isinstance(data, str):
        return DataSpec.parse(data)
    if isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, Tensor) for part in data):
        return Images("images", *data)
    if isinstance(data, DataSpec | Images):
        return data
    raise UserError(f"data: a {type(data).__name__}; accepted: text such as cifar10:PATH, DataSpec, Images, or tensors (x, y)")
