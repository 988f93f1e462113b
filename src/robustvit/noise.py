"""Noise that belongs to an image: a hash of (seed, image content, step), so it does not depend on the batch or its order.

Written as int32 tensor code (which wraps on overflow) so that CPU and GPU give the same bits and it can be compiled.
"""

import torch
from torch import Tensor


def uniform(x: Tensor, seed: int | None, step: int | Tensor = 0) -> Tensor:
    """Uniform noise in the open interval (0, 1), of x's shape; `step` is a number, or one for each image.

    Without a seed it comes from torch's generator, which the training loop seeds at every step.
    """
    if seed is None:
        return _open_interval(torch.rand_like(x))
    noise = draw(keys(x, seed), step, x[0].numel() if len(x) else 0)
    return _open_interval(noise.to(x.dtype)).view_as(x)


def keys(x: Tensor, seed: int | None) -> Tensor:
    """One int32 an image, from its content and the seed: what an attack that draws often keeps instead of the image."""
    if seed is None:
        return torch.randint(-(2**31), 2**31, (len(x),), device=x.device, dtype=torch.int32)
    flat = x.flatten(1)
    # A sum that wraps is the same in any order; hashing pixel and position together keeps it from cancelling.
    content = _mix(flat.float().view(torch.int32) ^ _mix(_positions(flat.shape[1], x))).sum(1, dtype=torch.int32)
    return _mix(content ^ _int32(seed))


def numbered(index: Tensor, seed: int, epoch: int) -> Tensor:
    """One int32 an image, from its number in the set: augmentation has its own at each epoch, whatever the image's content."""
    key = _mix(index.to(torch.int32))
    for word in (seed, epoch):
        key = _mix(key ^ _int32((word + 1) * 0x9E3779B9))
    return key


def draw(keys: Tensor, step: int | Tensor, count: int) -> Tensor:
    """`count` uniform float32 numbers in (0, 1) for each key: [N, count]; `step` is a number, or one for each key."""
    # Both wrap alike: a whole number here, int32 there.
    word = _int32(step * 0x9E3779B9) if isinstance(step, int) else step.to(torch.int32) * _int32(0x9E3779B9)
    key = _mix(keys ^ word)[:, None]
    bits = _mix(_mix(_positions(count, keys) + key) ^ key)
    # 23 bits and a half: exact in float32.
    return (_shift_right(bits, 9).float() + 0.5) * 2.0**-23


def _positions(count: int, like: Tensor) -> Tensor:
    return torch.arange(count, device=like.device, dtype=torch.int32)


def _open_interval(noise: Tensor) -> Tensor:
    """Rounding to a shorter type, or torch's half-open generator, may touch an end."""
    margin = torch.finfo(noise.dtype).eps / 2
    return noise.clamp(margin, 1 - margin)


def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _shift_right(bits: Tensor, by: int) -> Tensor:
    """A logical shift: torch's own drags the sign along."""
    return (bits >> by) & ((1 << (32 - by)) - 1)


def _mix(bits: Tensor) -> Tensor:
    """A bijection of 32 bits in which each input bit flips each output bit about half the time (lowbias32, C. Wellons)."""
    bits = (bits ^ _shift_right(bits, 16)) * _int32(0x21F0AAAD)
    bits = (bits ^ _shift_right(bits, 15)) * _int32(0xD35A2D97)
    return bits ^ _shift_right(bits, 15)
