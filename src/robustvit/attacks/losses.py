"""What attacks climb: each loss takes logits and what they are compared with; a value an image, larger is worse for the model.

Logits come in float32 at least: `Queries` sees to it. A label y is a class, int64 [B], or shares of all classes, float [B, K],
as mixed images have: cross-entropy takes the shares, what compares a class with the others takes the one of largest share.
"""

import warnings
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[..., Tensor]


def hard_labels(y: Tensor) -> Tensor:
    """The class of largest share; y itself where it holds classes."""
    return y.argmax(1) if y.is_floating_point() else y


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits, y.to(logits.dtype) if y.is_floating_point() else y, reduction="none")


def kl(logits: Tensor, clean_logits: Tensor) -> Tensor:
    """KL(p(x) ‖ p(x′)), the inner loss of TRADES (Zhang et al., 2019)."""
    return F.kl_div(logits.log_softmax(1), clean_logits.log_softmax(1), reduction="none", log_target=True).sum(1)


def margin(logits: Tensor, y: Tensor) -> Tensor:
    """max_{i≠y} z_i − z_y (Carlini & Wagner, 2017): above 0 the model is fooled."""
    return _others(logits, y).amax(1) - _at(logits, y)


def cw(logits: Tensor, y: Tensor, kappa: float = 50.0) -> Tensor:
    """The margin, no longer climbed once it exceeds κ."""
    return margin(logits, y).clamp(max=kappa)


def dlr(logits: Tensor, y: Tensor) -> Tensor:
    """Difference of logits ratio (Croce & Hein, 2020, eq. 6): the margin over z_π1 − z_π3, so that scale cannot mask it."""
    top = logits.topk(3, dim=1).values
    return margin(logits, y) / (top[:, 0] - top[:, 2] + 1e-12)


def targeted_dlr(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """−(z_y − z_t) / (z_π1 − ½(z_π3 + z_π4)) (Croce & Hein, 2020, eq. 7)."""
    top = logits.topk(4, dim=1).values
    return targeted_margin(logits, y, target) / (top[:, 0] - (top[:, 2] + top[:, 3]) / 2 + 1e-12)


def targeted_margin(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    return _at(logits, target) - _at(logits, y)


def mifpe(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy on z/(z_π1 − z_π2), which keeps the softmax from rounding to 0 and 1 (Yu & Xu, 2023, with T = 1).

    The factor is a constant to the gradient: it is there for the arithmetic, not to be climbed.
    """
    top = logits.detach().topk(2, dim=1).values
    return cross_entropy(logits / (top[:, :1] - top[:, 1:]).clamp(min=1e-12), y)


def gama(logits: Tensor, y: Tensor, start: Tensor, weight: Tensor) -> Tensor:
    """The margin of probabilities plus a weighted squared distance from those at the start (Sriramanan et al., 2020)."""
    p = logits.softmax(1)
    return margin(p, y) + weight * (start - p).square().sum(1)


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "kl": kl,
    "margin": margin,
    "cw": cw,
    "dlr": dlr,
    "mifpe": mifpe,
}
TARGETED_LOSSES: dict[str, Loss] = {"targeted_dlr": targeted_dlr, "targeted_margin": targeted_margin}
_ALL = LOSSES | TARGETED_LOSSES
# How many classes a loss needs, and what is taken where there are fewer.
NEEDS = {"dlr": (3, "margin"), "targeted_dlr": (4, "targeted_margin")}


@cache
def loss_named(name: str) -> Loss:
    """The loss of that name or, said aloud, the one to take where the model has too few classes for it."""

    def loss(logits: Tensor, *references: Tensor) -> Tensor:
        needed, instead = NEEDS.get(name, (0, name))
        if logits.shape[1] >= needed:
            return _ALL[name](logits, *references)
        warnings.warn(f"{name} needs {needed} classes and the model has {logits.shape[1]}: {instead} is used", stacklevel=2)
        return _ALL[instead](logits, *references)

    return loss


def _at(logits: Tensor, index: Tensor) -> Tensor:
    return logits.gather(1, hard_labels(index)[:, None]).squeeze(1)


def _others(logits: Tensor, y: Tensor) -> Tensor:
    """The logits with the true class out of the running."""
    return logits.scatter(1, hard_labels(y)[:, None], -torch.inf)
