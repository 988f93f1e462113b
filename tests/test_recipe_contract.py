"""The contract of every recipe that has a name."""

from dataclasses import replace

import pytest
import torch

from robustvit.data import SOURCES
from robustvit.models import build
from robustvit.objectives.adversarial import Adversarial
from robustvit.recipes import RECIPES
from robustvit.training.loop import make_optimizer

IMAGE = {"digits": (1, 8, 8), "cifar10": (3, 32, 32), "cifar100": (3, 32, 32)}


def build_shapes(recipe):
    """The recipe's model without numbers: what it would start from need not be there, and large ones take no time."""
    with torch.device("meta"):
        return build(replace(recipe.model, init=None))


@pytest.mark.parametrize("name", RECIPES)
class TestEveryRecipe:
    def test_is_called_what_the_registry_calls_it(self, name):
        assert RECIPES[name]().name == name

    def test_says_its_command(self, name):
        assert f"robustvit train {name} --out runs/{name}" in RECIPES[name].__doc__

    def test_model_takes_the_images_of_its_data(self, name):
        recipe = RECIPES[name]()
        assert recipe.data.source in SOURCES
        image = IMAGE.get(recipe.data.source) or (recipe.model.channels, recipe.data.size, recipe.data.size)
        logits = build_shapes(recipe).eval()(torch.empty(2, *image, device="meta"))
        assert logits.shape == (2, recipe.model.num_classes)

    def test_optimiser_holds_every_parameter(self, name):
        recipe = RECIPES[name]()
        model = build_shapes(recipe)
        held = sum(len(group["params"]) for group in make_optimizer(recipe.optim, model).param_groups)
        assert held == len(list(model.parameters()))

    def test_is_selected_under_the_threat_it_trains_against(self, name):
        recipe = RECIPES[name]()
        adversarial = [phase.objective for phase in recipe.phases if isinstance(phase.objective, Adversarial)]
        assert bool(adversarial) == (recipe.select is not None)
        for objective in adversarial:
            assert objective.adversary.threat == recipe.select.threat


def test_hashes_tell_all_recipes_apart():
    assert len({recipe().hash() for recipe in RECIPES.values()}) == len(RECIPES)
