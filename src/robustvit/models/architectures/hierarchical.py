"""Networks of four stages, each at half the resolution of the one before, whose first layer divides an image by 4.

Small images would shrink to one token, so that layer divides by 2, or by nothing. ConvNeXt (Liu et al., 2022), Swin (Liu et
al., 2021), PoolFormer (Yu et al., 2022).
"""

from typing import Any

from timm.layers import trunc_normal_
from timm.models.convnext import ConvNeXt
from timm.models.metaformer import GroupNorm1, MetaFormer
from timm.models.swin_transformer import SwinTransformer
from torch import nn

from robustvit.models.architectures.registry import register

Shapes = dict[str, dict[str, Any]]

STRIDE = 4  # of the first layer, as these networks were published; timm's feature_info counts it in

CONVNEXTS: Shapes = {
    "tiny": {"depths": (3, 3, 9, 3), "dims": (96, 192, 384, 768)},
    "small": {"depths": (3, 3, 27, 3), "dims": (96, 192, 384, 768)},
    "base": {"depths": (3, 3, 27, 3), "dims": (128, 256, 512, 1024)},
}
SWINS: Shapes = {
    "tiny": {"embed_dim": 96, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)},
    "small": {"embed_dim": 96, "depths": (2, 2, 18, 2), "num_heads": (3, 6, 12, 24)},
    "base": {"embed_dim": 128, "depths": (2, 2, 18, 2), "num_heads": (4, 8, 16, 32)},
}
POOLFORMERS: Shapes = {
    "s12": {"depths": (2, 2, 6, 2), "dims": (64, 128, 320, 512)},
    "m12": {"depths": (2, 2, 6, 2), "dims": (96, 192, 384, 768)},
}


def small_patch_convnext(patch_size: int, **shape: Any) -> ConvNeXt:
    """ConvNeXt with another patch size.

    Replaced here, because timm gives the first stage an extra downsampling layer when the patch size is 2.
    """
    model = ConvNeXt(**shape)
    old = model.stem[0]
    kind = {"device": old.weight.device, "dtype": old.weight.dtype}
    model.stem[0] = nn.Conv2d(old.in_channels, old.out_channels, patch_size, patch_size, **kind)
    trunc_normal_(model.stem[0].weight, std=0.02)  # as timm starts the others
    nn.init.zeros_(model.stem[0].bias)
    for info in model.feature_info:
        info["reduction"] = info["reduction"] * patch_size // STRIDE
    return model


def poolformer(stride: int = STRIDE, **shape: Any) -> MetaFormer:
    """PoolFormer with another stride of its 7×7 first convolution, and padding by which 32 pixels become 32/stride."""
    fixed = {"downsample_norm": None, "mlp_act": nn.GELU, "mlp_bias": True, "norm_layers": GroupNorm1, "use_mlp_head": False}
    scales = {"layer_scale_init_values": 1e-5, "res_scale_init_values": None}
    model = MetaFormer(**fixed | scales | shape)
    # By which timm tells layers apart, for rates that differ between them.
    model.pretrained_cfg = {"first_conv": "stem.conv", "classifier": "head.fc"}
    if stride != STRIDE:
        model.stem.conv.stride, model.stem.conv.padding = (stride, stride), (3, 3)
        for info in model.feature_info:
            info["reduction"] = info["reduction"] * stride // STRIDE
    return model


register("poolformer_m12", "PoolFormer-M12: M36's widths, S12's depths (light recipe).", poolformer, **POOLFORMERS["m12"])

for patch in (1, 2):
    for size, shape in CONVNEXTS.items():
        line = f"ConvNeXt-{size[0].upper()} with {patch}×{patch} patches, for 32×32 images."
        register(f"convnext_{size}_patch{patch}_32", line, small_patch_convnext, patch_size=patch, **shape)
    for size, shape in SWINS.items():
        line = f"Swin-{size[0].upper()} with {patch}×{patch} patches and 4×4 windows, for 32×32 images."
        name, fixed = f"swin_{size}_patch{patch}_window4_32", {"img_size": 32, "patch_size": patch, "window_size": 4}
        register(name, line, SwinTransformer, **fixed, **shape)
    for size, shape in POOLFORMERS.items():
        line = f"PoolFormer-{size.upper()} with stride {patch} in its first convolution, for 32×32 images."
        register(f"poolformer_{size}_stride{patch}_32", line, poolformer, stride=patch, **shape)
