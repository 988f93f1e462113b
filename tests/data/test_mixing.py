"""Mixing generated images into training: the law of a batch, of an epoch, and what may stand beside what."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from robustvit import config
from robustvit.config import Recipe
from robustvit.data import DataSpec, Images
from robustvit.data.files import Encoded, Files
from robustvit.data.mixing import Generated, mixed_batch
from robustvit.data.stored import Stored
from robustvit.errors import UserError
from robustvit.training.calendar import Calendar


def write(folder: Path, count: int = 30, side: int = 8, channels: int = 1, label: int = 0) -> str:
    """Generated images, all white, of one class."""
    image = np.full((count, side, side, channels), 255, dtype=np.uint8)
    np.savez(folder / "generated.npz", image=image, label=np.full(count, label))
    return str(folder / "generated.npz")


def digits(share: float = 0.8) -> Recipe:
    from robustvit.recipes import RECIPES

    recipe = RECIPES["digits-standard"]()
    return replace(recipe, data=replace(recipe.data, generated=Generated("none", share)), batch_size=100)


def batch(number: int, real: int = 1000, generated: int = 5000, size: int = 100, share: float = 0.8, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return mixed_batch(torch.arange(real), number, size, share, generated, generator)


@pytest.mark.parametrize(
    ("share", "size", "real"), [(0.8, 1024, 205), (0.9, 100, 10), (0.5, 7, 4), (1.0, 64, 0), (1e-9, 64, 64)]
)
def test_a_batch_has_its_share_of_generated_images(share: float, size: int, real: int) -> None:
    places = batch(3, size=size, share=share)
    assert len(places) == size
    assert int((places < 1000).sum()) == real
    assert int(places.max()) < 6000


def test_real_images_follow_the_epochs_order_and_none_comes_twice() -> None:
    seen = [sorted(place for place in batch(number).tolist() if place < 1000) for number in range(10)]
    assert seen == [list(range(20 * number, 20 * number + 20)) for number in range(10)]


def test_an_epoch_that_needs_more_real_images_than_there_are_begins_anew() -> None:
    seen = [place for number in range(3) for place in batch(number, real=50, share=0.8).tolist() if place < 50]
    assert sorted(seen) == sorted([*range(50), *range(10)])


def test_generated_images_are_drawn_uniformly_and_with_replacement() -> None:
    drawn = torch.cat([batch(number, generated=10, seed=number) for number in range(500)])
    counts = (drawn[drawn >= 1000] - 1000).bincount(minlength=10)
    assert counts.sum() == 500 * 80
    assert ((counts - 4000).abs() < 5 * 60).all()  # the standard deviation of each is 60


def test_a_batch_is_shuffled() -> None:
    """Real images are found at every place of a batch, so that micro-batches and processes get their share of both."""
    found = torch.stack([(batch(number, seed=number) < 1000).float() for number in range(400)]).mean(0)
    assert ((found - 0.2).abs() < 5 * 0.02).all()


def test_an_epoch_is_as_many_batches_as_the_real_images_fill_rounded_up() -> None:
    for images, steps in ((1000, 10), (1001, 11), (999, 10)):
        assert Calendar(digits(), images, 5000).steps_per_epoch == steps
    assert Calendar(digits(), 30, 5000).steps_per_epoch == 1  # fewer real images than a batch
    assert Calendar(digits(), 1001).steps_per_epoch == 10  # without generated images the rest is left out
    assert Calendar(replace(digits(), batch_size=1024), 50_000, 1_000_000).steps_per_epoch == 49  # ⌈50000/1024⌉


def test_a_batch_follows_from_seed_and_step() -> None:
    calendar, again, other = (Calendar(replace(digits(), seed=seed), 1000, 5000) for seed in (0, 0, 1))
    batches = [calendar.batch(step) for step in range(12)]
    assert all(torch.equal(again.batch(step), batches[step]) for step in reversed(range(12)))
    assert not torch.equal(other.batch(0), batches[0])
    assert len({tuple(places.tolist()) for places in batches}) == 12
    epoch = torch.cat(batches[:10])
    real = epoch[epoch < 1000]
    assert len(real) == len(real.unique()) == 200


def test_processes_and_micro_batches_share_a_batch() -> None:
    calendar = Calendar(replace(digits(), accumulate=2), 1000, 5000)
    shares = [list(calendar.parts(3, rank, 2)) for rank in range(2)]
    assert [epoch for epoch, _ in shares[0][:16]] == [0] * 14 + [1] * 2
    assert len(shares[0]) == 2 * (calendar.total - 3)
    mine = torch.cat([part for share in shares for _, part in share[:2]])
    assert sorted(mine.tolist()) == sorted(calendar.batch(3).tolist())


def test_joined_sets_lie_one_after_the_other(tmp_path: Path) -> None:
    real = DataSpec("digits").load("train").subset(slice(0, 50))
    both = Generated(write(tmp_path)).join(real)
    assert (len(both), both.shape, both.name) == (80, real.shape, "digits+generated")
    assert both.classes == real.classes
    places = torch.tensor([79, 0, 49, 50, 7])
    x, y = both.batch(places)
    assert torch.equal(x[[1, 2, 4]], real.batch(places[[1, 2, 4]])[0])
    assert torch.equal(x[[0, 3]], torch.ones(2, 1, 8, 8))
    assert y.tolist() == [0, int(real.y[0]), int(real.y[49]), 0, int(real.y[7])]


def test_real_images_in_files_can_be_joined_too(tmp_path: Path) -> None:
    from PIL import Image

    for number in range(4):
        Image.new("RGB", (9, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
    files = Encoded(Files(tuple(str(tmp_path / f"{number}.png") for number in range(4))), 8, 8)
    both = Generated(write(tmp_path, channels=3)).join(Images("files", Stored.whole(files), torch.arange(4)))
    x, _ = both.batch(torch.tensor([33, 2]))
    assert torch.equal(x[1, :, 0, 0] * 255, torch.tensor([2.0, 0, 0]))
    assert bool((x[0] == 1).all())


def test_small_joined_sets_are_kept_in_memory(tmp_path: Path) -> None:
    spec = DataSpec("digits", generated=Generated(write(tmp_path)))
    real = spec.load("train")
    assert isinstance(spec.mixed(real).x, Tensor)
    assert replace(spec, generated=None).mixed(real) is real


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"side": 9}, r"images of shape \(1, 9, 9\) .*; accepted with 'digits': \(1, 8, 8\)"),
        ({"channels": 3}, r"images of shape \(3, 8, 8\)"),
        ({"label": 10}, "'generated': labels from 10 to 10; accepted: 0 to 9"),
    ],
)
def test_generated_images_of_another_kind_are_an_error(changes: dict[str, int], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        Generated(write(tmp_path, **changes)).join(DataSpec("digits").load("train"))


def test_generated_images_beside_floats_are_an_error(tmp_path: Path) -> None:
    real = Images("floats", torch.rand(5, 1, 8, 8), torch.arange(5))
    with pytest.raises(UserError, match="'floats' holds floats; accepted beside generated images: uint8"):
        Generated(write(tmp_path)).join(real)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
def test_a_share_that_cannot_be_is_an_error(share: float) -> None:
    with pytest.raises(UserError, match=r"data\.generated\.share: .*accepted: above 0, to 1"):
        Generated("none", share)


def test_the_hash_covers_the_share_and_not_the_place(tmp_path: Path) -> None:
    recipe = digits()
    config.save(recipe, tmp_path / "recipe.yaml")
    assert config.load(tmp_path / "recipe.yaml") == recipe
    plain = replace(recipe, data=replace(recipe.data, generated=None))
    assert config.override(plain, ["data.generated={path: none}"]) == recipe
    assert config.override(recipe, ["data.generated.path=/elsewhere"]).hash() == recipe.hash()
    assert config.override(recipe, ["data.generated.share=0.9"]).hash() != recipe.hash() != plain.hash()
