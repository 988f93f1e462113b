"""DataSpec: which images, as plain data of a recipe."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from robustvit.data.augment.base import Augmentation
from robustvit.data.images import Images
from robustvit.data.mixing import Generated
from robustvit.data.transform import ARGUMENTS
from robustvit.errors import UserError, unknown

Split = Literal["train", "test"]
FAMILIES = ("torchvision", "timm")  # sources of many sets, as in torchvision:SVHN
DECODED = ("folder", "imagenet", "flowers102", "caltech101", *FAMILIES)  # sources of encoded images of any size
ACCEPTED = {  # the sources that a field means something to
    **dict.fromkeys(("size", "resize", "channels", "transform"), DECODED),
    "download": ("cifar10", "cifar100", "flowers102", "caltech101", "torchvision"),
    "subset": ("folder", "imagenet"),
    "classes": ("imagenet",),
    "splits": ("flowers102", *FAMILIES),
    "args": FAMILIES,
}


@dataclass(frozen=True, slots=True)
class DataSpec:
    """A source by name and, where it reads files, their place.

    Encoded images are resized until their shorter side is `resize` pixels (by default `size`), then cropped to the central
    square of `size`, in 3 `channels` or grey in 1. With `transform`, training images go whole through timm's own transforms in
    loader workers instead; its fields are arguments of `timm.data.create_transform`. Then `augment` follows, in its order, a
    batch at a time on the device. `workers` read ahead what is not in memory (by default as many as there are cores; 0: none).

    `classes` limits ImageNet to the WNIDs of a text file, or to a number of them by seed ("100 by seed 0"). `subset` limits the
    test images to those that a text file lists, one CLASS/IMAGE a line, or to RobustBench's 5,000 (`robustbench`). `splits` and
    `args` are for sources of many sets. `generated` mixes generated images into the training batches. Fields that say where or
    how, or that training does not see, do not enter a recipe's hash.
    """

    source: str
    path: str | None = field(default=None, metadata={"identity": False})
    download: bool = field(default=False, metadata={"identity": False})
    augment: tuple[Augmentation, ...] = ()
    size: int | None = None
    resize: int | None = None
    channels: int | None = None
    transform: dict[str, Any] | None = None
    workers: int | None = field(default=None, metadata={"identity": False})
    classes: str | None = None
    splits: dict[str, str] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)
    generated: Generated | None = None
    subset: str | None = field(default=None, metadata={"identity": False})

    def __post_init__(self) -> None:
        for name, sources in ACCEPTED.items():
            value = getattr(self, name)
            if value not in (None, {}, False) and self.family not in sources:
                only = f"{', '.join(sources[:-1])} and {sources[-1]}" if len(sources) > 1 else sources[0]
                raise UserError(f"data.{name}: {value}; accepted with the data {only} alone, not {self.source!r}")
        _check_names("splits", self.splits, ("train", "test"))
        _check_names("transform", self.transform or {}, ARGUMENTS)
        if self.transform is not None and self.generated is not None:
            raise UserError("data.transform: accepted without generated images alone; data.augment works on both")
        if self.channels not in (None, 1, 3):
            raise UserError(f"data.channels: {self.channels}; accepted: 1 (grey) or 3 (RGB)")
        if self.workers is not None and self.workers < 0:
            raise UserError(f"data.workers: {self.workers}; accepted: 0 or more, or null for as many as there are cores")
        if self.size is not None and self.size < 1:
            raise UserError(f"data.size: {self.size}; accepted: 1 pixel or more")
        if self.resize is not None and self.resize < (self.size or 1):
            raise UserError(f"data.resize: {self.resize}; accepted: {self.size or 1} pixels (the size) or more")

    @property
    def family(self) -> str:
        """The source's name in SOURCES."""
        return self.source.partition(":")[0]

    @property
    def decodes(self) -> bool:
        """Are its images encoded, of any size?"""
        return self.family in DECODED

    @staticmethod
    def parse(text: str) -> "DataSpec":
        """`digits`, `npz:PATH`, `torchvision:NAME` or `torchvision:NAME:PATH`."""
        source, _, rest = text.partition(":")
        if source.endswith(".npz"):
            raise UserError(f"data: {text!r} is a file, of which set? Accepted: npz:{text}, or cifar10:{text} and the like")
        if source in FAMILIES:
            name, _, rest = rest.partition(":")
            source = f"{source}:{name}"
        return DataSpec(source, rest or None)

    def fitted(self, input_size: tuple[int, ...] | None, crop: float = 1.0) -> "DataSpec":
        """With the size and channels that a model takes, where encoded images leave them open; `crop` is timm's crop_pct."""
        size = self.size or (input_size[-1] if input_size else None)
        if not self.decodes or size is None:
            return self
        channels = self.channels or (input_size[0] if input_size and input_size[0] in (1, 3) else None)
        return replace(self, size=size, resize=self.resize or math.floor(size / crop), channels=channels)

    def load(self, split: Split) -> Images:
        """Real images; `mixed` adds the generated ones, after some of the real ones were held out."""
        from robustvit.data.sources import SOURCES  # which are functions of a spec

        if self.family not in SOURCES:
            raise unknown("data", self.family, SOURCES)
        return SOURCES[self.family](self, split)

    def mixed(self, real: Images) -> Images:
        return self.generated.join(real).kept() if self.generated else real


def _check_names(field: str, given: dict[str, Any], accepted: tuple[str, ...]) -> None:
    for name in given:
        if name not in accepted:
            raise UserError(f"data.{field}.{name}: {given[name]!r}; accepted in data.{field}: {', '.join(accepted)}")
