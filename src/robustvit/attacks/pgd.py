"""Projected gradient ascent and its one-step form."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

from torch import Tensor

from robustvit import noise
from robustvit.attacks.base import CLASSES, Attack
from robustvit.attacks.losses import LOSSES, loss_named
from robustvit.attacks.query import Model, Queries
from robustvit.errors import UserError, unknown
from robustvit.threat import Threat

StepUnit = Literal["eps/steps", "eps", "absolute"]
STEP_UNITS: tuple[str, ...] = get_args(StepUnit)


@dataclass(frozen=True, slots=True)
class PGD(Attack):
    """Projected gradient ascent (Madry et al., 2018).

    A step is `step` times eps/steps, eps or 1, by `step_unit`; it shrinks with eps in all three, since a fixed step under a
    growing eps is a different attack at each epoch. With `targeted`, y is the class to reach.
    """

    threat: Threat
    steps: int = 10
    step: float = 2.5
    step_unit: StepUnit = "eps/steps"
    loss: str = "cross_entropy"
    random_start: bool = True
    targeted: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise UserError(f"pgd.steps: {self.steps}; accepted: 1 or more")
        if not self.step > 0:
            raise UserError(f"pgd.step: {self.step}; accepted: more than 0")
        if self.step_unit not in STEP_UNITS:
            raise unknown("pgd.step_unit", self.step_unit, STEP_UNITS)
        if self.loss not in LOSSES:
            raise unknown("pgd.loss", self.loss, LOSSES)
        if self.targeted and self.loss == "kl":
            raise UserError("pgd.targeted: the loss 'kl' compares with the clean output and knows no target class")
        if not self.random_start and self.loss == "kl":
            raise UserError("pgd.random_start: False; at the clean image the loss 'kl' has no gradient, accepted: True")

    @property
    def name(self) -> str:
        return self.named(f"pgd-{self.steps}", "steps")

    @property
    def step_size(self) -> float:
        unit = {"eps/steps": self.threat.eps / self.steps, "eps": self.threat.eps, "absolute": 1.0}
        return self.step * unit[self.step_unit]

    def perturb(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        ask, loss = Queries.of(model), loss_named(self.loss)
        target = ask(x) if self.loss == "kl" else y  # the clean logits, once an attack
        uphill = -1 if self.targeted else 1
        x_adv = self.threat.sample(x, noise.uniform(x, self.seed)) if self.random_start else x
        for _ in range(self.steps):
            grad = ask.gradient(x_adv, loss, target).grad
            x_adv = self.threat.project(x_adv + self.step_size * self.threat.steepest(uphill * grad, x_adv), x)
        return x_adv

    def cost(self, classes: int = CLASSES) -> int:
        return 2 * self.steps + (self.loss == "kl")

    def scaled(self, factor: float) -> Self:
        changes: dict[str, Any] = {"threat": self.threat.scaled(factor)}
        if self.step_unit == "absolute" and factor > 0:
            changes["step"] = self.step * factor
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class FGSM(Attack):
    """One step of `step`·eps along the sign of the gradient (Goodfellow et al., 2015); random start selectable."""

    threat: Threat
    step: float = 1.0
    random_start: bool = False
    targeted: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        if not self.step > 0:
            raise UserError(f"fgsm.step: {self.step}; accepted: more than 0")

    def perturb(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        one_step = PGD(
            self.threat,
            steps=1,
            step=self.step,
            random_start=self.random_start,
            targeted=self.targeted,
            seed=self.seed,
        )
        return one_step.perturb(model, x, y)

    def cost(self, classes: int = CLASSES) -> int:
        return 2
