"""Two images mixed into one, their labels alike: the partner is the image before it in the batch, and the last one the first's.

The partner has been through the same augmentations. Whether, how and how much an image is mixed comes from its own luck, for
each image of a batch anew (timm: one draw a batch, unless asked for `elem`). With whom depends on the batch: that is the one
thing in augmentation that another batch size, `accumulate` or number of processes changes.
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from robustvit.data.augment.base import Augmentation, check_probability
from robustvit.data.augment.erasing import stretch
from robustvit.data.augment.luck import Luck
from robustvit.errors import UserError


class Mixing(Augmentation):
    """Base of what mixes: subclasses say how large a share of each image is its own."""

    mixes = True

    @torch.no_grad()
    def __call__(self, x: Tensor, y: Tensor, luck: Luck) -> tuple[Tensor, Tensor]:
        if not y.is_floating_point():
            raise UserError(
                f"labels: {y.dtype} of shape {tuple(y.shape)}; accepted to mix images: shares of classes, float [B, K]"
            )
        if len(x) == 0:
            return x, y
        blended, pasted = self.shares(luck)
        partner = x.roll(1, 0)
        inside, own = _window(pasted, luck, *x.shape[2:])
        x = torch.where(inside[:, None], partner, torch.lerp(partner, x, blended.view(-1, 1, 1, 1)))
        # Nothing is blended and pasted at once, so one of the two factors is 1.
        return x.clamp_(0, 1), torch.lerp(y.roll(1, 0), y, (blended * own)[:, None])

    def shares(self, luck: Luck) -> tuple[Tensor, Tensor]:
        """Of each image's own pixels in a blend, and of the area that is not pasted over; [B] each, at most one below 1."""
        raise NotImplementedError(f"{type(self).__name__} does not implement shares()")


@dataclass(frozen=True, slots=True)
class Mixup(Mixing):
    """λ·x + (1 − λ)·partner with λ from Beta(`alpha`, `alpha`), labels alike (Zhang et al., 2018); with probability `prob`.

    A curriculum scales the probability.
    """

    alpha: float = 0.8
    prob: float = 1.0

    def __post_init__(self) -> None:
        _check("mixup", {"alpha": self.alpha}, prob=self.prob)

    def shares(self, luck: Luck) -> tuple[Tensor, Tensor]:
        share = torch.where(luck.chance(self.prob), luck.beta(self.alpha), 1)
        return share, torch.ones_like(share)

    def scaled(self, strength: float) -> Self:
        return replace(self, prob=strength * self.prob)


@dataclass(frozen=True, slots=True)
class CutMix(Mixing):
    """A window of the partner pasted in, labels by area (Yun et al., 2019); with probability `prob`.

    The window has the image's shape and a share 1 − λ of its area, λ from Beta(`alpha`, `alpha`), its centre anywhere; what
    reaches past the image is cut off, and the labels follow the area that is left. A curriculum scales the probability.
    """

    alpha: float = 1.0
    prob: float = 1.0

    def __post_init__(self) -> None:
        _check("cutmix", {"alpha": self.alpha}, prob=self.prob)

    def shares(self, luck: Luck) -> tuple[Tensor, Tensor]:
        share = torch.where(luck.chance(self.prob), luck.beta(self.alpha), 1)
        return torch.ones_like(share), share

    def scaled(self, strength: float) -> Self:
        return replace(self, prob=strength * self.prob)


@dataclass(frozen=True, slots=True)
class MixupOrCutMix(Mixing):
    """With probability `prob` one of the two, CutMix with probability `switch_prob`: how timm combines them.

    A curriculum scales `prob`.
    """

    mixup_alpha: float = 0.8
    cutmix_alpha: float = 1.0
    prob: float = 1.0
    switch_prob: float = 0.5

    def __post_init__(self) -> None:
        alphas = {"mixup_alpha": self.mixup_alpha, "cutmix_alpha": self.cutmix_alpha}
        _check("mixup_or_cutmix", alphas, prob=self.prob, switch_prob=self.switch_prob)

    def shares(self, luck: Luck) -> tuple[Tensor, Tensor]:
        mixed, cut = luck.chance(self.prob), luck.chance(self.switch_prob)
        blended = torch.where(mixed & ~cut, luck.beta(self.mixup_alpha), 1)
        pasted = torch.where(mixed & cut, luck.beta(self.cutmix_alpha), 1)
        return blended, pasted

    def scaled(self, strength: float) -> Self:
        return replace(self, prob=strength * self.prob)


def _window(share: Tensor, luck: Luck, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Where the partner shows, [B, H, W], and the share of the area that is left to the image."""
    side = (1 - share).clamp(min=0).sqrt()
    rows, columns = (_span(luck, (size * side).floor(), size) for size in (height, width))
    inside = rows[:, :, None] & columns[:, None]
    return inside, 1 - inside.float().mean((1, 2))


def _span(luck: Luck, length: Tensor, size: int) -> Tensor:
    return stretch(luck.whole(size - 1) - (length / 2).floor(), length, size)


def _check(kind: str, alphas: dict[str, float], **probabilities: float) -> None:
    for name, alpha in alphas.items():
        if not 0 < alpha < float("inf"):
            raise UserError(f"{kind}.{name}: {alpha}; accepted: a finite number above 0")
    check_probability(kind, **probabilities)
