"""Recipes by name: functions that return a Recipe, often another one with a few fields changed."""

from collections.abc import Callable
from pathlib import Path

from robustvit import config
from robustvit.config import Recipe
from robustvit.errors import unknown
from robustvit.recipes.cifar10 import cifar10_robust, cifar10_standard, cifar10_trades
from robustvit.recipes.digits import digits_robust, digits_standard

RECIPES: dict[str, Callable[[], Recipe]] = {
    "digits-standard": digits_standard,
    "digits-robust": digits_robust,
    "cifar10-standard": cifar10_standard,
    "cifar10-robust": cifar10_robust,
    "cifar10-trades": cifar10_trades,
}


def get_recipe(name_or_path: str) -> Recipe:
    """A recipe by name, or the one that a YAML file holds."""
    if name_or_path in RECIPES:
        return RECIPES[name_or_path]()
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return config.load(path)
    raise unknown("recipe", name_or_path, RECIPES)
