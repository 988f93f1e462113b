"""Adversarial weight perturbation: any objective, at the weights nearby where its loss is higher."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robustvit.errors import UserError


@dataclass(frozen=True, slots=True)
class AWP:
    """How far weights are moved, as a share of their norm, and from which epoch of the phase on (Wu et al., 2020).

    The authors' settings: gamma 0.005 from epoch 10 with TRADES, 0.01 from epoch 0 with PGD-AT.
    """

    gamma: float = 0.005
    start_epoch: float = 10

    def __post_init__(self) -> None:
        # Past 1 a weight would be moved by more than it is.
        if not 0 <= self.gamma <= 1:
            raise UserError(f"awp.gamma: {self.gamma}; accepted: 0 to 1")
        if not self.start_epoch >= 0:
            raise UserError(f"awp.start_epoch: {self.start_epoch}; accepted: 0 or more")


def perturbable(model: nn.Module) -> list[nn.Parameter]:
    """As in the authors' code, trainable weights of more than one dimension: no biases, norms, class tokens or positions."""
    return [p for name, p in model.named_parameters() if name.endswith("weight") and p.dim() > 1 and p.requires_grad]


@contextmanager
def perturbed_weights(
    model: nn.Module,
    gamma: float,
    losses: Iterable[Callable[[], Tensor]],
    average: Callable[[Tensor], Tensor] = lambda gradient: gradient,
) -> Iterator[None]:
    """Inside, each weight w is w + γ·‖w‖·g/‖g‖ with g its loss gradient (Wu et al., 2020, one step); outside, w again.

    The loss is the sum of `losses`, asked one at a time: the micro-batches of a step. `average` is the mean over processes,
    without which each would move its copy elsewhere. The ascent leaves `.grad` and buffers alone, and weights come back from
    copies: subtracting what was added would leave rounding behind. (The authors subtract after the optimiser's step, which so
    decays the perturbation too.)
    """
    if not gamma:
        yield
        return
    weights = perturbable(model)
    with _unchanged(model.buffers()):
        gradients = [average(gradient) for gradient in _gradients(losses, weights)]
    with _unchanged(weights):
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.add_(_direction(gradient) * (gamma * weight.norm()))
        yield


def _gradients(losses: Iterable[Callable[[], Tensor]], weights: list[nn.Parameter]) -> list[Tensor]:
    total = [torch.zeros_like(weight) for weight in weights]
    for loss in losses:
        # A weight that the loss does not reach has gradient zero, and stays.
        torch._foreach_add_(total, torch.autograd.grad(loss(), weights, materialize_grads=True))
    return total


def _direction(gradient: Tensor) -> Tensor:
    """g/‖g‖; zero where g is."""
    # Scaled first: the squares of small gradients underflow.
    scaled = gradient / gradient.abs().amax().clamp(min=torch.finfo(gradient.dtype).tiny)
    return scaled / scaled.norm().clamp(min=1)  # 1 at least, unless g is zero


@contextmanager
def _unchanged(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Whatever happens inside, these hold the same bits afterwards."""
    copies = [(tensor, tensor.detach().clone()) for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, copy in copies:
                tensor.copy_(copy)
