"""The models that several artefacts share."""

from dataclasses import replace

from robustvit.config import Recipe
from robustvit.data.augment import Augmentation
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
BAI = "https://github.com/ytongbai/ViTs-vs-CNNs"

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
STANDARD_RESNET = Published("resnet50.tv_in1k", replace(of_model(on_clean_images(imagenet_resnet50()), "resnet50")))
RELU_RESNET_EPS8 = Given("salman-resnet50-linf-eps8", SALMAN, of_model(imagenet_resnet50_eps8(), "resnet50"))
RELU_RESNET_L2 = Given("salman-resnet50-l2-eps3", SALMAN, of_model(imagenet_resnet50(), "resnet50"))
WIDE_RESNET = Given("salman-wide-resnet50-2-linf-eps4", SALMAN, of_model(imagenet_resnet50(), "wide_resnet50_2"))


def ablated(
    warmup: float = 0,
    augment: tuple[Augmentation, ...] | None = None,
    weight_decay: float = 0.05,
) -> Trained:
    """XCiT-N12 on ImageNet-100, heavily augmented unless said otherwise."""
    recipe: Recipe = imagenet100()
    phases = (replace(recipe.phases[0], eps=Linear(warmup) if warmup else Constant()),)
    data = recipe.data if augment is None else replace(recipe.data, augment=augment)
    return trained(replace(recipe, phases=phases, data=data, optim=replace(recipe.optim, weight_decay=weight_decay)))
