"""Loader workers: the same images with any number of them, after a resume, and as timm's transforms make them by hand."""

import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform
from torch import Tensor

from robustvit import config
from robustvit.config import Recipe
from robustvit.data import DataSpec, Images
from robustvit.data.files import Encoded, Files
from robustvit.data.loading import Ahead, Part, count_workers, open_feed
from robustvit.data.mixing import Generated
from robustvit.data.stored import Stored
from robustvit.data.transform import make_transform, seeded
from robustvit.errors import UserError
from robustvit.models import ModelSpec
from robustvit.recipes import RECIPES
from robustvit.training.calendar import Calendar
from robustvit.training.checkpoint import load_weights
from robustvit.training.loop import fit

STRONG = {"scale": [0.3, 1.0], "color_jitter": 0.4, "auto_augment": "rand-m9-mstd0.5-inc1", "interpolation": "random"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """40 training and 10 validation images of ten classes, with structure that a crop or a jitter changes."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 40), ("val", 10)):
        for number in range(count):
            place = tmp_path / "set" / split / str(number % 10) / f"{number}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            coarse = Image.fromarray(rng.integers(0, 256, (5, 4, 3), dtype=np.uint8))
            coarse.resize((20, 24), Image.Resampling.BILINEAR).save(place)
    return tmp_path / "set"


@pytest.fixture
def spec(folder: Path) -> DataSpec:
    return DataSpec("folder", str(folder), size=8, transform=STRONG)


PARTS: list[Part] = [(epoch, torch.tensor(places)) for epoch, places in ((0, [3, 1, 39]), (0, [7, 8]), (1, [1, 3, 7]))]


def fed(images: Images, spec: DataSpec, workers: int, parts: Iterable[Part] = PARTS, seed: int = 0) -> list[Tensor]:
    parts = list(parts)
    feed = open_feed(images, replace(spec, workers=workers), iter(parts), seed)
    return [feed(places)[0] for _, places in parts]


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


def test_workers_do_not_change_a_pixel(spec: DataSpec) -> None:
    images = spec.load("train")
    batches = [fed(images, spec, workers) for workers in (0, 1, 2)]
    assert equal(batches[0], batches[1])
    assert equal(batches[0], batches[2])
    assert [tuple(x.shape) for x in batches[0]] == [(3, 3, 8, 8), (2, 3, 8, 8), (3, 3, 8, 8)]


def test_an_images_transform_follows_from_seed_epoch_and_place_alone(spec: DataSpec) -> None:
    images = spec.load("train")
    first, second, third = fed(images, spec, 0)
    # Alone, in another order, after a resume that skips what came before: the same.
    assert torch.equal(fed(images, spec, 0, [(0, torch.tensor([39]))])[0][0], first[2])
    assert torch.equal(fed(images, spec, 0, PARTS[1:])[0], second)
    assert not torch.equal(third[0], first[1])  # image 1 in the next epoch
    assert not torch.equal(fed(images, spec, 0, seed=1)[0], first)


def test_the_transform_is_timms_own(spec: DataSpec, folder: Path) -> None:
    """With nothing random left, batches equal what timm makes of the files, before its normalisation."""
    plain = {"hflip": 1.0, "scale": [1.0, 1.0], "ratio": [1.0, 1.0], "color_jitter": 0.0, "interpolation": "bicubic"}
    fixed = replace(spec, transform=plain)
    images = fixed.load("train")
    assert isinstance(images.x, Stored)
    transform = create_transform(8, is_training=True, mean=(0, 0, 0), std=(1, 1, 1), **plain)
    assert isinstance(images.x.store, Encoded)
    files = images.x.store.originals
    assert isinstance(files, Files)
    expected = torch.stack([transform(Image.open(files.paths[place])) for place in (3, 1, 39)])
    torch.testing.assert_close(fed(images, fixed, 0)[0], expected)


@pytest.mark.parametrize("policy", ["rand-m10-n15-inc1", "augmix-m10", "original-mstd0.5"])
def test_the_strongest_policies_fail_on_no_image(policy: str) -> None:
    """timm's posterise asks for 0 bits at its highest level, which newer versions of Pillow refuse."""
    transform = make_transform({"auto_augment": policy, "scale": [1.0, 1.0]}, (3, 8, 8))
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8))
    made = []
    for key in range(100):
        with seeded(key):
            made.append(transform(image))
    assert len({x.numpy().tobytes() for x in made}) > 40


