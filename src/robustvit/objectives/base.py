"""The contract of an objective: first the attack, then the loss on what it found.

They are split so that the attack runs on the raw, frozen module while only the loss passes through the distributed wrapper.
"""

from dataclasses import dataclass
from typing import Self

from torch import Tensor

from robustvit.attacks import Model
from robustvit.attacks.losses import hard_labels
from robustvit.errors import UserError


@dataclass(frozen=True, slots=True)
class Loss:
    """A scalar to differentiate and the batch means to log, all still on the device."""

    value: Tensor
    metrics: dict[str, Tensor]


STEP = 3  # passes of a training step on one batch: forward, and backward to weights and activations


class Objective:
    """Base of all objectives: frozen dataclasses that know nothing of time (see `training.schedule.Phase`)."""

    in_train_mode: bool = False  # is the model attacked in the mode that it learns in?

    def attack(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not implement attack()")

    def loss(self, model: Model, x: Tensor, x_adv: Tensor, y: Tensor) -> Loss:
        raise NotImplementedError(f"{type(self).__name__} does not implement loss()")

    @property
    def eps(self) -> float | None:
        """The adversary's reach, if there is one."""
        return None

    @property
    def cost(self) -> int:
        """Passes of a step: a forward pass and an image's gradient count one each, the gradient of weights as two."""
        raise NotImplementedError(f"{type(self).__name__} does not implement cost")

    def scaled(self, factor: float) -> Self:
        """The same objective against factor·eps."""
        raise NotImplementedError(f"{type(self).__name__} does not implement scaled()")


def check_smoothing(share: float) -> None:
    if not 0 <= share <= 1:
        raise UserError(f"objective.label_smoothing: {share}; accepted: 0 to 1")


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    return (logits.detach().argmax(1) == hard_labels(y)).float().mean()
