"""MART: adversarial training that dwells on images which are misread already without an adversary."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from robustvit.attacks import Model
from robustvit.attacks.losses import hard_labels, kl
from robustvit.errors import UserError
from robustvit.objectives.adversarial import Adversarial
from robustvit.objectives.base import STEP, Loss, accuracy


@dataclass(frozen=True, slots=True)
class MART(Adversarial):
    """BCE(p(x′), y) + λ·KL(p(x) ‖ p(x′))·(1 − p_y(x)) (Wang et al., 2020), λ in `weight`.

    The gradient flows through both distributions and through 1 − p_y(x), as in the authors' code. A mixed image counts as of
    the class of largest share, since the boosted cross-entropy knows one true class only. The paper smooths no labels.
    """

    weight: float = 5.0

    def __post_init__(self) -> None:
        Adversarial.__post_init__(self)
        if not self.weight >= 0:
            raise UserError(f"mart.weight: {self.weight}; accepted: 0 or more")

    @property
    def cost(self) -> int:
        return self.adversary.cost() + 2 * STEP  # clean images are learned from too

    def loss(self, model: Model, x: Tensor, x_adv: Tensor, y: Tensor) -> Loss:
        clean, adversarial = model(x).float(), model(x_adv).float()
        truth = hard_labels(y)
        boosted = boosted_cross_entropy(adversarial, truth).mean()
        doubt = -torch.expm1(-F.cross_entropy(clean, truth, reduction="none"))  # 1 − p_y, exact where p_y is nearly 1
        distance = (kl(adversarial, clean) * doubt).mean()
        value = boosted + self.weight * distance
        metrics = {
            "loss": value.detach(),
            "boosted_cross_entropy": boosted.detach(),
            "weighted_kl": distance.detach(),
            "clean_accuracy": accuracy(clean, y),
            "adversarial_accuracy": accuracy(adversarial, y),
        }
        return Loss(value, metrics)


def boosted_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """−log p_y − log(1 − max_{k≠y} p_k), an image.

    1 − p_k is the sum of all other probabilities: so it stays finite, and has a gradient, where p_k rounds to 1.
    """
    rival = logits.detach().scatter(1, y[:, None], -torch.inf).argmax(1)
    without_rival = logits.scatter(1, rival[:, None], -torch.inf).logsumexp(1)
    return F.cross_entropy(logits, y, reduction="none") + logits.logsumexp(1) - without_rival
