"""Attacks made of attacks."""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from robustvit.attacks.base import Attack, Model
from robustvit.attacks.losses import cross_entropy
from robustvit.errors import UserError
from robustvit.threat import Threat


@dataclass(frozen=True, slots=True)
class Restarts(Attack):
    """`count` runs of an attack with random starts; per image the first that fools the model, else the highest loss."""

    inner: Attack
    count: int = 5

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UserError(f"restarts.count: {self.count}; accepted: 1 or more")
        if not getattr(self.inner, "random_start", True):
            raise UserError("restarts.inner.random_start: False; every restart would be the same, accepted: True")
        if getattr(self.inner, "targeted", False):
            raise UserError("restarts.inner.targeted: True; restarts keep what fools the model about y, accepted: False")

    @property
    def name(self) -> str:
        return f"{self.inner.name}x{self.count}"

    @property
    def threat(self) -> Threat:  # type: ignore[override]
        return self.inner.threat

    @property
    def seed(self) -> int | None:  # type: ignore[override]
        return self.inner.seed

    def perturb(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        best = x
        best_score = torch.full((len(x),), -torch.inf, device=x.device)
        for attempt in range(self.count):
            x_adv = self._attempt(attempt).perturb(model, x, y)
            score = _damage(model, x_adv, y)
            # NaN must win, or a broken model would pass for a robust one.
            better = (score > best_score) | score.isnan()
            best = torch.where(better.view(-1, *[1] * (x.dim() - 1)), x_adv, best)
            best_score = torch.where(better, score, best_score)
        return best

    def scaled(self, factor: float) -> Self:
        return replace(self, inner=self.inner.scaled(factor))

    def _attempt(self, attempt: int) -> Attack:
        if self.inner.seed is None:
            return self.inner
        # Seeds far apart: neighbouring user seeds must not share restarts.
        changes: dict[str, Any] = {"seed": self.inner.seed + attempt * 1_000_003}
        return replace(self.inner, **changes)  # type: ignore[type-var]


def _damage(model: Model, x_adv: Tensor, y: Tensor) -> Tensor:
    """The loss, lifted above every correct prediction's where the model is already wrong."""
    with torch.no_grad():
        logits = model(x_adv)
    loss = cross_entropy(logits, y)
    return torch.where(logits.argmax(1) == y, torch.atan(loss), torch.atan(loss) + torch.pi)
