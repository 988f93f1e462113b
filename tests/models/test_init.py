"""ModelSpec.init: a model starts from the weights of another, which it is adapted to, and needs it no more once trained."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from robustvit.config import Recipe, from_data, override, to_data
from robustvit.errors import UserError
from robustvit.models import ModelSpec, build, fingerprint, load_model, resolved
from robustvit.models.adapt import sum_of_blocks
from robustvit.training.checkpoint import save_weights
from robustvit.training.loop import fit

SPEC = ModelSpec("vit_nano", channels=1, args={"depth": 1})


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A run folder with one checkpoint, as far as `load_model` looks."""
    folder = tmp_path / "published"
    torch.manual_seed(3)
    save_weights(folder / "checkpoints" / "best.safetensors", SPEC, build(SPEC).state_dict(), {})
    (folder / "recipe.yaml").write_text("")
    return folder


def test_a_model_starts_from_the_weights_of_a_run(published: Path, images: tuple[Tensor, Tensor]) -> None:
    model, old = build(replace(SPEC, init=str(published))), load_model(published)
    assert fingerprint(model) == fingerprint(old)
    assert torch.equal(model.eval()(images[0]), old(images[0]))


def test_a_checkpoint_will_do(published: Path) -> None:
    spec = replace(SPEC, init=str(published / "checkpoints" / "best.safetensors"))
    assert fingerprint(build(spec)) == fingerprint(load_model(published))


def test_the_normalisation_stays_that_of_the_new_model(published: Path) -> None:
    model = build(replace(SPEC, init=str(published), mean=(0.25,), std=(0.5,)))
    assert (model.mean.item(), model.std.item()) == (0.25, 0.5)


def test_without_a_normalisation_of_its_own_it_takes_the_one_of_its_start(tmp_path: Path) -> None:
    spec = replace(SPEC, mean=(0.25,), std=(0.5,))
    first = tmp_path / "first.safetensors"
    save_weights(first, spec, build(spec).state_dict(), {})
    model = build(replace(SPEC, init=str(first)))
    assert (model.mean.item(), model.std.item()) == (0.25, 0.5)
    assert resolved(replace(SPEC, init=str(first)), model) == replace(spec, crop=1.0, init=str(first))


def test_another_patch_size_is_adapted_to_in_the_way_asked_for(published: Path) -> None:
    old = load_model(published).backbone
    smaller = replace(SPEC, init=str(published), args={"depth": 1, "patch_size": 1, "img_size": 4})
    torch.testing.assert_close(
        build(smaller).backbone.patch_embed.proj.weight, sum_of_blocks(old.patch_embed.proj.weight, (1, 1))
    )
    larger = replace(smaller, args={"depth": 1, "patch_size": 3, "img_size": 12})
    with pytest.raises(UserError, match=r"patch_embed.proj.weight 64×1×2×2 cannot become 64×1×3×3"):
        build(larger)
    resampled = build(replace(larger, adaptation="resample")).backbone
    assert torch.equal(resampled.pos_embed, old.pos_embed)


def test_another_number_of_classes_starts_its_classifier_as_without_init(published: Path) -> None:
    spec = replace(SPEC, num_classes=7)
    torch.manual_seed(0)
    untouched = build(spec).backbone
    torch.manual_seed(0)
    model = build(replace(spec, init=str(published))).backbone
    assert torch.equal(model.head.weight, untouched.head.weight)
    assert torch.equal(model.blocks[0].mlp.fc1.weight, load_model(published).backbone.blocks[0].mlp.fc1.weight)


def test_training_starts_there(small: Recipe, published: Path, tmp_path: Path) -> None:
    """With a learning rate of 0 it also ends there; afterwards nobody asks for the start again."""
    still = ["optim.lr=0", "optim.weight_decay=0", "phases.0.epochs=1", f"model.init={published}", "model.adaptation=resample"]
    recipe = override(small, still)
    start = load_model(published).state_dict()
    run = fit(recipe, tmp_path / "run", "cpu")
    shutil.rmtree(published)
    assert all(torch.equal(weight, start[name]) for name, weight in load_model(run).state_dict().items())


def test_where_a_model_starts_is_part_of_what_a_recipe_is(small: Recipe, published: Path) -> None:
    variants = [small, override(small, [f"model.init={published}"]), override(small, ["model.adaptation=resample"])]
    assert len({variant.hash() for variant in variants}) == 3
    assert from_data(Recipe, to_data(variants[1])) == variants[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"init": "nowhere_at_all"}, "model.init: 'nowhere_at_all' for vit_nano: unknown model"),
        ({"init": "vit_mini"}, "model.init: 'vit_mini' for vit_nano: .*without published weights"),
        (
            {"init": "PUBLISHED", "args": {"depth": 2}},
            "model.init: .*published' for vit_nano: 12 of its tensors cannot be adapted",
        ),
        ({"init": "PUBLISHED", "channels": 3}, "patch_embed.proj.weight 64×1×2×2 cannot become 64×3×2×2"),
    ],
)
def test_a_start_that_does_not_fit_is_an_error_that_names_the_field(published: Path, change: dict, message: str) -> None:
    change["init"] = change["init"].replace("PUBLISHED", str(published))
    with pytest.raises(UserError, match=message):
        build(replace(SPEC, **change))


def test_an_unknown_adaptation_is_an_error_that_names_the_field() -> None:
    with pytest.raises(UserError, match=r"model.adaptation: 'crop'; accepted: sum, resample"):
        replace(SPEC, adaptation="crop")
