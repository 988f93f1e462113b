"""The contract of an augmentation: (x, y, luck) -> (x, y), a whole batch on its device."""

import math
from collections.abc import Sequence
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from robustvit.data.augment.luck import Luck
from robustvit.errors import UserError


class Augmentation:
    """Base of all augmentations: frozen dataclasses that implement `change`.

    Images are float32 [B, C, H, W] in [0, 1], of one channel or three, and stay so. All randomness comes from `luck`.
    """

    mixes: ClassVar[bool] = False  # does it need labels as shares of classes?

    @torch.no_grad()
    def __call__(self, x: Tensor, y: Tensor, luck: Luck) -> tuple[Tensor, Tensor]:
        return (self.change(x, luck), y) if len(x) else (x, y)

    def change(self, x: Tensor, luck: Luck) -> Tensor:
        """The images anew; labels stay. Never called without an image."""
        raise NotImplementedError(f"{type(self).__name__} does not implement change()")

    def scaled(self, strength: float) -> Self:
        """The same at that share of its strength, for curricula; geometry keeps its own."""
        return self


def augmented(
    x: Tensor, y: Tensor, augmentations: Sequence[Augmentation], luck: Luck, classes: int, strength: float = 1.0
) -> tuple[Tensor, Tensor]:
    """All of them in order. Labels become shares of the `classes`, [B, K], where one of them mixes images."""
    if any(augmentation.mixes for augmentation in augmentations) and not y.is_floating_point():
        y = F.one_hot(y, classes).to(x.dtype)
    for augmentation in augmentations:
        x, y = augmentation.scaled(strength)(x, y, luck)
    return x, y


def check_probability(kind: str, **fields: float) -> None:
    for name, value in fields.items():
        if not 0 <= value <= 1:
            raise UserError(f"{kind}.{name}: {value}; accepted: 0 to 1")


def check_interval(kind: str, most: float = math.inf, **fields: tuple[float, ...]) -> None:
    """Of two finite numbers above 0, up to `most`, between which something is drawn."""
    for name, value in fields.items():
        if len(value) != 2 or not 0 < value[0] <= value[1] <= most or value[1] == math.inf:
            limit = "" if most == math.inf else f" and {most:g} at most"
            raise UserError(f"{kind}.{name}: {list(value)}; accepted: two numbers, the smaller first, finite, above 0{limit}")
