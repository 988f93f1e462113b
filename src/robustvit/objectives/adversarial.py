"""What the objectives that train against an adversary share."""

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from robustvit.attacks import Attack, Model, attackable
from robustvit.errors import UserError
from robustvit.objectives.base import Objective


@dataclass(frozen=True, slots=True)
class Adversarial(Objective):
    """An objective whose images come from `adversary`.

    The adversary has no seed of its own: with one, an image would meet the same random start in every epoch.
    """

    adversary: Attack

    def __post_init__(self) -> None:
        if self.adversary.seed is not None:
            raise UserError(
                f"objective.adversary.seed: {self.adversary.seed}; accepted: null, so that each epoch draws new starts "
                "(the run's own seed makes it reproducible)"
            )

    def attack(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        with attackable(model):
            return self.adversary.perturb(model, x, y).detach()

    def scaled(self, factor: float) -> Self:
        return replace(self, adversary=self.adversary.scaled(factor))
