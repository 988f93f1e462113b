"""Attacks round an attack: the same steps, asked differently or more often."""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from robustvit.attacks.base import CLASSES, Attack
from robustvit.attacks.losses import cross_entropy, hard_labels
from robustvit.attacks.query import Model, Queries
from robustvit.errors import UserError
from robustvit.precision import Precision
from robustvit.threat import Threat


class Wrapper(Attack):
    """An attack round `inner`, whose threat and seed are its own."""

    inner: Attack

    @property
    def threat(self) -> Threat:  # type: ignore[override]
        return self.inner.threat

    @property
    def seed(self) -> int | None:  # type: ignore[override]
        return self.inner.seed

    @property
    def random(self) -> bool:
        return self.inner.random

    @property
    def unseeded(self) -> bool:
        return self.inner.unseeded

    @property
    def targeted(self) -> bool:
        return getattr(self.inner, "targeted", False)

    @property
    def draws(self) -> int:
        return self.inner.draws

    def scaled(self, factor: float) -> Self:
        changes: dict[str, Any] = {"inner": self.inner.scaled(factor)}
        return replace(self, **changes)  # type: ignore[type-var]

    def restarted(self, attempt: int) -> Self:
        changes: dict[str, Any] = {"inner": self.inner.restarted(attempt)}
        return replace(self, **changes)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True)
class Restarts(Wrapper):
    """`count` runs of an attack with random starts; fooling images leave, of the others the highest loss is kept."""

    inner: Attack
    count: int = 5

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UserError(f"restarts.count: {self.count}; accepted: 1 or more")
        if not self.inner.random:
            raise UserError(f"restarts.inner: {self.inner.name} has no random start; every restart would be the same")
        if getattr(self.inner, "targeted", False):
            raise UserError("restarts.inner.targeted: True; restarts keep what fools the model about y, accepted: False")

    @property
    def name(self) -> str:
        return f"{self.inner.name}x{self.count}"

    def restarted(self, attempt: int) -> Self:
        """Attempts of its own: as an attack of attempts it would share some with its neighbours."""
        return replace(self, inner=self.inner.restarted(attempt * self.count))

    def cost(self, classes: int = CLASSES) -> int:
        return self.count * (self.inner.cost(classes) + self.draws)

    def perturb(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        ask = Queries.of(model)
        judge = replace(ask, draws=max(ask.draws, self.draws))
        best = x.clone()
        best_loss = torch.full((len(x),), -torch.inf, device=x.device)
        left = torch.arange(len(x), device=x.device)
        for attempt in range(self.count):
            x_adv = self.inner.restarted(attempt).perturb(ask, x[left], y[left])
            logits = judge.exactly()(x_adv) if ask.approximate else judge(x_adv)
            loss = cross_entropy(logits, y[left])
            # NaN must win, or a broken model would pass for a robust one.
            fooled = (logits.argmax(1) != hard_labels(y[left])) | loss.isnan()
            better = fooled | (loss > best_loss[left])
            best[left[better]], best_loss[left[better]] = x_adv[better], loss[better].to(best_loss.dtype)
            left = left[~fooled]
            if not len(left):
                break
        return best


@dataclass(frozen=True, slots=True)
class InPrecision(Wrapper):
    """An attack that asks the model in TF32 or bf16; what it claims is asked again in full precision."""

    inner: Attack
    precision: Precision = "tf32"

    @property
    def name(self) -> str:
        return self.inner.name if self.precision == "fp32" else f"{self.inner.name}-{self.precision}"

    def cost(self, classes: int = CLASSES) -> int:
        return self.inner.cost(classes)

    def perturb(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        return self.inner.perturb(replace(Queries.of(model), precision=self.precision), x, y)


@dataclass(frozen=True, slots=True)
class EOT(Wrapper):
    """Expectation over `draws` answers of a stochastic model (Athalye et al., 2018): mean gradients, averaged predictions."""

    inner: Attack
    draws: int = 20

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise UserError(f"eot.draws: {self.draws}; accepted: 1 or more")

    @property
    def name(self) -> str:
        return f"{self.inner.name}-eot{self.draws}"

    def cost(self, classes: int = CLASSES) -> int:
        return self.draws * self.inner.cost(classes)

    def perturb(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        return self.inner.perturb(replace(Queries.of(model), draws=self.draws), x, y)


@dataclass(frozen=True, slots=True)
class LogitScaling(Wrapper):
    """An attack on `factor` times the logits, where a model's own scale starves the gradient; the prediction is the same."""

    inner: Attack
    factor: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.factor < float("inf"):
            raise UserError(f"logit_scaling.factor: {self.factor}; accepted: a finite number above 0")

    @property
    def name(self) -> str:
        return f"{self.inner.name}-scale{self.factor:g}"

    def cost(self, classes: int = CLASSES) -> int:
        return self.inner.cost(classes)

    def perturb(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        return self.inner.perturb(replace(Queries.of(model), scale=self.factor), x, y)
