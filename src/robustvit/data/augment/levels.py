"""Maps of the 256 levels that an image is stored in: what PIL does to each level, as a table [B, C or 1, 256] for each image.

Images come as whole numbers 0 to 255 in float32.
"""

import torch
from torch import Tensor

LEVELS = 256


def looked_up(x: Tensor, table: Tensor) -> Tensor:
    table = table.expand(len(x), x.shape[1], LEVELS)
    return table.gather(2, x.flatten(2).long()).view_as(x)


def all_levels(x: Tensor) -> Tensor:
    return torch.arange(LEVELS, device=x.device, dtype=torch.float32)[None, None]


def autocontrast(x: Tensor) -> Tensor:
    """Each channel stretched to the whole range; one of a single level stays."""
    level = all_levels(x)
    low, high = (ends.view(len(x), -1, 1) for ends in (x.amin((2, 3)), x.amax((2, 3))))
    stretched = ((level - low) * 255 / (high - low).clamp(min=1)).trunc().clamp(0, 255)
    return torch.where(high > low, stretched, level)


def equalise(x: Tensor) -> Tensor:
    """Each channel's levels spread so that each step of the result holds about as many pixels as any other."""
    flat = x.flatten(2).long()
    # Counts are whole, so that the order in which a GPU adds them up does not show.
    pixels = torch.zeros(len(x), x.shape[1], LEVELS, device=x.device, dtype=torch.int64)
    pixels.scatter_add_(2, flat, torch.ones_like(flat))
    last = pixels.gather(2, flat.amax(2, keepdim=True))
    step = (flat.shape[2] - last) // 255
    below = pixels.cumsum(2) - pixels
    table = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255).float()
    return torch.where(step > 0, table, all_levels(x))


def invert(x: Tensor) -> Tensor:
    return 255 - all_levels(x)


def posterise(x: Tensor, bits: Tensor) -> Tensor:
    """Only the uppermost `bits` of each level are kept."""
    width = 2 ** (8 - bits.view(-1, 1, 1))
    return (all_levels(x) / width).floor() * width


def solarise(x: Tensor, threshold: Tensor) -> Tensor:
    """Levels from `threshold` on are inverted."""
    level = all_levels(x)
    return torch.where(level < threshold.view(-1, 1, 1), level, 255 - level)


def solarise_add(x: Tensor, amount: Tensor) -> Tensor:
    """Levels of the darker half are raised."""
    level = all_levels(x)
    return torch.where(level < 128, (level + amount.view(-1, 1, 1)).clamp(max=255), level)


def away_from(centre: Tensor, x: Tensor, factor: Tensor) -> Tensor:
    """Levels moved away from `centre`, or towards it with a factor below 1."""
    centre = centre.view(-1, 1, 1)
    return (centre + factor.view(-1, 1, 1) * (all_levels(x) - centre)).trunc().clamp(0, 255)
