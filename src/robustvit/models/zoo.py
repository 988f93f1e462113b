"""Models that timm lacks, registered with timm so that its factory builds them by name."""

from typing import Any

from timm.models import register_model
from timm.models.resnet import BasicBlock, ResNet
from timm.models.vision_transformer import VisionTransformer
from torch import nn


@register_model
def vit_nano(pretrained: bool = False, **kwargs: Any) -> VisionTransformer:
    """0.15M parameters for 8×8 images: for demonstrations and tests."""
    return _small_image_vit(pretrained, kwargs, img_size=8, patch_size=2, embed_dim=64, depth=3, num_heads=4)


@register_model
def vit_mini(pretrained: bool = False, **kwargs: Any) -> VisionTransformer:
    """2.7M parameters for 32×32 images."""
    return _small_image_vit(pretrained, kwargs, img_size=32, patch_size=4, embed_dim=192, depth=6, num_heads=6)


@register_model
def resnet_mini(pretrained: bool = False, **kwargs: Any) -> ResNet:
    """2.8M parameters for 32×32 images: ResNet-18 at half its width, first convolution 3×3 with stride 1, no pooling."""
    given = _own(pretrained, kwargs)
    model = ResNet(BasicBlock, layers=(2, 2, 2, 2), **{"channels": (32, 64, 128, 256), "stem_width": 32, **given})
    model.conv1 = nn.Conv2d(given.get("in_chans", 3), model.conv1.out_channels, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


def _small_image_vit(pretrained: bool, given: dict[str, Any], **shape: Any) -> VisionTransformer:
    # Averaged tokens learn faster than a class token when images are few and small.
    return VisionTransformer(**{"class_token": False, "global_pool": "avg", **shape, **_own(pretrained, given)})


def _own(pretrained: bool, given: dict[str, Any]) -> dict[str, Any]:
    """Without the settings that timm's factory adds and the constructors do not take."""
    if pretrained:
        raise ValueError("pretrained: True; the small-image models have no published weights, accepted: False")
    return {key: value for key, value in given.items() if key not in ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")}
