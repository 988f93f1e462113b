"""The point of a hyperplane, within the box [0, 1], that is nearest to an image."""

import torch
from torch import Tensor

TINY = 1e-300


def nearest(norm: str, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """argmin ‖z − x‖ over z in [0, 1]^d with <w, z> = b, for each row of x and w [B, d] and b [B]; in float64.

    The projection of FAB (Croce & Hein, 2020). Where the hyperplane misses the box: the corner that comes nearest to it, but
    pixels of no weight stay. Where w is zero: x itself. NaN stays NaN.

    What the norms share: moving pixel i helps only along sign(b − <w, x>)·sign(w_i), by t_i up to the room r_i that the box
    leaves there; with u = |w| the moves have to close the gap, Σ u_i t_i = |b − <w, x>|, at the least norm of t.
    """
    x, w, b = x.double(), w.double(), b.double()
    scale = w.abs().amax(1, keepdim=True)  # the squares of a saturated model's gradients would underflow
    scale = scale.masked_fill(scale == 0, 1)
    w, gap = w / scale, b / scale[:, 0] - (w / scale * x).sum(1)
    direction = w.sign() * gap.sign()[:, None]
    room = torch.where(direction > 0, 1 - x, x)
    moves = {"linf": _moves_linf, "l2": _moves_l2, "l1": _moves_l1}[norm](w.abs(), room, gap.abs()[:, None])
    return (x + direction * moves).clamp(0, 1)


def _moves_linf(u: Tensor, room: Tensor, gap: Tensor) -> Tensor:
    """t_i = min(τ, r_i): to move one pixel less than the others would only be needed where it has no room."""
    return torch.minimum(_level(u, u * room, room.masked_fill(u == 0, 0), gap), room)


def _moves_l2(u: Tensor, room: Tensor, gap: Tensor) -> Tensor:
    """t_i = min(λ u_i, r_i), from the Lagrangian ½‖t‖² − λ(Σ u_i t_i − gap) on 0 ≤ t_i ≤ r_i."""
    corners = torch.where(u > 0, room / u, 0)
    return torch.minimum(_level(u * u, u * room, corners, gap) * u, room)


def _moves_l1(u: Tensor, room: Tensor, gap: Tensor) -> Tensor:
    """Greedy: the pixel of the largest weight gains most for its way, so it moves first, as far as it has room."""
    weight, order = u.sort(1, descending=True)
    room = room.gather(1, order)
    gain = weight * room
    before = gain.cumsum(1) - gain
    moves = torch.minimum(((gap - before) / weight.clamp(min=TINY)).clamp(min=0), room)
    return torch.empty_like(moves).scatter_(1, order, moves)


def _level(slope: Tensor, most: Tensor, corners: Tensor, gap: Tensor) -> Tensor:
    """The smallest λ ≥ 0 with Σ min(λ·slope_i, most_i) = gap, [B, 1]; past every corner where there is none.

    The sum rises with λ, and term i is spent at corner_i = most_i / slope_i: sort the corners, count those that are passed
    before the sum reaches the gap, and divide what is left of the gap among the slopes of the others.
    """
    corners, order = corners.sort(1)
    nothing = torch.zeros_like(gap)
    spent = torch.cat([nothing, most.gather(1, order).cumsum(1)], 1)
    rest = torch.cat([slope.gather(1, order).flip(1).cumsum(1).flip(1), nothing], 1)
    passed = (spent[:, 1:] + corners * rest[:, 1:] < gap).sum(1, keepdim=True)
    level = (gap - spent.gather(1, passed)) / rest.gather(1, passed).clamp(min=TINY)
    return level.clamp(max=1 / TINY)  # infinity times a weight of zero is not a number
