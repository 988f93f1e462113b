"""How a model's weights lie in memory."""

import torch
from torch import nn


def laid_out(model: nn.Module) -> nn.Module:
    """A convolutional model with its channels side by side, as GPUs and CPUs convolve fastest; others as they are.

    Its first convolution turns the images, so nobody else needs to know. Values, names and saved weights stay the same.
    """
    return model.to(memory_format=torch.channels_last) if convolutional(model) else model


def convolutional(model: nn.Module) -> bool:
    """Has it convolutions whose windows overlap? A transformer's patches do not."""
    layers = (module for module in model.modules() if isinstance(module, nn.Conv2d))
    return any(size > stride for layer in layers for size, stride in zip(layer.kernel_size, layer.stride, strict=True))
