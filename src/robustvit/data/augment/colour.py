"""Colour jitter."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from robustvit.data.augment.base import Augmentation, check_probability
from robustvit.data.augment.luck import Luck
from robustvit.errors import UserError


@dataclass(frozen=True, slots=True)
class ColourJitter(Augmentation):
    """Brightness, contrast, saturation and hue, in an order of its own for each image: torchvision's ColorJitter, timm's 0.4.

    A factor is uniform in 1 ± the field; the hue turns by ± its field of a full circle. Grey images have no saturation or hue.
    """

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.0

    def __post_init__(self) -> None:
        check_probability("colour_jitter", brightness=self.brightness, contrast=self.contrast, saturation=self.saturation)
        if not 0 <= self.hue <= 0.5:
            raise UserError(f"colour_jitter.hue: {self.hue}; accepted: 0 to 0.5")

    def change(self, x: Tensor, luck: Luck) -> Tensor:
        order = luck.uniform(4).argsort(1).unbind(1)
        factors = [luck.between(1 - width, 1 + width) for width in (self.brightness, self.contrast, self.saturation)]
        turn = luck.between(-self.hue, self.hue)
        for step in order:
            x = self._step(x, step, factors, turn)
        return x

    def _step(self, x: Tensor, step: Tensor, factors: list[Tensor], turn: Tensor) -> Tensor:
        """The step of that number for each image: all of them at once, each image keeps its own."""
        luminance = grey(x)
        # Each of the first three moves the image away from, or towards, one that lacks what it is named after.
        lacking = _pick(step, [torch.zeros_like(luminance), luminance.mean((1, 2, 3), keepdim=True), luminance])
        factor = _pick(step, [f.view(-1, 1, 1, 1) for f in factors])
        blended = torch.lerp(lacking, x, factor).clamp(0, 1)
        if self.hue and x.shape[1] == 3:
            return torch.where((step == 3).view(-1, 1, 1, 1), turn_hue(x, turn), blended)
        return torch.where((step == 3).view(-1, 1, 1, 1), x, blended)

    def scaled(self, strength: float) -> Self:
        names = ("brightness", "contrast", "saturation", "hue")
        return replace(self, **{name: strength * getattr(self, name) for name in names})


def _pick(step: Tensor, options: list[Tensor]) -> Tensor:
    step = step.view(-1, 1, 1, 1)
    return torch.where(step == 0, options[0], torch.where(step == 1, options[1], options[2]))


def grey(x: Tensor) -> Tensor:
    """Luminance of ITU-R BT.601, [B, 1, H, W]."""
    return x if x.shape[1] == 1 else 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]


def turn_hue(x: Tensor, turn: Tensor) -> Tensor:
    """Adds `turn`, a share of the circle, to the hue (Smith, 1978: hexcone model)."""
    red, green, blue = x.unbind(1)
    value, least = x.amax(1), x.amin(1)
    chroma = value - least
    span = torch.where(chroma > 0, chroma, 1)
    # In sixths of the circle, counted from the largest channel.
    hue = torch.where(
        value == red,
        (green - blue) / span,
        torch.where(value == green, 2 + (blue - red) / span, 4 + (red - green) / span),
    )
    hue = hue + 6 * turn.view(-1, 1, 1)

    def channel(offset: int) -> Tensor:
        place = (hue + offset) % 6
        return value - chroma * torch.minimum(place, 4 - place).clamp(0, 1)

    return torch.stack([channel(5), channel(3), channel(1)], 1)
