"""Augmentation against a plain loop over images."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from robustvit.data.augment import augment, mirror, pad_crop


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def distinct(count: int, channels: int = 3, height: int = 6, width: int = 5) -> Tensor:
    """No two pixels alike and none zero, so that a crop shows where it was taken."""
    return torch.arange(1.0, count * channels * height * width + 1).view(count, channels, height, width)


def windows(image: Tensor, pad: int) -> dict[tuple[int, int], Tensor]:
    """Every crop of the zero-padded image, by its offset."""
    channels, height, width = image.shape
    padded = torch.zeros(channels, height + 2 * pad, width + 2 * pad)
    padded[:, pad : pad + height, pad : pad + width] = image
    span = range(2 * pad + 1)
    return {(top, left): padded[:, top : top + height, left : left + width] for top in span for left in span}


@pytest.mark.parametrize("pad", [1, 2, 4])
def test_every_crop_is_a_window_of_its_own_padded_image(pad: int) -> None:
    x = distinct(12)
    for image, crop in zip(x, pad_crop(x, pad), strict=True):
        assert sum(torch.equal(crop, window) for window in windows(image, pad).values()) == 1


def test_all_offsets_occur_equally_often_and_rows_do_not_follow_columns() -> None:
    image = distinct(1, 1)
    crops = pad_crop(image.expand(4500, -1, -1, -1), pad=1)
    counts = [sum(torch.equal(crop, window) for crop in crops) for window in windows(image[0], 1).values()]
    assert sum(counts) == 4500
    assert min(counts) > 400  # 500 expected, standard deviation 21
    assert max(counts) < 600


def test_about_half_of_the_images_are_mirrored_and_the_others_are_untouched() -> None:
    x = distinct(1000, 1)
    result = mirror(x)
    flipped = torch.tensor([torch.equal(a, b.flip(-1)) for a, b in zip(result, x, strict=True)])
    kept = torch.tensor([torch.equal(a, b) for a, b in zip(result, x, strict=True)])
    assert (flipped ^ kept).all()
    assert 430 < int(flipped.sum()) < 570


def test_no_padding_and_no_flip_is_the_identity() -> None:
    x = distinct(4)
    assert torch.equal(augment(x), x)
    assert torch.equal(pad_crop(x, 0), x)


def test_augment_pads_and_flips_without_writing_to_its_input() -> None:
    x = distinct(30)
    before = x.clone()
    for image, result in zip(x, augment(x, pad=2, flip=True), strict=True):
        options = windows(image, 2).values()
        assert any(torch.equal(result, z) or torch.equal(result, z.flip(-1)) for z in options)
    assert torch.equal(x, before)


def test_the_torch_seed_decides_the_augmentation() -> None:
    x = distinct(20)
    torch.manual_seed(5)
    first, second = augment(x, 2, True), augment(x, 2, True)
    torch.manual_seed(5)
    assert torch.equal(augment(x, 2, True), first)
    assert not torch.equal(first, second)
