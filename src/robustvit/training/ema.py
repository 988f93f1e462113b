"""An exponential moving average of the weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Ema:
    """Averages parameters and float buffers; the others (counters) are copied."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.average = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        current = model.state_dict()
        floats = [name for name, tensor in self.average.items() if tensor.is_floating_point()]
        torch._foreach_lerp_([self.average[n] for n in floats], [current[n] for n in floats], 1 - self.decay)
        for name in self.average.keys() - set(floats):
            self.average[name].copy_(current[name])

    def load(self, average: dict[str, Tensor]) -> None:
        for name, tensor in average.items():
            self.average[name].copy_(tensor)


@contextmanager
def averaged(model: nn.Module, ema: Ema | None) -> Iterator[None]:
    """The model with its average in place, if there is one; its own weights return afterwards, bit for bit."""
    if ema is None:
        yield
        return
    own = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(ema.average)
    try:
        yield
    finally:
        model.load_state_dict(own)
