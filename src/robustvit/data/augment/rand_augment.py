"""RandAugment: a few operations drawn from a list, at a common magnitude."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from robustvit.data.augment import levels
from robustvit.data.augment.base import Augmentation, check_probability
from robustvit.data.augment.colour import grey
from robustvit.data.augment.luck import Luck
from robustvit.data.augment.resampling import Affine, rotation, warp
from robustvit.errors import UserError

MOST = 10  # the magnitude at which an operation reaches its full size


@dataclass(frozen=True, slots=True)
class RandAugment(Augmentation):
    """RandAugment (Cubuk et al., 2020), its operations and their sizes those of timm's `rand-m9-mstd0.5-inc1`.

    Each of `layers` draws one of the 15 OPERATIONS for an image and applies it with probability `prob`, at the `magnitude` plus
    Gaussian noise of `std`, cut to 0 … 10. An image that is operated on is rounded to 256 levels, as PIL holds it. `fill` is
    the grey that comes in where an operation moves the image. A curriculum scales the magnitude; at 0 autocontrast, equalise,
    invert and posterise to four bits remain.

    Departures: timm looks up moved pixels bilinear or bicubic, at random; here they are always bilinear. Posterise keeps a bit
    at least; timm's keeps none at magnitude 10, which made a black image and is an error in today's PIL.
    """

    magnitude: float = 9.0
    std: float = 0.5
    layers: int = 2
    prob: float = 0.5
    fill: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.magnitude <= MOST:
            raise UserError(f"rand_augment.magnitude: {self.magnitude}; accepted: 0 to {MOST}")
        if not 0 <= self.std < float("inf"):
            raise UserError(f"rand_augment.std: {self.std}; accepted: a finite number, 0 or more")
        if self.layers < 1:
            raise UserError(f"rand_augment.layers: {self.layers}; accepted: 1 or more")
        check_probability("rand_augment", prob=self.prob, fill=self.fill)

    def change(self, x: Tensor, luck: Luck) -> Tensor:
        for _ in range(self.layers):
            size = ((self.magnitude + self.std * luck.normal()) / MOST).clamp(0, 1)
            changed = operated(x, luck.whole(len(OPERATIONS) - 1), size, luck.sign(), self.fill)
            x = _where(luck.chance(self.prob), changed, x)
        return x

    def scaled(self, strength: float) -> Self:
        return replace(self, magnitude=strength * self.magnitude)


def operated(x: Tensor, operation: Tensor, size: Tensor, sign: Tensor, fill: float) -> Tensor:
    """Each image after the operation of that number, of a size from 0 to 1, in the direction of `sign`.

    All operations are computed for all images, cheap ones as tables and moves as one affine map: to pick images for each would
    make the host wait for the device.
    """
    x = (255 * x).round()
    chosen = {name: operation == number for number, name in enumerate(OPERATIONS)}
    table = levels.all_levels(x)
    for name, make in TABLES.items():
        table = torch.where(chosen[name].view(-1, 1, 1), make(x, size, sign), table)
    changed = levels.looked_up(x, table)
    factor = _factor(size, sign).view(-1, 1, 1, 1)
    for name, lacking in (("saturation", grey(x).round()), ("sharpness", _smooth(x))):
        blended = torch.lerp(lacking.expand_as(x), x, factor.expand_as(x)).clamp(0, 255)
        changed = _where(chosen[name], blended, changed)
    moves = [chosen[name] for name in MOVES]
    moved = warp(x, _affine(x, moves, size * sign), fill=255 * fill)
    changed = _where(torch.stack(moves).any(0), moved, changed)
    return changed.round() / 255


def _factor(size: Tensor, sign: Tensor) -> Tensor:
    """Of an enhancement: 1 leaves the image as it is."""
    return (1 + 0.9 * size * sign).clamp(min=0.1)


def _contrast(x: Tensor, size: Tensor, sign: Tensor) -> Tensor:
    mean = (grey(x).round().mean((1, 2, 3)) + 0.5).floor()
    return levels.away_from(mean, x, _factor(size, sign))


def _smooth(x: Tensor) -> Tensor:
    """The mean over 3×3 pixels with the middle one counted five times; the border stays."""
    smooth = x.clone()
    mean = F.avg_pool2d(x, 3, stride=1, padding=1)
    smooth[:, :, 1:-1, 1:-1] = ((9 * mean + 4 * x) / 13).round()[:, :, 1:-1, 1:-1]
    return smooth


def _affine(x: Tensor, moves: list[Tensor], amount: Tensor) -> Affine:
    """The map of each image's move, the identity for the others; `moves` in the order of MOVES."""
    height, width = x.shape[2:]
    turn, slant_x, slant_y, shift_x, shift_y = (torch.where(move, amount, 0) for move in moves)
    a, b, c, d, e, f = rotation(torch.deg2rad(30 * turn), height, width)
    return a, b + 0.3 * slant_x, c + 0.45 * width * shift_x, d + 0.3 * slant_y, e, f + 0.45 * height * shift_y


def _where(images: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(images.view(-1, 1, 1, 1), yes, no)


Table = Callable[[Tensor, Tensor, Tensor], Tensor]  # of an image's levels, the size and the sign

TABLES: dict[str, Table] = {
    "autocontrast": lambda x, size, sign: levels.autocontrast(x),
    "equalise": lambda x, size, sign: levels.equalise(x),
    "invert": lambda x, size, sign: levels.invert(x),
    "posterise": lambda x, size, sign: levels.posterise(x, (4 - (4 * size).floor()).clamp(min=1)),
    "solarise": lambda x, size, sign: levels.solarise(x, 256 - (256 * size).floor()),
    "solarise_add": lambda x, size, sign: levels.solarise_add(x, (110 * size).floor()),
    "contrast": _contrast,
    "brightness": lambda x, size, sign: levels.away_from(torch.zeros_like(size), x, _factor(size, sign)),
}
MOVES = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
OPERATIONS = (*TABLES, "saturation", "sharpness", *MOVES)
