"""What attacks climb: each loss takes (logits, reference) and returns one value an image, larger is worse for the model."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), y, reduction="none")


def kl(logits: Tensor, clean_logits: Tensor) -> Tensor:
    """KL(p(x) ‖ p(x′)), the inner loss of TRADES (Zhang et al., 2019)."""
    clean = clean_logits.float().log_softmax(1)
    return F.kl_div(logits.float().log_softmax(1), clean, reduction="none", log_target=True).sum(1)


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "kl": kl}


def reference(name: str, model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """What the loss compares with: the labels or, for `kl`, the clean logits, computed once per attack."""
    if name != "kl":
        return y
    with torch.no_grad():
        return model(x)