def test_labels_come_with_their_images(spec: DataSpec) -> None:
    images = spec.load("train")
    feed = open_feed(images, replace(spec, workers=0), iter(PARTS), 0)
    for _, places in PARTS:
        assert torch.equal(feed(places)[1], images.y[places])


def test_held_out_and_test_images_are_not_transformed(spec: DataSpec) -> None:
    plain = replace(spec, transform=None)
    for split in ("train", "test"):
        assert torch.equal(spec.load(split).batch(slice(None))[0], plain.load(split).batch(slice(None))[0])


def test_without_a_transform_stored_images_are_read_as_they_are(spec: DataSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = replace(spec, transform=None)
    kept = plain.load("train")
    monkeypatch.setattr("robustvit.data.images.IN_MEMORY", 0)
    lazy = plain.load("train")
    expected = [kept.batch(places)[0] for _, places in PARTS]
    assert equal(fed(lazy, plain, 0), expected)
    assert equal(fed(lazy, plain, 2), expected)


def test_images_in_memory_start_no_workers() -> None:
    images = DataSpec("digits").load("train")
    assert open_feed(images, DataSpec("digits"), iter(()), 0) == images.batch


def test_reading_leaves_every_random_state_alone(spec: DataSpec) -> None:
    """Or the number of workers would change what an attack draws."""
    images = spec.load("train")
    for workers in (0, 2):
        torch.manual_seed(7)
        random.seed(7)
        np.random.seed(7)
        fed(images, spec, workers)
        drawn = (torch.rand(1).item(), random.random(), np.random.rand())
        torch.manual_seed(7)
        random.seed(7)
        np.random.seed(7)
        assert drawn == (torch.rand(1).item(), random.random(), np.random.rand())


def test_what_a_worker_gets_can_be_sent_to_it(spec: DataSpec) -> None:
    """Where processes are not forked, as on macOS and with Python 3.14, all of it is pickled."""
    images = spec.load("train")
    assert isinstance(images.x, Stored)
    reading = Ahead(images, images.x, replace(spec, workers=0), iter(()), 0).loader.dataset
    part = PARTS[0]
    assert torch.equal(pickle.loads(pickle.dumps(reading))[part], reading[part])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_image_is_an_error_that_names_the_file_and_shows_no_traceback(
    workers: int, spec: DataSpec, folder: Path
) -> None:
    (folder / "train" / "3" / "3.png").write_bytes(b"hello")
    images = spec.load("train")
    parts = [(0, torch.arange(20)), (0, torch.arange(20, 40))]
    with pytest.raises(UserError, match=r"3\.png: cannot be decoded as an image: [^\n]*$"):
        fed(images, spec, workers, parts)


def test_a_worker_that_is_killed_is_an_error_that_says_what_to_try(spec: DataSpec) -> None:
    images = spec.load("train")
    parts = [(0, torch.arange(40))] * 50
    feed = open_feed(images, replace(spec, workers=1), iter(parts), 0)
    feed(parts[0][1])
    assert isinstance(feed, Ahead)
    os.kill(feed.ahead._workers[0].pid, signal.SIGKILL)  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"data\.workers: one of 1 ended .*Try fewer, or 0"):
        [feed(places) for _, places in parts[1:]]


