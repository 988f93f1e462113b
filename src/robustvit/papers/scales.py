"""The scales: digits on a CPU, small images on one GPU, and the papers' own."""

from typing import Any

from robustvit.data import DataSpec
from robustvit.data.augment import Flip, PadCrop
from robustvit.errors import unknown
from robustvit.papers.scale import Net, Scale
from robustvit.papers.sets import Set
from robustvit.threat import Threat

FOUR, EIGHT, L2 = Threat("linf", 4 / 255), Threat("linf", 8 / 255), Threat("l2", 3.0)
FEATURES = Threat("l2", 15.0)  # over the 224×224×3 numbers of an image: elsewhere as much a number
CIFAR = "https://www.cs.toronto.edu/~kriz/cifar.html"
IMAGENETTE = "https://github.com/fastai/imagenette"
FLOWERS = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102"
CALTECH = "https://data.caltech.edu/records/mzrjq-6wc02"


def _xcit(**shape: Any) -> Net:
    return Net("xcit_mini", {"img_size": 8, "patch_size": 2, "num_heads": 2, "cls_attn_layers": 1} | shape)


_STAGES = {"depths": [1, 1, 1, 1], "dims": [16, 32, 48, 64]}
_STAGED = {"layers": [1, 1, 1, 1], "channels": [16, 32, 48, 64]}
# Shifted by a pixel, of eight, digits are too hard for patches: no crop stands for the crop of whole images.
DIGITS = Set("digits", 1437, 360, 8, 10, spec=DataSpec("digits"), channels=1)

TINY = Scale(
    name="tiny",
    about="the digits of scikit-learn for every set, models of some ten thousand weights, short attacks",
    hardware="one CPU core",
    seeds=1,
    sets=dict.fromkeys(("imagenet", "caltech101", "flowers102", "cifar10", "cifar100"), DIGITS),
    images=120,
    attacked=60,
    climbed=60,
    models={
        "xcit_nano_12_p16_224": _xcit(embed_dim=24, depth=2),
        **dict.fromkeys(("xcit_small_12_p16_224", "xcit_small_12_p4_32"), _xcit(embed_dim=32, depth=2)),
        **dict.fromkeys(("xcit_medium_12_p16_224", "xcit_medium_12_p4_32"), _xcit(embed_dim=48, depth=2)),
        **dict.fromkeys(("xcit_large_12_p16_224", "xcit_large_12_p4_32"), _xcit(embed_dim=56, depth=2)),
        "deit_small_patch16_224": Net("vit_nano", {"embed_dim": 64, "depth": 2}),
        "cait_s12_224": Net("cait_s12_patch2_32", {"img_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4}),
        "convnext_tiny": Net("convnext_tiny_patch1_32", _STAGES | {"ls_init_value": 0.1}),
        "poolformer_m12": Net("poolformer_m12_stride1_32", _STAGES),
        "resnet50_gelu": Net("resnet_mini", {"act_layer": "gelu", **_STAGED}),
        **dict.fromkeys(("resnet50", "resnet50_32"), Net("resnet_mini", _STAGED)),
    },
    threats={FOUR: Threat("linf", 0.06), EIGHT: Threat("linf", 0.12), L2: Threat("l2", 0.3), FEATURES: Threat("l2", 1.5)},
    epochs={110: 10, 330: 20, 20: 3, 300: 9},
    rates={"adamw": 6.0},
    batch_size=80,
    full_precision=True,
    one_thread=True,
    iterations=20,
    restarts=1,
    queries=100,
    longest=100,
    points=8,
    starts=4,
    every=5,
    flops=3e10,
    exact_flops=3e10,
    overhead=0.0055,
    exact_overhead=0.0055,
)

IN_CIFAR10 = Set("cifar10", 50_000, 10_000, 32, 10, CIFAR, DataSpec("cifar10"), basic=(PadCrop(4), Flip()))
# Fine-tuning needs another set than the one before it. Its test images lie sorted by class.
IN_IMAGENETTE = Set(
    "imagenette",
    9_469,
    3_925,
    32,
    10,
    IMAGENETTE,
    DataSpec("folder", size=32),
    basic=(PadCrop(4), Flip()),
    sample_seed=0,
)

SMALL = Scale(
    name="small",
    about="CIFAR-10 for ImageNet, Imagenette at 32×32 for the sets of fine-tuning, models of some million weights",
    hardware="one data-centre GPU",
    seeds=3,
    sets={"imagenet": IN_CIFAR10, **dict.fromkeys(("caltech101", "flowers102", "cifar10", "cifar100"), IN_IMAGENETTE)},
    images=1000,
    attacked=400,
    climbed=250,
    models={
        # Their multiply–adds are to each other about as the paper's.
        "xcit_nano_12_p16_224": Net("xcit_mini", {"embed_dim": 96, "depth": 4}),
        **dict.fromkeys(("xcit_small_12_p16_224", "xcit_small_12_p4_32"), Net("xcit_mini", {"embed_dim": 128, "depth": 5})),
        **dict.fromkeys(("xcit_medium_12_p16_224", "xcit_medium_12_p4_32"), Net("xcit_mini", {"depth": 6})),
        **dict.fromkeys(("xcit_large_12_p16_224", "xcit_large_12_p4_32"), Net("xcit_mini", {"embed_dim": 192})),
        "deit_small_patch16_224": Net("deit_tiny_patch4_32", {"embed_dim": 144, "depth": 5}),
        "cait_s12_224": Net("cait_s12_patch4_32", {"embed_dim": 144, "depth": 5, "num_heads": 4}),
        "convnext_tiny": Net("convnext_tiny_patch2_32", {"depths": [2, 2, 4, 2], "dims": [56, 112, 224, 448]}),
        "poolformer_m12": Net("poolformer_s12_stride2_32", {"dims": [48, 96, 192, 320]}),
        "resnet50_gelu": Net("resnet_mini", {"act_layer": "gelu", "channels": [22, 44, 88, 176]}),
        **dict.fromkeys(("resnet50", "resnet50_32"), Net("resnet_mini", {"channels": [22, 44, 88, 176]})),
    },
    threats={L2: Threat("l2", 0.5), FEATURES: Threat("l2", 15 / 7)},
    epochs={110: 12, 330: 24, 20: 6, 300: 24},
    rates={"adamw": 2.0},
    batch_size=512,
    precision="bf16",
    every=4,
    flops=5e13,  # of a modern data-centre GPU, as are the others
    exact_flops=5e13,
    overhead=0.004,
    exact_overhead=0.002,
)

PAPER = Scale(
    name="paper",
    about="the paper's own data, models and budget",
    hardware="eight TPUv3 cores in the paper, counted here as one GPU of 100 useful TFLOP/s",
    seeds=1,
    sets={
        "imagenet": Set("imagenet", 1_281_167, 50_000, 224, 1000, "https://image-net.org/download.php"),
        "caltech101": Set("caltech101", 3_030, 5_647, 224, 101, CALTECH),
        "flowers102": Set("flowers102", 1_020, 6_149, 224, 102, FLOWERS),
        "cifar10": Set("cifar10", 50_000, 10_000, 32, 10, CIFAR),
        "cifar100": Set("cifar100", 50_000, 10_000, 32, 100, CIFAR),
    },
    papers_own=True,
)


SCALES = {scale.name: scale for scale in (TINY, SMALL, PAPER)}


def get_scale(name: str) -> Scale:
    if name not in SCALES:
        raise unknown("scale", name, SCALES)
    return SCALES[name]
