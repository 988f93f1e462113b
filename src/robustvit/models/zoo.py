"""Models that timm lacks, registered with timm so that its factory builds them by name."""

from typing import Any

from timm.models import register_model
from timm.models.vision_transformer import VisionTransformer


@register_model
def vit_nano(pretrained: bool = False, **kwargs: Any) -> VisionTransformer:
    """0.15M parameters for 8×8 images: for demonstrations and tests."""
    return _small_image_vit(pretrained, kwargs, img_size=8, patch_size=2, embed_dim=64, depth=3, num_heads=4)


@register_model
def vit_mini(pretrained: bool = False, **kwargs: Any) -> VisionTransformer:
    """2.7M parameters for 32×32 images."""
    return _small_image_vit(pretrained, kwargs, img_size=32, patch_size=4, embed_dim=192, depth=6, num_heads=6)


def _small_image_vit(pretrained: bool, given: dict[str, Any], **shape: Any) -> VisionTransformer:
    if pretrained:
        raise ValueError("pretrained: True; the small-image ViTs have no published weights, accepted: False")
    # timm's factory adds settings of its own that the constructor does not take.
    for key in ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"):
        given.pop(key, None)
    # Averaged tokens learn faster than a class token when images are few and small.
    return VisionTransformer(**{"class_token": False, "global_pool": "avg", **shape, **given})
