"""Recipes by name: functions that return a Recipe, often another one with a few fields changed."""

from collections.abc import Callable
from pathlib import Path

from robustvit import config
from robustvit.config import Recipe
from robustvit.errors import UserError, unknown
from robustvit.recipes.cifar10 import (
    cifar10_light,
    cifar10_resnet,
    cifar10_resnet_standard,
    cifar10_robust,
    cifar10_standard,
    cifar10_trades,
    cifar10_xcit,
)
from robustvit.recipes.digits import digits_robust, digits_standard
from robustvit.recipes.light_ablation import imagenet100, imagenet100_architecture
from robustvit.recipes.light_finetuning import (
    caltech101_light,
    caltech101_standard,
    cifar10_finetuned,
    cifar10_from_scratch,
    cifar10_from_scratch_generated,
    cifar100_finetuned,
    flowers102_light,
    flowers102_standard,
)
from robustvit.recipes.light_recipe import (
    imagenet_basic_augmentation,
    imagenet_canonical,
    imagenet_canonical_deit,
    imagenet_canonical_eps8,
    imagenet_canonical_eps_warmup,
    imagenet_canonical_eps_warmup_eps8,
    imagenet_canonical_eps_warmup_l2,
    imagenet_canonical_l2,
    imagenet_curriculum,
    imagenet_light,
    imagenet_light_eps8,
    imagenet_light_erasing,
    imagenet_light_l2,
    imagenet_light_poolformer,
    imagenet_light_xcit_l12,
    imagenet_resnet50,
    imagenet_resnet50_eps8,
    imagenet_resnet50_l2,
    imagenet_standard,
    imagenet_standard_light,
)

RECIPES: dict[str, Callable[[], Recipe]] = {
    "digits-standard": digits_standard,
    "digits-robust": digits_robust,
    "cifar10-standard": cifar10_standard,
    "cifar10-robust": cifar10_robust,
    "cifar10-trades": cifar10_trades,
    "cifar10-light": cifar10_light,
    "cifar10-xcit": cifar10_xcit,
    "cifar10-resnet-standard": cifar10_resnet_standard,
    "cifar10-resnet": cifar10_resnet,
    "imagenet-light": imagenet_light,
    "imagenet-canonical": imagenet_canonical,
    "imagenet-canonical-eps-warmup": imagenet_canonical_eps_warmup,
    "imagenet-basic-augmentation": imagenet_basic_augmentation,
    "imagenet-light-erasing": imagenet_light_erasing,
    "imagenet-light-eps8": imagenet_light_eps8,
    "imagenet-canonical-eps8": imagenet_canonical_eps8,
    "imagenet-canonical-eps-warmup-eps8": imagenet_canonical_eps_warmup_eps8,
    "imagenet-light-l2": imagenet_light_l2,
    "imagenet-canonical-l2": imagenet_canonical_l2,
    "imagenet-canonical-eps-warmup-l2": imagenet_canonical_eps_warmup_l2,
    "imagenet-light-xcit-l12": imagenet_light_xcit_l12,
    "imagenet-light-poolformer": imagenet_light_poolformer,
    "imagenet-canonical-deit": imagenet_canonical_deit,
    "imagenet-curriculum": imagenet_curriculum,
    "imagenet-resnet50": imagenet_resnet50,
    "imagenet-resnet50-eps8": imagenet_resnet50_eps8,
    "imagenet-resnet50-l2": imagenet_resnet50_l2,
    "imagenet-standard": imagenet_standard,
    "imagenet-standard-light": imagenet_standard_light,
    "imagenet100": imagenet100,
    "imagenet100-architecture": imagenet100_architecture,
    "caltech101-light": caltech101_light,
    "caltech101-standard": caltech101_standard,
    "flowers102-light": flowers102_light,
    "flowers102-standard": flowers102_standard,
    "cifar10-finetuned": cifar10_finetuned,
    "cifar100-finetuned": cifar100_finetuned,
    "cifar10-from-scratch": cifar10_from_scratch,
    "cifar10-from-scratch-generated": cifar10_from_scratch_generated,
}


def get_recipe(name_or_path: str) -> Recipe:
    """A recipe by name, or the one that a YAML file holds."""
    if name_or_path in RECIPES:
        return RECIPES[name_or_path]()
    path = Path(name_or_path)
    if (path / "recipe.yaml").is_file():
        raise UserError(f"recipe: {name_or_path!r} is a run; accepted: its recipe, {str(path / 'recipe.yaml')!r}")
    if path.suffix in (".yaml", ".yml") or path.exists():
        return config.load(path)
    raise unknown("recipe", name_or_path, RECIPES)
