"""Which classes a targeted run aims at."""

import torch
from torch import Tensor

from robustvit.attacks.losses import hard_labels


def likeliest_others(logits: Tensor, y: Tensor, count: int) -> Tensor:
    """The `count` classes after the true one, likeliest first: [B, min(count, K − 1)]."""
    others = logits.scatter(1, hard_labels(y)[:, None], -torch.inf)
    return others.topk(min(count, logits.shape[1] - 1), dim=1).indices
