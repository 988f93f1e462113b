"""Where an image's pixels go: crops, mirroring, rotation. No curriculum weakens them."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from robustvit.data.augment.base import Augmentation, check_interval, check_probability
from robustvit.data.augment.luck import Luck
from robustvit.data.augment.resampling import resize_windows, rotation, warp
from robustvit.errors import UserError

TRIES = 10  # at a window that fits, as in torchvision


@dataclass(frozen=True, slots=True)
class PadCrop(Augmentation):
    """Zero-pad by `pad` pixels and crop back to size at a random place."""

    pad: int = 4

    def __post_init__(self) -> None:
        if self.pad < 0:
            raise UserError(f"pad_crop.pad: {self.pad}; accepted: 0 or more pixels")

    def change(self, x: Tensor, luck: Luck) -> Tensor:
        count, channels, height, width = x.shape
        top, left = (luck.whole(2 * self.pad).long()[:, None] for _ in range(2))
        rows = (top + torch.arange(height, device=x.device))[:, None, :, None]
        columns = (left + torch.arange(width, device=x.device))[:, None, None, :]
        image = torch.arange(count, device=x.device)[:, None, None, None]
        channel = torch.arange(channels, device=x.device)[None, :, None, None]
        return F.pad(x, [self.pad] * 4)[image, channel, rows, columns]


@dataclass(frozen=True, slots=True)
class Flip(Augmentation):
    """Mirror left and right with probability `prob`."""

    prob: float = 0.5

    def __post_init__(self) -> None:
        check_probability("flip", prob=self.prob)

    def change(self, x: Tensor, luck: Luck) -> Tensor:
        return torch.where(luck.chance(self.prob).view(-1, 1, 1, 1), x.flip(-1), x)


@dataclass(frozen=True, slots=True)
class ResizedCrop(Augmentation):
    """A window of random area and shape, resized to the image's size (Szegedy et al., 2015, section 6); bicubic, as PIL does.

    `scale` bounds the window's share of the area, `ratio` its width over its height, drawn on a logarithmic scale. A window
    that does not fit is drawn again; after ten, as in torchvision, the largest central one of an allowed ratio is taken. With a
    scale above 1 every window is taken, and the image is zero-padded where it is smaller: it lies anywhere in the window.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        check_interval("resized_crop", scale=self.scale, ratio=self.ratio)

    def change(self, x: Tensor, luck: Luck) -> Tensor:
        size = (x.shape[2], x.shape[3])
        overhang = self._overhang(*size)
        area = luck.between(*self.scale, TRIES) * (size[0] * size[1])
        shape = luck.between(math.log(self.ratio[0]), math.log(self.ratio[1]), TRIES).exp()
        sides = [side.sqrt().round().clamp(min=1) for side in (area / shape, area * shape)]
        fits = (sides[0] <= size[0] + overhang[0]) & (sides[1] <= size[1] + overhang[1])
        first, found = fits.int().argmax(1, keepdim=True), fits.any(1)
        starts, lengths = [], []
        for n, side, central in zip(size, sides, self._central(*size), strict=True):
            length = torch.where(found, side.gather(1, first).squeeze(1), central)
            lengths.append(length)
            starts.append(torch.where(found, _somewhere(luck, n - length), (n - central) // 2))
        return resize_windows(x, starts[0], starts[1], lengths[0], lengths[1], overhang)

    def _overhang(self, height: int, width: int) -> tuple[int, int]:
        """How many rows and columns a window may reach past the image: with a scale above 1 so many that every window fits."""
        if self.scale[1] <= 1:
            return 0, 0
        area, (low, high) = self.scale[1] * height * width, self.ratio
        return max(0, math.ceil(math.sqrt(area / low)) - height), max(0, math.ceil(math.sqrt(area * high)) - width)

    def _central(self, height: int, width: int) -> tuple[int, int]:
        low, high = self.ratio
        return min(height, max(1, round(width / low))), min(width, max(1, round(height * high)))


def _somewhere(luck: Luck, spare: Tensor) -> Tensor:
    """The first pixel of a window with so many pixels to spare; fewer than none where the image moves inside the window."""
    return luck.whole(spare.abs()) * spare.sign()


@dataclass(frozen=True, slots=True)
class Rotation(Augmentation):
    """Turn about the centre by up to `degrees` either way; bilinear, black where nothing comes from."""

    degrees: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.degrees <= 180:
            raise UserError(f"rotation.degrees: {self.degrees}; accepted: 0 to 180")

    def change(self, x: Tensor, luck: Luck) -> Tensor:
        angle = luck.between(-math.radians(self.degrees), math.radians(self.degrees))
        # The four weights of a look-up may sum to a little more than 1.
        return warp(x, rotation(angle, *x.shape[2:]), fill=0.0).clamp_(0, 1)
