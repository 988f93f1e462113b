"""The optimiser of a phase."""

import torch
from timm.optim import create_optimizer_v2, list_optimizers

from robustvit.config import Optim
from robustvit.errors import UserError, unknown
from robustvit.models import Classifier


def make_optimizer(optim: Optim, model: Classifier) -> torch.optim.Optimizer:
    """timm's optimiser of that name over what is trainable.

    Weights of one dimension are not decayed, nor are those that the architecture exempts, such as positions and class tokens.
    """
    if optim.type not in list_optimizers():
        raise unknown("optim.type", optim.type, list_optimizers())
    rates = {"lr": optim.lr, "weight_decay": optim.weight_decay, "layer_decay": optim.layer_decay}
    try:
        # The backbone, not the classifier round it: only the former tells timm its layers and its exemptions.
        optimizer = create_optimizer_v2(model.backbone, optim.type, **rates, **optim.args)
    except (TypeError, ValueError, LookupError, AssertionError) as error:
        raise UserError(f"optim: {optim.type} does not accept lr={optim.lr}, args={optim.args}: {error}") from None
    scales = {group.get("lr_scale", 1.0) for group in optimizer.param_groups}
    whole = all(p.requires_grad for p in model.backbone.parameters())  # of one part that trains, all may be one layer
    if optim.layer_decay not in (None, 1.0) and whole and len(scales) == 1:
        raise UserError(f"optim.layer_decay: {optim.layer_decay}; accepted: null, since the model does not tell its layers")
    return optimizer


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)  # timm's layer-wise decay
