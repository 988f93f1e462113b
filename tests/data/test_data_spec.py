"""DataSpec: sizes and subsets of image files, from YAML, from the command line and from the model."""

import inspect
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import nn

from robustvit import config
from robustvit.cli import evaluate as evaluate_verb
from robustvit.config import Recipe, override
from robustvit.data import DataSpec
from robustvit.data.augment import Flip
from robustvit.errors import UserError
from robustvit.evaluation.defaults import Defaults
from robustvit.models import Classifier, ModelSpec, build, load_model
from robustvit.recipes import RECIPES
from robustvit.training.checkpoint import load_weights, save_weights
from robustvit.training.loop import fit

BAD = [
    (
        {"source": "digits", "size": 8},
        r"data\.size: 8; accepted with the data folder, .* and timm alone, not 'digits'",
    ),
    ({"source": "cifar10", "resize": 40}, r"data\.resize: 40; accepted with"),
    ({"source": "npz", "subset": "list.txt"}, r"data\.subset: list\.txt; accepted with"),
    ({"source": "folder", "size": 0}, r"data\.size: 0; accepted: 1 pixel or more"),
    ({"source": "folder", "size": 224, "resize": 200}, r"data\.resize: 200; accepted: 224 pixels \(the size\) or more"),
    ({"source": "folder", "resize": 0}, r"data\.resize: 0"),
]


