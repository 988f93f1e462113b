"""Random erasing."""

import math
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import torch
from torch import Tensor

from robustvit.data.augment.base import Augmentation, check_interval, check_probability
from robustvit.data.augment.luck import Luck
from robustvit.errors import unknown

Fill = Literal["pixels", "colour", "grey"]
FILLS: tuple[str, ...] = get_args(Fill)
TRIES = 10  # at a rectangle that fits


@dataclass(frozen=True, slots=True)
class Erasing(Augmentation):
    """Random erasing (Zhong et al., 2020, algorithm 1): with probability `prob` a rectangle is overwritten.

    `area` bounds its share of the image, `ratio` its height over its width, drawn on a logarithmic scale as in timm. It is
    smaller than the image both ways; after ten draws that are not, nothing is erased. `fill` is uniform noise (`pixels`), one
    uniform colour or mid-grey. timm's noise is Gaussian on normalised images and leaves [0, 1]; the paper's is uniform as here.
    A curriculum scales the probability.
    """

    prob: float = 0.25
    area: tuple[float, float] = (0.02, 1 / 3)
    ratio: tuple[float, float] = (0.3, 1 / 0.3)
    fill: Fill = "pixels"

    def __post_init__(self) -> None:
        check_probability("erasing", prob=self.prob)
        check_interval("erasing", 1, area=self.area)
        check_interval("erasing", ratio=self.ratio)
        if self.fill not in FILLS:
            raise unknown("erasing.fill", self.fill, FILLS)

    def change(self, x: Tensor, luck: Luck) -> Tensor:
        channels, *size = x.shape[1:]
        chosen = luck.chance(self.prob)
        area = luck.between(*self.area, TRIES) * math.prod(size)
        shape = luck.between(math.log(self.ratio[0]), math.log(self.ratio[1]), TRIES).exp()
        heights, widths = (area * shape).sqrt().round(), (area / shape).sqrt().round()
        fits = (heights < size[0]) & (widths < size[1])
        first = fits.int().argmax(1, keepdim=True)
        rows, columns = (
            stretch(luck.whole((n - side).clamp(min=0)), side, n)
            for n, side in zip(size, (sides.gather(1, first).squeeze(1) for sides in (heights, widths)), strict=True)
        )
        erased = (chosen & fits.any(1))[:, None, None] & rows[:, :, None] & columns[:, None]
        return torch.where(erased[:, None], self._filling(luck, channels, *size), x)

    def _filling(self, luck: Luck, channels: int, height: int, width: int) -> Tensor:
        if self.fill == "grey":
            return torch.full((1, 1, 1, 1), 0.5, device=luck.keys.device)
        return luck.uniform(channels, height, width) if self.fill == "pixels" else luck.uniform(channels, 1, 1)

    def scaled(self, strength: float) -> Self:
        return replace(self, prob=strength * self.prob)


def stretch(first: Tensor, length: Tensor, size: int) -> Tensor:
    """Which of `size` rows or columns each image's stretch covers: bool [B, size]."""
    place = torch.arange(size, device=first.device)
    return (place >= first[:, None]) & (place < (first + length)[:, None])
