"""The Square Attack: random search that changes one square window at a time and keeps what helps."""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from robustvit import noise
from robustvit.attacks.base import CLASSES, Attack
from robustvit.attacks.losses import margin
from robustvit.attacks.pyramids import Pyramids
from robustvit.attacks.query import Model, Queries
from robustvit.attacks.window import Rows, Window
from robustvit.errors import UserError
from robustvit.threat import Threat

HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # after these queries p is halved, whatever `queries` is
BLOCK = 64  # queries that share one call of the noise
LOOK = 16  # queries from one look at who is fooled to the next: each look waits for the device


@dataclass(frozen=True, slots=True)
class Square(Attack):
    """Square Attack (Andriushchenko et al., 2020, algorithms 1 to 3), in ℓ1 as Croce & Hein (2021); it needs no gradient.

    Each query changes a window that covers a share `p` of the image and is kept where the margin loss rises. `p` falls by
    AutoAttack's schedule for 10,000 queries, which is not stretched to `queries`: a longer run begins like a shorter one.
    The authors' code draws window and pattern once for the whole batch, and never a window at the last row or column: here
    each image has its own, from all places. A point that is misclassified as it stands is not passed over.
    """

    threat: Threat
    queries: int = 5000
    p: float = 0.8
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.queries < 1:
            raise UserError(f"square.queries: {self.queries}; accepted: 1 or more")
        if not 0 < self.p <= 1:
            raise UserError(f"square.p: {self.p}; accepted: above 0, up to 1")

    def cost(self, classes: int = CLASSES) -> int:
        return self.queries + 2  # asked about the best once more where answers are random

    def perturb(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        window = Window(Queries.of(model), x, y)
        moves: Moves = Stripes(self.threat) if self.threat.norm == "linf" else Pyramids(self.threat)
        keys = noise.keys(x, self.seed)
        best = moves.start(x, noise.draw(keys, 0, moves.luck_to_start(x)))
        logits = window.ask(best)
        state = _State(keys, best, margin(logits, y), logits, keys)
        state.keep(window.claim(state.best, state.logits))
        for query in range(self.queries):
            if not len(window):
                break
            if query % BLOCK == 0:
                luck = noise.draw(state.keys, 1 + query // BLOCK, BLOCK * moves.luck_to_propose(x))
                state.luck = luck.unflatten(1, (BLOCK, -1))
            side = self.side(query, x.shape[2], x.shape[3])
            x_adv = moves.propose(window.x, state.best, state.luck[:, query % BLOCK], side)
            logits = window.ask(x_adv)
            state.improve(x_adv, margin(logits, window.y), logits)
            # Who is fooled stays so: a better example fools more.
            if (query + 1) % LOOK == 0 or query + 1 == self.queries:
                state.keep(window.claim(state.best, state.logits))
        window.settle(state.best)
        return window.result

    def side(self, query: int, height: int, width: int) -> int:
        """Of the window at this query, counted from 0; in ℓ2 and ℓ1 odd and 3 at least, where the image has room for it."""
        share = self.p / 2 ** sum(query > after for after in HALVINGS)
        side = max(round(math.sqrt(share * height * width)), 1)
        if self.threat.norm != "linf":
            side = max(side, 3) | 1
        return min(side, height, width)


class Moves(Protocol):
    """What differs between the norms. `luck` holds uniform numbers, so many for each image."""

    def luck_to_start(self, x: Tensor) -> int: ...
    def luck_to_propose(self, x: Tensor) -> int: ...
    def start(self, x: Tensor, luck: Tensor) -> Tensor: ...
    def propose(self, x: Tensor, best: Tensor, luck: Tensor, side: int) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Stripes:
    """ℓ∞ (algorithm 2): vertical stripes of ±ε, then windows of ±ε; a sign for each channel."""

    threat: Threat

    def luck_to_start(self, x: Tensor) -> int:
        return x.shape[1] * x.shape[3]

    def luck_to_propose(self, x: Tensor) -> int:
        return 2 + x.shape[1]

    def start(self, x: Tensor, luck: Tensor) -> Tensor:
        return self._corner(x, luck.view(len(x), x.shape[1], 1, x.shape[3]))

    def propose(self, x: Tensor, best: Tensor, luck: Tensor, side: int) -> Tensor:
        rows = _covered(luck[:, 0], side, x.shape[2])
        columns = _covered(luck[:, 1], side, x.shape[3])
        inside = (rows[:, :, None] & columns[:, None])[:, None]
        return torch.where(inside, self._corner(x, luck[:, 2:, None, None]), best)

    def _corner(self, x: Tensor, luck: Tensor) -> Tensor:
        eps = self.threat.eps
        return (x + torch.where(luck < 0.5, -eps, eps).to(x.dtype)).clamp_(0, 1)


def _covered(luck: Tensor, side: int, length: int) -> Tensor:
    """Which of `length` rows or columns each image's window covers: [B, length]."""
    # A number below 1 times a whole one, rounded to float32, stays below the whole one.
    first = (luck * (length - side + 1)).int()[:, None]
    place = torch.arange(length, device=luck.device, dtype=torch.int32)
    return (place >= first) & (place < first + side)


@dataclass
class _State(Rows):
    """Of each image that stands."""

    keys: Tensor
    best: Tensor
    loss: Tensor
    logits: Tensor
    luck: Tensor  # [B, BLOCK, numbers a query]

    def improve(self, x_adv: Tensor, loss: Tensor, logits: Tensor) -> None:
        better = (loss > self.loss) | loss.isnan()  # what is not a number must be noticed
        self.loss = torch.where(better, loss, self.loss)
        self.logits = torch.where(better[:, None], logits, self.logits)
        self.best = torch.where(better.view(-1, 1, 1, 1), x_adv, self.best)