BAD = {
    "an unknown argument": ({"colour": 0.4}, r"data\.transform\.colour: 0\.4; accepted in data\.transform: no_aug, "),
    "normalisation": ({"mean": [0.5, 0.5, 0.5]}, r"data\.transform\.mean: "),
    "erasing, which timm does after normalising": ({"re_prob": 0.25}, r"data\.transform\.re_prob: "),
    "a bad value": ({"color_jitter": [0.1, 0.2]}, "is not accepted by timm"),
    "a policy that is none": ({"auto_augment": "none-m9"}, "is not accepted by timm"),
    "a scale as a word": ({"scale": "small"}, "is not accepted by timm"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_transform_that_cannot_be_is_an_error_before_training(case: str, spec: DataSpec) -> None:
    arguments, message = BAD[case]
    with pytest.raises(UserError, match=message):
        replace(spec, transform=arguments).load("train")


def test_a_transform_beside_what_it_cannot_work_on_is_an_error() -> None:
    with pytest.raises(UserError, match=r"data\.transform: .*; accepted with the data folder, .* not 'cifar10'"):
        DataSpec("cifar10", transform=STRONG)
    with pytest.raises(UserError, match=r"data\.transform: accepted without generated images alone"):
        DataSpec("folder", transform=STRONG, generated=Generated("some.npz"))
    with pytest.raises(UserError, match=r"data\.workers: -1; accepted: 0 or more"):
        DataSpec("folder", workers=-1)


def test_without_a_wish_processes_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert (count_workers(None), count_workers(0), count_workers(3)) == (12, 0, 3)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert (count_workers(None), count_workers(3)) == (1, 3)


def recipe_of(data: DataSpec) -> Recipe:
    recipe = replace(RECIPES["digits-standard"](), model=ModelSpec("vit_nano", args={"depth": 1}), data=data, batch_size=12)
    phase = replace(recipe.phases[0], epochs=2)
    return replace(recipe, phases=(phase,), accumulate=2, optim=replace(recipe.optim, type="sgd", lr=0.1))


def weights(run: Path) -> dict[str, Tensor]:
    return load_weights(run / "checkpoints" / "last.safetensors")[1]


def same(one: Path, other: Path) -> bool:
    a, b = weights(one), weights(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_training_ends_in_the_same_bits_with_any_number_of_workers(spec: DataSpec, tmp_path: Path) -> None:
    runs = [fit(recipe_of(replace(spec, workers=workers)), tmp_path / str(workers), "cpu") for workers in (0, 2)]
    assert recipe_of(replace(spec, workers=0)).hash() == recipe_of(replace(spec, workers=2)).hash()
    assert same(*runs)
    other = fit(recipe_of(replace(spec, workers=0, transform={})), tmp_path / "other", "cpu")
    assert not same(runs[0], other)  # the transform was there


def test_a_run_that_stopped_goes_on_with_the_images_that_were_next(
    spec: DataSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from robustvit.training.loop import _Run

    recipe = recipe_of(replace(spec, workers=2))
    whole = fit(recipe, tmp_path / "whole", "cpu")
    step = _Run.step

    def stopping(run: _Run, *given: object) -> None:
        if run.state.step == 4:  # the second step of the second epoch; the state of step 3 is saved
            raise KeyboardInterrupt
        step(run, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(_Run, "step", stopping)
    with pytest.raises(KeyboardInterrupt):
        fit(recipe, tmp_path / "broken", "cpu")
    monkeypatch.undo()
    fit(recipe, tmp_path / "broken", "cpu")
    assert same(whole, tmp_path / "broken")
    assert (whole / "metrics.jsonl").read_text() == (tmp_path / "broken" / "metrics.jsonl").read_text()


@pytest.mark.slow
def test_two_processes_with_workers_train_the_model_that_one_does(spec: DataSpec, tmp_path: Path) -> None:
    recipe = replace(recipe_of(replace(spec, workers=2)), precision="fp32")
    config.save(recipe, tmp_path / "recipe.yaml")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "robustvit"]
    command = [*launcher, "train", str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "two"), "--device", "cpu"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 0, ended.stderr
    one = weights(fit(recipe, tmp_path / "one", "cpu"))
    for name, tensor in weights(tmp_path / "two").items():
        torch.testing.assert_close(tensor, one[name], rtol=1e-4, atol=1e-5)


def test_generated_images_are_trained_on_alike_from_memory_and_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_digits: Path
) -> None:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (300, 8, 8, 1), dtype=np.uint8)
    np.savez(tmp_path / "generated.npz", image=image, label=rng.integers(0, 10, 300))
    data = DataSpec("npz", str(few_digits), generated=Generated(str(tmp_path / "generated.npz")))
    recipe = replace(recipe_of(data), model=ModelSpec("vit_nano", channels=1, args={"depth": 1}), batch_size=32)
    kept = fit(recipe, tmp_path / "kept", "cpu")
    monkeypatch.setattr("robustvit.data.images.IN_MEMORY", 0)
    mapped = [fit(replace(recipe, data=replace(data, workers=n)), tmp_path / f"mapped{n}", "cpu") for n in (0, 2)]
    assert same(kept, mapped[0])
    assert same(kept, mapped[1])
    steps = Calendar(recipe, 180, 300).total
    assert f'"step": {steps}' in (kept / "metrics.jsonl").read_text().splitlines()[-1]
