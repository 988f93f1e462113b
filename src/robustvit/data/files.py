"""Encoded images: where they lie (files, the items of a data set, tar archives) and how they become squares of pixels."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import get_worker_info
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import center_crop, resize

from robustvit.data.stored import Store
from robustvit.errors import UserError
from robustvit.progress import Advance

THREADS = min(16, os.cpu_count() or 1)
MODES = {1: "L", 3: "RGB"}  # PIL's, by the number of channels


class Originals:
    """Base of what holds encoded images of any size."""

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not implement __len__()")

    def open(self, place: int) -> Image.Image:
        raise NotImplementedError(f"{type(self).__name__} does not implement open()")

    def where(self, place: int) -> str:
        """How an error names the image."""
        raise NotImplementedError(f"{type(self).__name__} does not implement where()")

    def mark(self, place: int) -> str | None:
        """What tells the image from another without opening it, wherever the set lies; None if nothing does."""
        return None


@dataclass(frozen=True, slots=True)
class Files(Originals):
    """An image a file."""

    paths: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def open(self, place: int) -> Image.Image:
        with Image.open(self.paths[place]) as image:
            image.load()
            return image

    def where(self, place: int) -> str:
        return self.paths[place]

    def mark(self, place: int) -> str:
        folder, name = os.path.split(self.paths[place])
        return f"{os.path.basename(folder)}/{name} {os.path.getsize(self.paths[place])}"


@dataclass(frozen=True, slots=True)
class Items(Originals):
    """The items of a torchvision data set: (image, label) by place, decoded by the data set."""

    name: str
    items: Any

    def __len__(self) -> int:
        return len(self.items)

    def open(self, place: int) -> Image.Image:
        image = self.items[place][0]
        if not isinstance(image, Image.Image):
            raise UserError(f"{self.where(place)}: is a {type(image).__name__}; accepted: data sets of images")
        return image

    def where(self, place: int) -> str:
        return f"{self.name}[{place}]"


@dataclass(frozen=True, slots=True)
class Encoded(Store):
    """Squares of encoded images: each is made RGB or, with one channel, grey, resized (bicubic) until its shorter side is
    `shorter` pixels, and cropped to the central square of `size`.

    A rotation noted in EXIF is ignored, as torchvision and timm do.
    """

    originals: Originals
    size: int
    shorter: int
    channels: int = 3

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.channels, self.size, self.size)

    def __len__(self) -> int:
        return len(self.originals)

    def signature(self, places: Sequence[int]) -> bytes:
        marks = [self.originals.mark(place) for place in places]
        if any(mark is None for mark in marks):
            return Store.signature(self, places)
        return f"{self.shape} {self.shorter} {marks}".encode()

    def original(self, place: int) -> Image.Image:
        """The whole image, in the store's colours."""
        try:
            return self.originals.open(place).convert(MODES[self.channels])
        # What PIL's decoders raise for a damaged file differs between formats.
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{self.originals.where(place)}: cannot be decoded as an image: {error}") from None

    def read(self, places: Sequence[int], advance: Advance) -> Tensor:
        x = torch.empty((len(places), *self.shape), dtype=torch.uint8)
        for image, pixels in zip(x, self._squares(places), strict=True):
            image.copy_(torch.from_numpy(pixels))
            advance(1, "")
        return x

    def _squares(self, places: Sequence[int]) -> Iterator[np.ndarray]:
        if get_worker_info():  # one of several loader workers already
            yield from map(self._square, places)
            return
        with ThreadPoolExecutor(THREADS) as pool:
            yield from pool.map(self._square, places)

    def _square(self, place: int) -> np.ndarray:
        square = center_crop(resize(self.original(place), self.shorter, InterpolationMode.BICUBIC), self.size)
        pixels = np.array(square)
        return pixels[None] if self.channels == 1 else pixels.transpose(2, 0, 1)
