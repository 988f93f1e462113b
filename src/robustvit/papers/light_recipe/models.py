"""The models that several artefacts share."""

from dataclasses import replace

from robustvit.config import Recipe
from robustvit.data.augment import AUGMENTATIONS, Augmentation
from robustvit.models import ModelSpec
from robustvit.papers.artefact import Given, Published, Trained, trained
from robustvit.recipes.light_ablation import imagenet100
from robustvit.recipes.light_recipe import (
    imagenet_canonical,
    imagenet_canonical_eps_warmup,
    imagenet_light,
    imagenet_light_poolformer,
    imagenet_light_xcit_l12,
    imagenet_resnet50,
    imagenet_resnet50_eps8,
    imagenet_standard,
    of_model,
    on_clean_images,
)
from robustvit.training.schedule import Constant, Linear

DEIT, XCIT_M, CONVNEXT, POOLFORMER = "deit_small_patch16_224", "xcit_medium_12_p16_224", "convnext_tiny", "poolformer_m12"
SALMAN = "https://github.com/microsoft/robust-models-transfer"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # in which Salman et al.'s models see ImageNet

LIGHT = trained(imagenet_light())
CANONICAL = trained(imagenet_canonical())
CANONICAL_EPS_WARMUP = trained(imagenet_canonical_eps_warmup())
LIGHT_M, LIGHT_L = trained(of_model(imagenet_light(), XCIT_M)), trained(imagenet_light_xcit_l12())
LIGHT_CONVNEXT = trained(of_model(imagenet_light(), CONVNEXT))
LIGHT_POOLFORMER = trained(imagenet_light_poolformer())
LIGHT_DEIT = trained(of_model(imagenet_light(), DEIT))
CANONICAL_DEIT = trained(of_model(imagenet_canonical(), DEIT))
GELU_RESNET = trained(imagenet_resnet50())
STANDARD_XCIT = Published("xcit_small_12_p16_224.fb_in1k", imagenet_standard())
CLEAN_RESNET = of_model(on_clean_images(imagenet_resnet50()), "resnet50")
TORCHVISION_RESNET = Published("resnet50.tv_in1k", CLEAN_RESNET)
TIMM_RESNET = Published("resnet50.a1_in1k", CLEAN_RESNET)  # Wightman et al.'s, with heavy augmentation


def salman(name: str, network: str, like: Recipe) -> Given:
    return Given(f"salman-{name}", SALMAN, of_model(like, network), ModelSpec(network, 1000, mean=MEAN, std=STD))


RELU_RESNET_EPS8 = salman("resnet50-linf-eps8", "resnet50", imagenet_resnet50_eps8())
RELU_RESNET_L2 = salman("resnet50-l2-eps3", "resnet50", imagenet_resnet50())
WIDE_RESNET = salman("wide-resnet50-2-linf-eps4", "wide_resnet50_2", imagenet_resnet50())


def ablated(
    warmup: float = 0,
    augment: tuple[Augmentation, ...] | None = None,
    weight_decay: float = 0.05,
) -> Trained:
    """XCiT-N12 on ImageNet-100, heavily augmented unless said otherwise."""
    recipe: Recipe = imagenet100()
    augment = recipe.data.augment if augment is None else augment
    kinds = [next(name for name, kind in AUGMENTATIONS.items() if type(each) is kind) for each in augment]
    name = f"imagenet100-warmup-{warmup:g}-{'-'.join(kinds) or 'light'}-decay-{weight_decay:g}"
    phases = (replace(recipe.phases[0], eps=Linear(warmup) if warmup else Constant()),)
    data, optim = replace(recipe.data, augment=augment), replace(recipe.optim, weight_decay=weight_decay)
    return trained(replace(recipe, name=name, phases=phases, data=data, optim=optim))