@pytest.mark.parametrize(("fields", "message"), BAD)
def test_sizes_that_cannot_be_are_errors(fields: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        DataSpec(**fields)


@pytest.fixture
def recipe() -> Recipe:
    data = DataSpec("imagenet", "/data/imagenet", size=224, resize=256, subset="robustbench")
    return replace(RECIPES["digits-standard"](), data=data)


def test_yaml_gives_back_sizes_and_subset(recipe: Recipe, tmp_path: Path) -> None:
    config.save(recipe, tmp_path / "recipe.yaml")
    assert config.load(tmp_path / "recipe.yaml") == recipe
    assert override(recipe, ["data.resize=null", "data.size=64"]).data.size == 64
    with pytest.raises(UserError, match=r"recipe\.data|data\.resize"):
        override(recipe, ["data.resize=100"])


def test_the_hash_covers_what_training_sees(recipe: Recipe) -> None:
    assert override(recipe, ["data.subset=null", "data.path=/elsewhere"]).hash() == recipe.hash()
    assert override(recipe, ["data.size=192"]).hash() != recipe.hash()
    assert override(recipe, ["data.resize=300"]).hash() != recipe.hash()


def test_a_spec_takes_the_size_of_the_model_where_it_is_silent() -> None:
    size = (3, 224, 224)
    assert DataSpec("imagenet", "val").fitted(size) == DataSpec("imagenet", "val", size=224, resize=224, channels=3)
    assert DataSpec("torchvision:MNIST").fitted((1, 28, 28)).channels == 1
    assert DataSpec("folder", channels=3).fitted((1, 28, 28)).channels == 3
    spec = DataSpec("imagenet", "val", channels=3)
    assert spec.fitted(size) == replace(spec, size=224, resize=224)
    assert spec.fitted(size, 0.875) == replace(spec, size=224, resize=256)
    assert spec.fitted(size, 0.9) == replace(spec, size=224, resize=248)  # timm's floor(224 / 0.9)
    assert replace(spec, size=112).fitted(size, 0.875) == replace(spec, size=112, resize=128)
    assert replace(spec, resize=232).fitted(size, 0.875) == replace(spec, size=224, resize=232)
    assert replace(spec, size=112, resize=112).fitted(size, 0.875) == replace(spec, size=112, resize=112)
    assert spec.fitted(None) == spec
    assert DataSpec("digits").fitted((1, 8, 8), 0.9) == DataSpec("digits")


def test_without_a_size_from_anywhere_the_error_says_how_to_pass_one(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(UserError, match=r"data\.size: missing.*train: data\.size=224, evaluate: --size 224"):
        DataSpec("folder", str(tmp_path)).load("test")


def test_the_command_line_sets_sizes_and_subset_over_the_runs_own(recipe: Recipe) -> None:
    run, none = Defaults(recipe, Path("out")), Defaults(None, Path("out"))
    own = recipe.data
    assert run.data(None) == run.data("imagenet") == own
    assert run.data(None, resize=300) == replace(own, resize=300)
    assert run.data(None, size=112) == replace(own, size=112, resize=None)
    assert run.data(None, subset="few.txt") == replace(own, subset="few.txt")
    # Other files are seen as the training images were, but the list was for those.
    assert run.data("folder:/other") == DataSpec("folder", "/other", size=224, resize=256)
    assert run.data("digits") == DataSpec("digits")
    assert none.data("imagenet:/val", 224, 256, "few.txt") == DataSpec(
        "imagenet", "/val", size=224, resize=256, subset="few.txt"
    )
    assert run.data(None, fields=["classes=10 by seed 0"]).classes == "10 by seed 0"
    hub = none.data("timm:hfds/set", fields=["splits.test=extra", "args.input_key=picture"])
    assert (hub.splits, hub.args) == ({"test": "extra"}, {"input_key": "picture"})
    with pytest.raises(UserError, match=r"--data-field: .*split.*did you mean 'splits'"):
        run.data(None, fields=["split.test=extra"])
    with pytest.raises(UserError, match=r"data\.size: 224; accepted with the data folder, imagenet, .* alone"):
        run.data("digits", size=224)
    assert {"size", "resize", "subset", "fields"} <= inspect.signature(evaluate_verb).parameters.keys()


@pytest.fixture
def few_files(tmp_path: Path) -> Path:
    """40 training and 10 validation images of ten classes, 10×9."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 40), ("val", 10)):
        for number in range(count):
            place = tmp_path / "set" / split / str(number % 10) / f"{number}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (10, 9, 3), dtype=np.uint8)).save(place)
    return tmp_path / "set"


def test_training_is_the_same_from_memory_and_from_files(
    few_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(
        RECIPES["digits-standard"](),
        model=ModelSpec("vit_nano", args={"depth": 1}),
        data=DataSpec("folder", str(few_files), size=8, augment=(Flip(),)),
        batch_size=12,
    )
    recipe = override(small, ["phases.0.epochs=1", "optim.schedule.warmup=0"])
    assert isinstance(recipe.data.load("train").x, torch.Tensor)
    kept = load_weights(fit(recipe, tmp_path / "kept", "cpu") / "checkpoints" / "last.safetensors")[1]
    monkeypatch.setattr("robustvit.data.images.IN_MEMORY", 0)
    assert not isinstance(recipe.data.load("train").x, torch.Tensor)
    lazy = load_weights(fit(recipe, tmp_path / "lazy", "cpu") / "checkpoints" / "last.safetensors")[1]
    assert kept.keys() == lazy.keys()
    assert all(torch.equal(kept[name], lazy[name]) for name in kept)


@pytest.mark.parametrize("name", ["deit_tiny_patch16_224", "xcit_nano_12_p16_384", "efficientnet_lite0", "mobilevit_xxs"])
def test_a_published_model_sees_what_timm_would_show_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Size, crop and normalisation are its own: pixel by pixel those of timm's transform for evaluation."""
    create = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained: create(name))  # no network
    model = load_model(name)
    settings = timm.data.resolve_model_data_config(model.backbone)
    assert (model.input_size, model.crop) == (settings["input_size"], settings["crop_pct"])
    coarse = np.random.default_rng(0).integers(0, 256, (20, 25, 3), dtype=np.uint8)
    picture = Image.fromarray(coarse).resize((500, 400), Image.Resampling.BILINEAR)
    (tmp_path / "a").mkdir()
    picture.save(tmp_path / "a" / "1.png")
    x, _ = DataSpec("folder", str(tmp_path)).fitted(model.input_size, model.crop).load("test").batch(slice(None))
    shown = timm.data.create_transform(**settings | {"interpolation": "bicubic"})(picture)
    torch.testing.assert_close((x - model.mean) / model.std, shown[None])


def test_the_crop_of_a_start_is_that_of_the_model(tmp_path: Path) -> None:
    spec = ModelSpec("vit_nano", channels=1, crop=0.8)
    save_weights(tmp_path / "start.safetensors", spec, build(spec).state_dict(), {})
    assert build(ModelSpec("vit_nano", channels=1, init=str(tmp_path / "start.safetensors"))).crop == 0.8
    assert build(ModelSpec("vit_nano", channels=1, init=str(tmp_path / "start.safetensors"), crop=1.0)).crop == 1.0
    with pytest.raises(UserError, match=r"model\.crop: 1\.5"):
        replace(spec, crop=1.5)


def test_a_model_that_says_nothing_of_crops_sees_whole_images() -> None:
    assert Classifier(nn.Flatten()).crop == 1.0
