"""Recipes of the ablation of "A Light Recipe to Train Robust Vision Transformers" on ImageNet-100 (section III)."""

from dataclasses import replace

from robustvit.config import Recipe
from robustvit.models import ModelSpec
from robustvit.recipes.light_recipe import EPOCHS, imagenet_canonical, of_model
from robustvit.training.schedule import Cosine


def imagenet100() -> Recipe:
    """XCiT-N12 on ImageNet-100: 48.46, APGD-CE 30.48 (table 2b).  robustvit train imagenet100 --out runs/imagenet100

    Where the ablation starts: the canonical recipe without drop-path. 100 random classes; which ones is not stated.
    """
    canonical = imagenet_canonical()
    return replace(
        canonical,
        name="imagenet100",
        model=ModelSpec("xcit_nano_12_p16_224", num_classes=100, args={"drop_path_rate": 0.0}),
        data=replace(canonical.data, classes="100 by seed 0"),
    )


def imagenet100_architecture() -> Recipe:
    """XCiT-S12 with repeated augmentation: 85.06, 54.80 (table 2a).

    robustvit train imagenet100-architecture --out runs/imagenet100-architecture

    Repeated augmentation: each batch comes three times, first without augmentation and then twice with it, which the paper
    equates with three times the epochs (appendix D). So this trains for as many, warm-up and cool-down included, and augments
    each time.
    """
    recipe = of_model(imagenet100(), "xcit_small_12_p16_224")
    schedule = Cosine(warmup=30, cooldown=30, start=0.01, floor=0.1)
    return replace(
        recipe,
        name="imagenet100-architecture",
        phases=(replace(recipe.phases[0], epochs=3 * EPOCHS),),
        optim=replace(recipe.optim, schedule=schedule),
    )
