"""What stands for the paper's recipes at a scale."""

from dataclasses import replace

import pytest

from robustvit.data.augment import ColourJitter, Flip, PadCrop
from robustvit.models.flops import cost_of
from robustvit.papers.scales import PAPER, SCALES, SMALL, TINY, get_scale
from robustvit.recipes import RECIPES
from robustvit.recipes.light_ablation import imagenet100
from robustvit.recipes.light_recipe import imagenet_light, imagenet_light_l2
from robustvit.threat import Threat
from robustvit.training.schedule import Linear

LIGHT = [name for name in RECIPES if name.startswith(("imagenet", "caltech101", "flowers102"))]


@pytest.mark.parametrize("name", LIGHT)
def test_the_papers_own_scale_changes_nothing_that_decides_the_result(name: str) -> None:
    recipe = RECIPES[name]()
    stands = PAPER.stand_in(recipe, recipe.seed, {})
    assert stands.hash() == replace(recipe, model=replace(recipe.model, init=None)).hash()


def test_warm_ups_keep_their_share_and_augmentation_its_place() -> None:
    recipe = replace(imagenet100(), phases=(replace(imagenet100().phases[0], eps=Linear(22)),))
    stands = TINY.stand_in(recipe, 3, {})
    assert stands.epochs == TINY.epochs[110]
    assert stands.phases[0].eps == Linear(22 * TINY.epochs[110] / 110)
    assert stands.optim.schedule.warmup == pytest.approx(10 * TINY.epochs[110] / 110)
    assert stands.data.augment == recipe.data.augment  # digits are too small to be cropped
    assert SMALL.stand_in(recipe, 3, {}).data.augment == (PadCrop(4), Flip(), ColourJitter(*3 * (0.4,)), *recipe.data.augment)
    assert (stands.data.source, stands.data.transform, stands.seed) == ("digits", None, 3)


def test_every_threat_in_a_recipe_is_the_scales() -> None:
    stands = TINY.stand_in(imagenet_light_l2(), 0, {})
    assert stands.phases[0].objective.adversary.threat == stands.select.threat == TINY.threat(Threat("l2", 3.0))


def test_a_place_is_where_the_images_are_read() -> None:
    assert SMALL.stand_in(imagenet_light(), 0, {"cifar10": "here.npz"}).data.path == "here.npz"


@pytest.mark.parametrize("scale", [TINY, SMALL])
def test_models_keep_the_papers_order_of_size(scale) -> None:
    light = imagenet_light()

    def multiply_adds(name: str) -> int:
        stands = scale.stand_in(replace(light, model=replace(light.model, name=name)), 0, {})
        side = 8 if scale is TINY else 32
        return cost_of(stands.model, (stands.model.channels, side, side)).with_attention

    sizes = [multiply_adds(f"xcit_{size}_12_p16_224") for size in ("nano", "small", "medium", "large")]
    assert sizes == sorted(sizes) or scale is SMALL  # there the nano one has all twelve layers


def test_an_unknown_scale_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'small'"):
        get_scale("smal")
    assert list(SCALES) == ["tiny", "small", "paper"]  # from the one that says least
