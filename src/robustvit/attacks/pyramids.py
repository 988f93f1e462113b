"""The moves of the Square Attack in ℓ2 and ℓ1: pyramids on a window, which take over the mass of a second one."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from robustvit.threat import Threat

TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Pyramids:
    """Algorithm 3 of Andriushchenko et al. (2020); for ℓ1 with steeper pyramids and the projection onto ball ∩ box, as
    Croce & Hein (2021).

    One turn of the pattern for all channels, a sign for each, as in the authors' code. Its grid of the start leaves an edge
    free, or fails, where the image's side is not near a multiple of five: here it is centred, of as many tiles as fit.
    """

    threat: Threat
    known: dict[int, Tensor] = field(default_factory=dict)  # patterns by side

    @property
    def order(self) -> int:
        return 2 if self.threat.norm == "l2" else 1

    def luck_to_start(self, x: Tensor) -> int:
        _, rows, columns = _grid(x)
        return rows * columns * (1 + x.shape[1])

    def luck_to_propose(self, x: Tensor) -> int:
        return 5 + x.shape[1]

    def start(self, x: Tensor, luck: Tensor) -> Tensor:
        """A grid of tiles of a fifth of the image's side, each with its own turn and signs."""
        side, rows, columns = _grid(x)
        luck = luck.view(len(x), 1 + x.shape[1], rows, columns, 1, 1)
        tiles = self._signed_patterns(x, luck[:, :1], luck[:, 1:], side)
        delta = tiles.transpose(3, 4).reshape(len(x), x.shape[1], rows * side, columns * side)
        spare = x.shape[2] - rows * side, x.shape[3] - columns * side
        top, left = spare[0] // 2, spare[1] // 2
        return self._inside(x, F.pad(delta, (left, spare[1] - left, top, spare[0] - top)))

    def propose(self, x: Tensor, best: Tensor, luck: Tensor, side: int) -> Tensor:
        """Empty one window, add a pyramid to another, and give this all that the two held and all of ε that is not spent."""
        channels = x.shape[1]
        delta = (best - x).flatten(2)
        here, there = (_cells(luck[:, k : k + 2], side, x) for k in (0, 2))
        old, lost = delta.gather(2, here), delta.gather(2, there)
        emptied = delta.scatter(2, there, 0)
        # The power of the norm adds up over parts; the windows' overlap counts once.
        held = self._length(emptied.gather(2, here), 2) ** self.order + self._length(lost, 2) ** self.order
        unspent = (self.threat.eps**self.order - self._length(delta, (1, 2)) ** self.order).clamp(min=0)
        turn, signs = luck[:, 4].view(-1, 1, 1, 1), luck[:, 5:, None, None]
        new = self._signed_patterns(x, turn, signs, side).flatten(2)
        new += old / (self._length(old, 2) + TINY)
        share = unspent / channels + held
        # In ℓ1 c times that, as in the authors' code: the projection takes back what is too much.
        new *= (share.sqrt() if self.order == 2 else channels * share) / (self._length(new, 2) + TINY)
        return self._inside(x, emptied.scatter_(2, here, new).view_as(x))

    def _inside(self, x: Tensor, delta: Tensor) -> Tensor:
        """ℓ2 is scaled to ε, then clipped to the box: what that cuts off, the next proposal finds unspent."""
        if self.order == 1:
            return self.threat.project(x + delta, x)
        return torch.addcmul(x, delta, self.threat.eps / (self._length(delta, (1, 2, 3)) + TINY)).clamp_(0, 1)

    def _length(self, delta: Tensor, dim: int | tuple[int, ...]) -> Tensor:
        return torch.linalg.vector_norm(delta, self.order, dim, keepdim=True)

    def _signed_patterns(self, x: Tensor, turn: Tensor, signs: Tensor, side: int) -> Tensor:
        """The pattern, turned or not, with a sign: uniform numbers [..., 1, 1] -> [..., side, side]."""
        if side not in self.known:
            self.known[side] = two_pyramids(side, self.order, x)
        pattern = self.known[side]
        return torch.where(turn < 0.5, pattern.T, pattern) * torch.where(signs < 0.5, -1.0, 1.0).to(x.dtype)


def two_pyramids(side: int, order: int, like: Tensor) -> Tensor:
    """One pyramid on the upper half of the window and one, negated, on the lower; of length 1."""
    half = side // 2
    halves = [sign * _pyramid(rows, side, order, like) for sign, rows in ((1, half), (-1, side - half))]
    both = torch.cat(halves)
    return both / torch.linalg.vector_norm(both, order)


def _pyramid(rows: int, columns: int, order: int, like: Tensor) -> Tensor:
    """Σ_{k ≥ d} 1/(k+1)^{2 or, in ℓ1, 4} at Chebyshev distance d from the centre (eq. 2 of the paper); of length 1."""
    if not rows:
        return like.new_zeros(0, columns)
    steps = max(rows // 2, columns // 2) + 1
    terms = torch.arange(1, steps + 1, device=like.device, dtype=like.dtype) ** (-2 if order == 2 else -4)
    heights = terms.flip(0).cumsum(0).flip(0)
    down, across = (abs(torch.arange(n, device=like.device) - n // 2) for n in (rows, columns))
    pyramid = heights[torch.maximum(down[:, None], across)]
    return pyramid / torch.linalg.vector_norm(pyramid, order)


def _grid(x: Tensor) -> tuple[int, int, int]:
    """Side, rows and columns of the start's tiles."""
    height, width = x.shape[2:]
    side = max(min(height, width) // 5, 1)
    return side, height // side, width // side


def _cells(luck: Tensor, side: int, x: Tensor) -> Tensor:
    """Where in the flattened image each window's pixels are: [B, channels, side²]."""
    height, width = x.shape[2:]
    top, left = ((luck[:, k] * (n - side + 1)).long().view(-1, 1, 1) for k, n in enumerate((height, width)))
    place = torch.arange(side, device=x.device)
    cells = (top + place[:, None]) * width + left + place
    return cells.view(len(x), 1, -1).expand(-1, x.shape[1], -1)
