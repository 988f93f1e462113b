"""CaiT (Touvron et al., 2021): the S12 of the light recipe's comparison, and small-image variants."""

from timm.models.cait import Cait

from robustvit.models.architectures.registry import register

PATCHES = (2, 4, 8)
SIZES = {
    "xxs24": {"embed_dim": 192, "depth": 24, "num_heads": 4},
    "s12": {"embed_dim": 384, "depth": 12, "num_heads": 8},
    "s24": {"embed_dim": 384, "depth": 24, "num_heads": 8},
}
LAYER_SCALE = 1e-5  # where timm starts these sizes

register("cait_s12_224", "CaiT-S12 for 224×224 images (light recipe).", Cait, init_values=LAYER_SCALE, **SIZES["s12"])

for size, shape in SIZES.items():
    for patch in PATCHES:
        line = f"CaiT-{size.upper()} with {patch}×{patch} patches, for 32×32 images."
        fixed = {"img_size": 32, "patch_size": patch, "init_values": LAYER_SCALE}
        register(f"cait_{size}_patch{patch}_32", line, Cait, **fixed, **shape)
