"""A window of images under attack: broken ones leave at once with their example, the others are packed together."""

from dataclasses import fields
from typing import Self

import torch
from torch import Tensor

from robustvit.attacks.losses import hard_labels
from robustvit.attacks.query import Queries


class Window:
    """`x` and `y` are the images still robust; `result` has a row for each image that came in."""

    def __init__(self, ask: Queries, x: Tensor, y: Tensor) -> None:
        self.ask, self.x, self.y = ask, x, y
        self.result = x.clone()
        self.place = torch.arange(len(x), device=x.device)  # where each survivor stands in the result

    def __len__(self) -> int:
        return len(self.x)

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
        found = x_adv[fooled].masked_fill(broken[fooled].view(-1, *[1] * (x_adv.dim() - 1)), torch.nan)
        self.result[self.place[fooled]] = found
        return self._take_out(broken if self.ask.draws > 1 else fooled)

    def settle(self, x_adv: Tensor) -> None:
        """The best that a run found for the images that stand; where answers are random, those that it fools leave now."""
        self.result[self.place] = x_adv
        if self.ask.draws > 1 and len(self):
            ask = self.ask.exactly() if self.ask.approximate else self.ask
            self._take_out(ask(x_adv).argmax(1) != hard_labels(self.y))

    def _take_out(self, rows: Tensor) -> Tensor | None:
        if not rows.any():
            return None
        stay = (~rows).nonzero().squeeze(1)
        self.x, self.y, self.place = self.x[stay], self.y[stay], self.place[stay]
        return stay


class Rows:
    """Base of an attack's state: a dataclass of tensors with one row an image, packed as images leave."""

    def keep(self, stay: Tensor | None) -> Self:
        """Only these rows; None keeps all."""
        if stay is not None:
            for each in fields(self):  # type: ignore[arg-type]
                setattr(self, each.name, getattr(self, each.name)[stay])
        return self
