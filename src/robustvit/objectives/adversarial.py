"""What the objectives that train against an adversary share."""

from dataclasses import dataclass, field, replace
from typing import Self

from torch import Tensor

from robustvit.attacks import Attack, Model, attackable
from robustvit.errors import UserError
from robustvit.objectives.base import STEP, Objective


@dataclass(frozen=True, slots=True)
class Adversarial(Objective):
    """An objective whose images come from `adversary`, which attacks the model in eval mode unless `in_train_mode`.

    The adversary has no seed of its own: with one, an image would meet the same random start in every epoch.
    """

    adversary: Attack
    in_train_mode: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.adversary.seed is not None:
            raise UserError(
                f"objective.adversary.seed: {self.adversary.seed}; accepted: null, so that each epoch draws new starts "
                "(the run's own seed makes it reproducible)"
            )
        if getattr(self.adversary, "targeted", False):
            raise UserError(
                "objective.adversary.targeted: True, which would move each image towards its own class and so help the model; "
                "accepted: False"
            )

    def attack(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        with attackable(model, train=self.in_train_mode):
            return self.adversary.perturb(model, x, y).detach()

    @property
    def eps(self) -> float:
        return self.adversary.threat.eps

    @property
    def cost(self) -> int:
        return self.adversary.cost() + STEP

    def scaled(self, factor: float) -> Self:
        return replace(self, adversary=self.adversary.scaled(factor))
