"""Training on clean images."""

from dataclasses import dataclass
from typing import Self

import torch.nn.functional as F
from torch import Tensor

from robustvit.attacks import Model
from robustvit.objectives.base import STEP, Loss, Objective, accuracy, check_smoothing


@dataclass(frozen=True, slots=True)
class Standard(Objective):
    """Cross-entropy; the attack is the identity."""

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_smoothing(self.label_smoothing)

    def attack(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        return x

    def loss(self, model: Model, x: Tensor, x_adv: Tensor, y: Tensor) -> Loss:
        logits = model(x).float()
        value = F.cross_entropy(logits, y, label_smoothing=self.label_smoothing)
        return Loss(value, {"loss": value.detach(), "clean_accuracy": accuracy(logits, y)})

    @property
    def cost(self) -> int:
        return STEP

    def scaled(self, factor: float) -> Self:
        return self
