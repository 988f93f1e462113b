"""Noise that belongs to an image: a hash of (seed, image content, step), so it does not depend on the batch or its order.

Written as int32 tensor code (which wraps on overflow) so that CPU and GPU give the same bits and it can be compiled.
"""

import torch
from torch import Tensor


def uniform(x: Tensor, seed: int | None, step: int = 0) -> Tensor:
    """Uniform noise in the open interval (0, 1), of x's shape.

    Without a seed it comes from torch's generator, which the training loop seeds at every step.
    """
    # Rounding to a shorter type, or torch's half-open generator, may touch an end of the interval.
    margin = torch.finfo(x.dtype).eps / 2
    if seed is None:
        return torch.rand_like(x).clamp(margin, 1 - margin)
    flat = x.flatten(1)
    position = torch.arange(flat.shape[1], device=x.device, dtype=torch.int32)
    # A sum that wraps is the same in any order; hashing pixel and position together keeps it from cancelling.
    content = _mix(flat.float().view(torch.int32) ^ _mix(position)).sum(1, keepdim=True, dtype=torch.int32)
    key = _mix(_mix(content ^ _int32(seed)) ^ _int32(step * 0x9E3779B9))
    bits = _mix(_mix(position + key) ^ key)
    # 23 bits and a half: exact in float32.
    noise = (_shift_right(bits, 9).float() + 0.5) * 2.0**-23
    return noise.to(x.dtype).clamp(margin, 1 - margin).view_as(x)


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
