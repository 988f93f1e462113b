"""A second module on the same weights: what the attack asks while the first one trains."""

import copy

from torch import nn


class Twin:
    """A copy of `model` that shares every weight and buffer with it, always frozen and in eval mode.

    The attack of a training step needs the model frozen and in eval mode, the loss needs it trainable and in train mode.
    Toggling one module costs a walk over it at each step, and under one compiled callable it reuses a graph that was made
    for the other state. Optimisers, averages and checkpoints write weights in place, so both modules see them.
    """

    def __init__(self, model: nn.Module) -> None:
        shared: dict[int, object] = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()}
        shared |= {id(buffer): buffer for buffer in model.buffers()}
        self.module = copy.deepcopy(model, shared).eval()
        # What a model remembers in eval mode until it is trained again, as LeViT does its attention biases.
        self._forgetful = [module for module in self.module.modules() if type(module).train is not nn.Module.train]

    def refresh(self) -> nn.Module:
        """The module, without what it remembered of older weights."""
        for module in self._forgetful:
            module.train()
            module.eval()
        return self.module
