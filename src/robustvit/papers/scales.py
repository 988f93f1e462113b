"""The scales: digits on a CPU, small images on one GPU, and the papers' own."""

from typing import Any

from robustvit.data import DataSpec
from robustvit.data.augment import Flip, PadCrop
from robustvit.errors import unknown
from robustvit.papers.scale import Net, Scale, Set
from robustvit.threat import Threat

FOUR, EIGHT, L2 = Threat("linf", 4 / 255), Threat("linf", 8 / 255), Threat("l2", 3.0)
CIFAR = "https://www.cs.toronto.edu/~kriz/cifar.html"
IMAGENETTE = "https://github.com/fastai/imagenette"
FLOWERS = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102"
CALTECH = "https://data.caltech.edu/records/mzrjq-6wc02"


def _xcit(**shape: Any) -> Net:
    return Net("xcit_mini", {"img_size": 8, "patch_size": 2, "num_heads": 2, "cls_attn_layers": 1} | shape)


_STAGES = {"depths": [1, 1, 1, 1], "dims": [16, 32, 48, 64]}
_STAGED = {"layers": [1, 1, 1, 1], "channels": [16, 32, 48, 64]}
DIGITS = Set("digits", DataSpec("digits"), 1437, classes=10, channels=1, basic=(PadCrop(1),))

TINY = Scale(
    name="tiny",
    about="the digits of scikit-learn for every set, models of some ten thousand weights, short attacks",
    hardware="one CPU core",
    seeds=1,
    sets=dict.fromkeys(("imagenet", "caltech101", "flowers102", "cifar10", "cifar100"), DIGITS),
    images=120,
    models={
        "xcit_nano_12_p16_224": _xcit(embed_dim=32, depth=2),
        **dict.fromkeys(("xcit_small_12_p16_224", "xcit_small_12_p4_32"), _xcit(embed_dim=48, depth=2)),
        **dict.fromkeys(("xcit_medium_12_p16_224", "xcit_medium_12_p4_32"), _xcit(embed_dim=64, depth=2)),
        **dict.fromkeys(("xcit_large_12_p16_224", "xcit_large_12_p4_32"), _xcit(embed_dim=80, depth=3)),
        "deit_small_patch16_224": Net("deit_tiny_patch2_32", {"img_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3}),
        "cait_s12_224": Net("cait_s12_patch2_32", {"img_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4}),
        "convnext_tiny": Net("convnext_tiny_patch1_32", _STAGES),
        "poolformer_m12": Net("poolformer_m12_stride1_32", _STAGES),
        "resnet50_gelu": Net("resnet_mini", {"act_layer": "gelu", **_STAGED}),
        **dict.fromkeys(("resnet50", "resnet50_32"), Net("resnet_mini", _STAGED)),
    },
    threats={FOUR: Threat("linf", 0.06), EIGHT: Threat("linf", 0.12), L2: Threat("l2", 0.5)},
    epochs={110: 10, 330: 20, 20: 3, 300: 20},
    rates={"adamw": 8.0},
    batch_size=128,
    full_precision=True,
    one_thread=True,
    iterations=20,
    restarts=1,
    queries=100,
    longest=100,
    points=8,
    starts=4,
    every=2,
    flops=5e9,
    overhead=0.01,
)

SMALL = Scale(
    name="small",
    about="CIFAR-10 for ImageNet, small sets at 32×32 pixels, models of some million weights, 1,000 images",
    hardware="one data-centre GPU",
    seeds=3,
    sets={
        "imagenet": Set("cifar10", DataSpec("cifar10"), 50_000, CIFAR, 10, 3, (PadCrop(4), Flip())),
        # Fine-tuning needs another set than the one before it.
        **dict.fromkeys(
            ("cifar10", "caltech101"),
            Set("imagenette", DataSpec("folder", size=32), 9_469, IMAGENETTE, 10, 3, (PadCrop(4), Flip())),
        ),
        "cifar100": Set("cifar100", DataSpec("cifar100"), 50_000, CIFAR, 100, 3),
        "flowers102": Set("flowers102", DataSpec("flowers102", size=32), 1_020, FLOWERS, 102, 3, (PadCrop(4), Flip())),
    },
    images=1000,
    models={
        "xcit_nano_12_p16_224": Net("xcit_nano_12_p4_32"),
        **dict.fromkeys(("xcit_small_12_p16_224", "xcit_small_12_p4_32"), Net("xcit_mini")),
        **dict.fromkeys(("xcit_medium_12_p16_224", "xcit_medium_12_p4_32"), Net("xcit_tiny_12_p4_32")),
        **dict.fromkeys(("xcit_large_12_p16_224", "xcit_large_12_p4_32"), Net("xcit_small_12_p4_32")),
        "deit_small_patch16_224": Net("deit_tiny_patch4_32", {"depth": 6}),
        "cait_s12_224": Net("cait_s12_patch4_32", {"embed_dim": 192, "depth": 6, "num_heads": 6}),
        "convnext_tiny": Net("convnext_tiny_patch2_32", {"depths": [2, 2, 4, 2], "dims": [48, 96, 192, 384]}),
        "poolformer_m12": Net("poolformer_s12_stride2_32"),
        "resnet50_gelu": Net("resnet_mini", {"act_layer": "gelu"}),
        **dict.fromkeys(("resnet50", "resnet50_32"), Net("resnet_mini")),
    },
    threats={L2: Threat("l2", 0.5)},
    epochs={110: 20, 330: 40, 20: 8, 300: 40},
    rates={"adamw": 2.0},
    batch_size=512,
    every=5,
    flops=5e13,  # of a modern data-centre GPU, as is the overhead
    overhead=0.004,
)

PAPER = Scale(
    name="paper",
    about="the paper's own data, models and budget",
    hardware="eight TPUv3 cores in the paper, counted here as one GPU of 100 useful TFLOP/s",
    seeds=1,
    sets={
        "imagenet": Set("imagenet", DataSpec("imagenet"), 1_281_167, "https://image-net.org/download.php"),
        "caltech101": Set("caltech101", DataSpec("caltech101"), 3_030, CALTECH),
        "flowers102": Set("flowers102", DataSpec("flowers102"), 1_020, FLOWERS),
        "cifar10": Set("cifar10", DataSpec("cifar10"), 50_000, CIFAR),
        "cifar100": Set("cifar100", DataSpec("cifar100"), 50_000, CIFAR),
    },
    papers_own=True,
)

SCALES = {scale.name: scale for scale in (TINY, SMALL, PAPER)}


def get_scale(name: str) -> Scale:
    if name not in SCALES:
        raise unknown("scale", name, SCALES)
    return SCALES[name]
