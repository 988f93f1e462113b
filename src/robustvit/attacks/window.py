"""A window of images under attack: broken ones leave at once with their example, the others are packed together."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Self

import torch
from torch import Tensor

from robustvit.attacks.losses import hard_labels
from robustvit.attacks.query import Queries


class Window:
    """The rows still under attack, `x` and `y`; `result` has one for each image that came in.

    An image has one row, or within `in_turn` one for each run that is made at the same time.
    """

    def __init__(self, ask: Queries, x: Tensor, y: Tensor) -> None:
        self.ask, self.x, self.y = ask, x, y
        self.result = x.clone()
        self.place = torch.arange(len(x), device=x.device)  # where each row's image stands in the result
        self.run = torch.zeros_like(self.place)  # which run each row is of

    def __len__(self) -> int:
        return len(self.x)

    def in_turn(self, runs: int) -> Iterator[None]:
        """So many runs on the images that stand, as many at a time as the device answers about as fast as one.

        Nothing of a run's path depends on the others; only, an image that one of them breaks is at once left by all.
        """
        first = 0
        while first < runs and len(self):
            count = min(self.ask.at_once(self.x), runs - first)
            rows = torch.arange(len(self), device=self.x.device).repeat(count)
            run = torch.arange(first, first + count, device=self.x.device).repeat_interleave(len(self))
            self._take(rows)
            self.run = run
            yield
            self._take((self.run == self.run[:1]).nonzero().squeeze(1))
            first += count

    def claim(self, x_adv: Tensor, logits: Tensor, eligible: Tensor | None = None) -> Tensor | None:
        """Take out the images whose example fools the model; -> the rows that stay, or None if all do.

        Only `eligible` rows (inside the ball, for attacks that leave it on their way) count. What an approximate answer
        claims is asked again in full precision. Logits that are not numbers make the example NaN, which `Attack` reports.

        Averages of random answers take nobody out: over the steps of a run one is lucky, and the image would stop half way up.
        The example is kept, the image stays, and `settle` asks afresh.
        """
        fooled = logits.argmax(1) != hard_labels(self.y)
        if eligible is not None:
            fooled &= eligible
        broken = ~logits.isfinite().all(1)
        fooled |= broken
        if not fooled.any():
            return None
        if self.ask.approximate:
            rows = fooled.nonzero().squeeze(1)
            fooled[rows] = (self.ask.exactly()(x_adv[rows]).argmax(1) != hard_labels(self.y[rows])) | broken[rows]
            if not fooled.any():
                return None
        rows = self._one_an_image(fooled.nonzero().squeeze(1))
        self.result[self.place[rows]] = x_adv[rows].masked_fill(broken[rows].view(-1, *[1] * (x_adv.dim() - 1)), torch.nan)
        return self._take_out(broken if self.ask.draws > 1 else fooled)

    def settle(self, x_adv: Tensor) -> None:
        """The best that a run found for the images that stand; where answers are random, those that it fools leave now."""
        rows = self.run == self.run[:1]
        self.result[self.place[rows]] = x_adv[rows]
        if self.ask.draws > 1 and len(self):
            ask = self.ask.exactly() if self.ask.approximate else self.ask
            self._take_out(ask(x_adv).argmax(1) != hard_labels(self.y))

    def _one_an_image(self, rows: Tensor) -> Tensor:
        """Of rows of the same image the first."""
        first = torch.full((len(self.result),), len(self), device=rows.device)
        first.scatter_reduce_(0, self.place[rows], rows, "amin")
        return rows[first[self.place[rows]] == rows]

    def _take_out(self, rows: Tensor) -> Tensor | None:
        """All rows of the images that have one of these."""
        if not rows.any():
            return None
        gone = torch.zeros(len(self.result), dtype=torch.bool, device=rows.device)
        gone[self.place[rows]] = True
        stay = (~gone[self.place]).nonzero().squeeze(1)
        self._take(stay)
        return stay

    def _take(self, rows: Tensor) -> None:
        self.x, self.y, self.place, self.run = self.x[rows], self.y[rows], self.place[rows], self.run[rows]


class Rows:
    """Base of an attack's state: a dataclass of tensors with one row an image, packed as images leave."""

    def keep(self, stay: Tensor | None) -> Self:
        """Only these rows; None keeps all."""
        if stay is not None:
            for each in fields(self):  # type: ignore[arg-type]
                setattr(self, each.name, getattr(self, each.name)[stay])
        return self
