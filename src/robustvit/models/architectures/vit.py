"""Plain vision transformers for small images: ViT (Dosovitskiy et al., 2020) and DeiT (Touvron et al., 2020)."""

from timm.models.vision_transformer import VisionTransformer

from robustvit.models.architectures.registry import register

PATCHES = (2, 4, 8)
SIZES = {
    "tiny": {"embed_dim": 192, "depth": 12, "num_heads": 3},
    "small": {"embed_dim": 384, "depth": 12, "num_heads": 6},
    "base": {"embed_dim": 768, "depth": 12, "num_heads": 12},
    "large": {"embed_dim": 1024, "depth": 24, "num_heads": 16},
}

# Averaged tokens learn faster than a class token when images are few and small.
AVERAGED = {"class_token": False, "global_pool": "avg"}

register(
    "vit_nano",
    "0.15M parameters for 8×8 images: for demonstrations and tests.",
    VisionTransformer,
    **AVERAGED,
    img_size=8,
    patch_size=2,
    embed_dim=64,
    depth=3,
    num_heads=4,
)
register(
    "vit_mini",
    "2.7M parameters for 32×32 images.",
    VisionTransformer,
    **AVERAGED,
    img_size=32,
    patch_size=4,
    embed_dim=192,
    depth=6,
    num_heads=6,
)

for size, shape in SIZES.items():
    for patch in PATCHES:
        letter = "Ti" if size == "tiny" else size[0].upper()
        line = f"ViT-{letter}/{patch} with a class token, for 32×32 images."
        register(f"vit_{size}_patch{patch}_32", line, VisionTransformer, img_size=32, patch_size=patch, **shape)
        if size != "large":
            # DeiT's own network is the ViT of that size; the name pairs it with timm's deit_* weights and with the tables.
            line = f"DeiT-{letter} with {patch}×{patch} patches, for 32×32 images."
            register(f"deit_{size}_patch{patch}_32", line, VisionTransformer, img_size=32, patch_size=patch, **shape)
