"""ResNets (He et al., 2015) for small images, and the GELU ResNet-50 of Bai et al. (2021)."""

from typing import Any

from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import nn

from robustvit.models.architectures.registry import register

DEPTHS = {
    18: {"block": BasicBlock, "layers": (2, 2, 2, 2)},
    34: {"block": BasicBlock, "layers": (3, 4, 6, 3)},
    50: {"block": Bottleneck, "layers": (3, 4, 6, 3)},
}


def small_image_resnet(**shape: Any) -> ResNet:
    """First convolution 3×3 with stride 1, and no pooling after it (light recipe, appendix D)."""
    model = ResNet(**shape)
    old = model.conv1
    kind = {"device": old.weight.device, "dtype": old.weight.dtype}
    model.conv1 = nn.Conv2d(old.in_channels, old.out_channels, 3, padding=1, bias=False, **kind)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")  # as timm starts the others
    model.maxpool = nn.Identity()
    for info in model.feature_info:
        info["reduction"] = max(1, info["reduction"] // 4)
    return model


register(
    "resnet_mini",
    "2.8M parameters for 32×32 images: ResNet-18 at half its width, first convolution 3×3 with stride 1, no pooling.",
    small_image_resnet,
    **DEPTHS[18],
    channels=(32, 64, 128, 256),
)
for depth, shape in DEPTHS.items():
    line = f"ResNet-{depth} for 32×32 images: first convolution 3×3 with stride 1, no pooling."
    register(f"resnet{depth}_32", line, small_image_resnet, **shape)

GELU = {"act_layer": "gelu", **DEPTHS[50]}
register("resnet50_gelu", "ResNet-50 with GELU for ReLU, for 224×224 images (Bai et al., 2021).", ResNet, **GELU)
register("resnet50_gelu_32", "ResNet-50 with GELU for 32×32 images: stem as resnet50_32.", small_image_resnet, **GELU)
