"""Augmentation of a whole batch on its device; randomness from torch's generator, which the loop seeds at every step."""

import torch
import torch.nn.functional as F
from torch import Tensor


def augment(x: Tensor, pad: int = 0, flip: bool = False) -> Tensor:
    """Zero-pad by `pad` pixels and crop back at a random place, then mirror half of the images."""
    if pad:
        x = pad_crop(x, pad)
    return mirror(x) if flip else x


def pad_crop(x: Tensor, pad: int) -> Tensor:
    count, channels, height, width = x.shape
    top, left = torch.randint(0, 2 * pad + 1, (2, count, 1), device=x.device)
    rows = (top + torch.arange(height, device=x.device))[:, None, :, None]
    columns = (left + torch.arange(width, device=x.device))[:, None, None, :]
    image = torch.arange(count, device=x.device)[:, None, None, None]
    channel = torch.arange(channels, device=x.device)[None, :, None, None]
    return F.pad(x, [pad] * 4)[image, channel, rows, columns]


def mirror(x: Tensor) -> Tensor:
    chosen = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
    return torch.where(chosen, x.flip(-1), x)
