"""Cost: parameters and multiply–adds of a model, by an explicit convention.

Papers mean different things by FLOPs. Both counts here are of multiply–adds, as the papers' are (strictly, each is two FLOPs).
Norms, activations and softmax are left out; tools that count them find 0.1% to 2% more.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from robustvit.models.classifier import ModelSpec, build

_LAYERS = (linear, torch.conv1d, torch.conv2d, torch.conv3d)


@dataclass(frozen=True, slots=True)
class Cost:
    """`linear_only` counts products of weights with activations; `with_attention` also those of activations with each other."""

    parameters: int
    linear_only: int
    with_attention: int

    def __str__(self) -> str:
        return (
            f"{self.parameters / 1e6:.2f}M parameters, {self.linear_only / 1e9:.2f} G multiply–adds an image in linear layers "
            f"and convolutions, {self.with_attention / 1e9:.2f} G with attention"
        )


def cost(model: nn.Module, size: tuple[int, int, int]) -> Cost:
    """Of one image [channels, height, width]; a model on the meta device computes nothing."""
    parameter = next(model.parameters())
    x = torch.empty(1, *size, device=parameter.device, dtype=parameter.dtype)
    products, layers = FlopCounterMode(display=False), _Layers()
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        # Gradients stay on, because the counter attaches itself to them and fails on some models (CaiT) without. Attention is
        # taken apart into its two products, so that no kernel's own name decides whether it is known to the counter.
        with torch.enable_grad(), products, layers, sdpa_kernel(SDPBackend.MATH):
            model(x)
    finally:
        for module, was in training.items():
            module.training = was
    every = products.get_total_flops() // 2
    assert every >= layers.multiply_adds, (every, layers.multiply_adds)
    return Cost(sum(p.numel() for p in model.parameters()), layers.multiply_adds, every)


def cost_of(spec: ModelSpec, size: tuple[int, int, int] = (3, 32, 32)) -> Cost:
    """The same for a model by its specification, without the memory or the time to have it."""
    with torch.device("meta"):
        return cost(build(replace(spec, init=None)), size)


class _Layers(TorchFunctionMode):
    """Counts the multiply–adds of linear layers and convolutions, whether or not a module makes the call."""

    def __init__(self) -> None:
        super().__init__()
        self.multiply_adds = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        if func in _LAYERS:
            weight = args[1] if len(args) > 1 else kwargs["weight"]
            self.multiply_adds += result.numel() * weight[0].numel()
        return result
