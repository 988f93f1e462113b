"""DataSpec: which images, as plain data of a recipe."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from robustvit.data.images import Images
from robustvit.errors import UserError, unknown

Split = Literal["train", "test"]
DECODED = ("folder", "imagenet")  # sources of image files of any size
IN_MEMORY = 4 * 2**30  # bytes of training images that are decoded once; larger sets are decoded batch by batch


@dataclass(frozen=True, slots=True)
class DataSpec:
    """A source by name and, where it reads files, their place.

    `pad` and `flip` are the augmentation of training. Image files are resized until their shorter side is `resize` pixels (by
    default `size`), then cropped to the central square of `size`. `subset` limits the test images to those that a text file
    lists, one CLASS/IMAGE a line, or to RobustBench's 5,000 (`robustbench`). Fields that say where, or that training does not
    see, do not enter a recipe's hash.
    """

    source: str
    path: str | None = field(default=None, metadata={"identity": False})
    download: bool = field(default=False, metadata={"identity": False})
    pad: int = 0
    flip: bool = False
    size: int | None = None
    resize: int | None = None
    subset: str | None = field(default=None, metadata={"identity": False})

    def __post_init__(self) -> None:
        if self.pad < 0:
            raise UserError(f"data.pad: {self.pad}; accepted: 0 or more pixels")
        for name in ("size", "resize", "subset"):
            if getattr(self, name) is not None and self.source not in DECODED:
                only = " and ".join(DECODED)
                raise UserError(f"data.{name}: {getattr(self, name)}; accepted with the data {only} alone, not {self.source!r}")
        if self.size is not None and self.size < 1:
            raise UserError(f"data.size: {self.size}; accepted: 1 pixel or more")
        if self.resize is not None and self.resize < (self.size or 1):
            raise UserError(f"data.resize: {self.resize}; accepted: {self.size or 1} pixels (the size) or more")

    @staticmethod
    def parse(text: str) -> "DataSpec":
        """`digits`, or `npz:PATH`."""
        source, _, path = text.partition(":")
        return DataSpec(source, path or None)

    def fitted(self, input_size: tuple[int, ...] | None, crop: float = 1.0) -> "DataSpec":
        """With the size that a model takes, where files are decoded and the spec leaves it open; `crop` is timm's crop_pct."""
        size = self.size or (input_size[-1] if input_size else None)
        if self.source not in DECODED or size is None:
            return self
        return replace(self, size=size, resize=self.resize or math.floor(size / crop))

    def load(self, split: Split) -> Images:
        from robustvit.data.sources import SOURCES  # which are functions of a spec

        if self.source not in SOURCES:
            raise unknown("data", self.source, SOURCES)
        return SOURCES[self.source](self, split)
