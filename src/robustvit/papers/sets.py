"""Set: a paper's images, or those that stand for them, and what tells the images of one file from another's."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from robustvit.config import to_data
from robustvit.data import DataSpec, Images
from robustvit.data.augment import Augmentation, ColourJitter
from robustvit.data.mapped import map_images
from robustvit.data.mixing import Generated
from robustvit.data.stored import Stored
from robustvit.errors import UserError
from robustvit.models import ModelSpec
from robustvit.training.loop import DIGESTED

GENERATED = "generated"  # the name of generated images for --data


@dataclass(frozen=True, slots=True)
class Judged:
    """Images to judge on, a sample of them by a seed, and how many there are in all, which matters to estimates alone."""

    data: DataSpec
    sample_seed: int | None
    count: int


@dataclass(frozen=True, slots=True)
class Size:
    """Of what kind a model is and how wide its images are: what a call of it costs."""

    spec: ModelSpec
    side: int


@dataclass(frozen=True, slots=True)
class Set:
    """Images under the name that `--data NAME=PATH` knows: so many to train on and to judge on, `side` pixels wide.

    Without a `spec` they are those that a recipe names. With one they stand for them, whatever the recipe says of size and
    transforms: `basic` is then what stands for transforms of whole images, but for colour jitter, which keeps its strength.
    `where` is empty for what needs no file. Of a set that lies sorted by class a sample is judged, by `sample_seed`.
    """

    name: str
    training: int
    testing: int
    side: int
    classes: int
    where: str = ""
    spec: DataSpec | None = None
    channels: int = 3
    basic: tuple[Augmentation, ...] = ()
    sample_seed: int | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.channels, self.side, self.side)

    def classes_of(self, data: DataSpec) -> int:
        """Of a part of it, as in "100 by seed 0", that many."""
        first = (data.classes or "").partition(" ")[0]
        return int(first) if self.spec is None and first.isdigit() else self.classes

    def images(self, data: DataSpec, paths: Mapping[str, str]) -> DataSpec:
        """What a recipe's images become."""
        generated = data.generated and Generated(paths.get(GENERATED, data.generated.path), data.generated.share)
        if self.spec is None:
            return replace(data, path=paths.get(self.name, data.path), generated=generated)
        augment = (*self._basic(data), *data.augment)
        return replace(self.spec, path=paths.get(self.name, self.spec.path), augment=augment, generated=generated)

    def _basic(self, data: DataSpec) -> tuple[Augmentation, ...]:
        if data.transform is None:
            return ()
        jitter = data.transform.get("color_jitter") or 0.0
        coloured = (ColourJitter(jitter, jitter, jitter),) if jitter and self.channels == 3 else ()
        return (*self.basic, *coloured)

    def check_generated(self, path: str) -> None:
        """Generated images are mixed into this set, so they must have its size and its classes."""
        store, y = map_images(path)
        labels = sorted(y.unique().tolist())
        if (store.shape, labels) != (self.shape, list(range(self.classes))):
            raise UserError(
                f"{GENERATED}: {path!r} holds images of shape {store.shape} (channels, height, width) and {len(labels)} labels "
                f"from {labels[0]} to {labels[-1]}; accepted: {self.wanted}"
            )

    @property
    def wanted(self) -> str:
        """What a file of generated images must hold."""
        return (
            f"generated images of {self.name}: shape {self.shape}, its {self.classes} classes as labels 0 to {self.classes - 1}"
        )


_KNOWN: dict[str, str] = {}


def digest_of(data: DataSpec) -> str:
    """Tells the images that a model trains on from others, generated ones included; what a model was trained on is its own."""
    plain = replace(data, augment=(), transform={} if data.decodes else None, generated=None)  # decoded by nobody for this
    key = json.dumps(to_data(plain), sort_keys=True)
    if key not in _KNOWN:
        _KNOWN[key] = plain.load("train").digest(DIGESTED)
    return _KNOWN[key] + (_digest_of_generated(data.generated.path) if data.generated else "")


def _digest_of_generated(path: str) -> str:
    if path not in _KNOWN:
        store, y = map_images(path)
        _KNOWN[path] = Images(GENERATED, Stored.whole(store), y).digest(DIGESTED)
    return _KNOWN[path]
