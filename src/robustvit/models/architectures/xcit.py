"""XCiT (El-Nouby et al., 2021): the depths 12 that timm lacks, and all of them for small images.

Patches come out of four convolutions of stride 2. For smaller patches the first ones get stride 1 (light recipe, appendix D:
two of them from 16×16 to 4×4), so every weight of a patch-16 model fits as it is. timm's patch-8 models have three
convolutions; ours have four at each patch size.
"""

from typing import Any

from timm.layers import to_2tuple
from timm.models.xcit import Xcit
from torch import nn

from robustvit.models.architectures.registry import register

PATCHES = (2, 4, 8)
SIZES = {
    "nano": {"embed_dim": 128, "num_heads": 4, "tokens_norm": False},
    "tiny": {"embed_dim": 192, "num_heads": 4, "tokens_norm": True},
    "small": {"embed_dim": 384, "num_heads": 8, "tokens_norm": True},
    "medium": {"embed_dim": 512, "num_heads": 8, "tokens_norm": True},
    "large": {"embed_dim": 768, "num_heads": 16, "tokens_norm": True},
}


def small_patch_xcit(img_size: int | tuple[int, int], patch_size: int, **shape: Any) -> Xcit:
    """The patch-16 network with stride 1 in its first patch convolutions."""
    if patch_size not in (1, 2, 4, 8, 16):
        raise ValueError(f"patch_size: {patch_size}; accepted: 1, 2, 4, 8, 16")
    height, width = to_2tuple(img_size)
    # Told of an image as many times larger, timm counts the right number of tokens.
    model = Xcit(img_size=(height * 16 // patch_size, width * 16 // patch_size), patch_size=16, **shape)
    embed = model.patch_embed
    convolutions = [module for module in embed.modules() if isinstance(module, nn.Conv2d)]
    halvings = patch_size.bit_length() - 1
    for convolution in convolutions[: len(convolutions) - halvings]:
        convolution.stride = (1, 1)
    embed.img_size, embed.patch_size = (height, width), patch_size
    for info in model.feature_info:
        info["reduction"] = patch_size
    return model


register(
    "xcit_mini",
    "2.7M parameters for 32×32 images, patches of 4×4.",
    small_patch_xcit,
    img_size=32,
    patch_size=4,
    embed_dim=160,
    depth=7,
    num_heads=4,
    cls_attn_layers=1,
    tokens_norm=True,
)

# Layer scale starts at 1 in all XCiTs of depth 12; timm has medium and large in depth 24 only, which start at 1e-5.
for size in ("medium", "large"):
    line = f"XCiT-{size[0].upper()}12 with 16×16 patches, for 224×224 images (light recipe)."
    register(f"xcit_{size}_12_p16_224", line, Xcit, img_size=224, patch_size=16, depth=12, eta=1.0, **SIZES[size])

for size, shape in SIZES.items():
    for patch in PATCHES:
        line = f"XCiT-{size[0].upper()}12 with {patch}×{patch} patches, for 32×32 images."
        fixed = {"img_size": 32, "patch_size": patch, "depth": 12, "eta": 1.0}
        register(f"xcit_{size}_12_p{patch}_32", line, small_patch_xcit, **fixed, **shape)
