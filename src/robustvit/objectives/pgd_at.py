"""Adversarial training."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from robustvit.attacks import Model
from robustvit.objectives.adversarial import Adversarial
from robustvit.objectives.base import Loss, accuracy, check_smoothing


@dataclass(frozen=True, slots=True)
class PGDAT(Adversarial):
    """Cross-entropy on adversarial images alone (Madry et al., 2018, eq. 2.1).

    Label smoothing enters the loss, not the attack's.
    """

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        # slots=True rebuilds the class, so a bare super() would not find itself here.
        Adversarial.__post_init__(self)
        check_smoothing(self.label_smoothing)

    def loss(self, model: Model, x: Tensor, x_adv: Tensor, y: Tensor) -> Loss:
        logits = model(x_adv).float()
        value = F.cross_entropy(logits, y, label_smoothing=self.label_smoothing)
        return Loss(value, {"loss": value.detach(), "adversarial_accuracy": accuracy(logits, y)})
