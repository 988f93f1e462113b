"""Wide residual networks for 32×32 images (Zagoruyko and Komodakis, 2016), with ReLU or Swish (Gowal et al., 2020).

Built from timm's pre-activation blocks. A convolution of stride 2 pads both sides alike, as Zagoruyko and Komodakis do; the
networks first written in JAX pad below and to the right only.
"""

from typing import Any

from timm.layers import create_conv2d
from timm.models.resnetv2 import ResNetV2
from torch import nn

from robustvit.models.architectures.registry import register

STEM = 16  # channels


def wide_resnet(depth: int, width: int, in_chans: int = 3, **given: Any) -> ResNetV2:
    """WRN-depth-width: three stages of (depth − 4)/6 basic blocks, `width` times 16, 32 and 64 channels wide."""
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(f"depth: {depth}; accepted: 10, 16, 22, 28, … (6n + 4)")
    fixed = {"basic": True, "bottle_ratio": 1.0, "norm_layer": "batchnorm2d", "conv_layer": create_conv2d}
    model = ResNetV2(
        layers=[(depth - 4) // 6] * 3,
        channels=(16 * width, 32 * width, 64 * width),
        stem_chs=STEM,
        in_chans=in_chans,
        **fixed | given,
    )
    kind = {"device": model.norm.weight.device, "dtype": model.norm.weight.dtype}
    first = nn.Conv2d(in_chans, STEM, 3, padding=1, bias=False, **kind)
    nn.init.kaiming_normal_(first.weight, mode="fan_out", nonlinearity="relu")
    model.stem = nn.Sequential()
    model.stem.add_module("conv", first)
    for info in model.feature_info:
        info["reduction"] = max(1, info["reduction"] // 4)
    return model


for depth, width in ((28, 10), (70, 16)):
    for activation, suffix, said in (("relu", "", "ReLU"), ("silu", "_swish", "Swish")):
        line = f"WideResNet-{depth}-{width} with {said}, for 32×32 images."
        register(f"wrn_{depth}_{width}{suffix}", line, wide_resnet, depth=depth, width=width, act_layer=activation)
