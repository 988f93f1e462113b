"""TRADES: accuracy on clean images plus β times the distance to the adversary's."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from robustvit.attacks import Model
from robustvit.attacks.losses import kl
from robustvit.errors import UserError
from robustvit.objectives.adversarial import Adversarial
from robustvit.objectives.base import STEP, Loss, accuracy, check_smoothing


@dataclass(frozen=True, slots=True)
class TRADES(Adversarial):
    """CE(f(x), y) + β·KL(p(x) ‖ p(x′)) (Zhang et al., 2019, eq. 5).

    The gradient flows through both distributions, as in the authors' code. The adversary of the paper climbs the loss `kl`.
    """

    beta: float = 6.0
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        # slots=True rebuilds the class, so a bare super() would not find itself here.
        Adversarial.__post_init__(self)
        check_smoothing(self.label_smoothing)
        if not self.beta >= 0:
            raise UserError(f"trades.beta: {self.beta}; accepted: 0 or more")

    @property
    def cost(self) -> int:
        return self.adversary.cost() + 2 * STEP  # clean images are learned from too

    def loss(self, model: Model, x: Tensor, x_adv: Tensor, y: Tensor) -> Loss:
        clean, adversarial = model(x).float(), model(x_adv).float()
        natural = F.cross_entropy(clean, y, label_smoothing=self.label_smoothing)
        distance = kl(adversarial, clean).mean()
        value = natural + self.beta * distance
        metrics = {
            "loss": value.detach(),
            "kl": distance.detach(),
            "clean_accuracy": accuracy(clean, y),
            "adversarial_accuracy": accuracy(adversarial, y),
        }
        return Loss(value, metrics)
