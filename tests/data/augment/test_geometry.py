"""Crops, mirroring and rotation, against torchvision and PIL."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as TF
from PIL import Image
from scipy import stats
from torch import Tensor
from torchvision.transforms import InterpolationMode, RandomResizedCrop

from robustvit.data.augment import Flip, Luck, PadCrop, ResizedCrop, Rotation
from robustvit.data.augment.resampling import resize_windows, rotation, warp

MakeLuck = Callable[..., Luck]


def distinct(count: int, channels: int = 3, height: int = 6, width: int = 5) -> Tensor:
    """No two pixels alike and none zero, so that a crop shows where it was taken."""
    return torch.arange(1.0, count * channels * height * width + 1).view(count, channels, height, width) / 1e4


def ramps(count: int, height: int, width: int) -> Tensor:
    """A channel that says its own column, and one that says its row, [count, 3, H, W]; the third is 1 throughout."""
    down, across = torch.meshgrid((torch.arange(height) + 0.5) / 256, (torch.arange(width) + 0.5) / 256, indexing="ij")
    return torch.stack([across, down, torch.ones(height, width)]).expand(count, -1, -1, -1)


def pil(image: Tensor) -> Image.Image:
    return Image.fromarray((255 * image).round().byte().permute(1, 2, 0).numpy())


def tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255


def windows(image: Tensor, pad: int) -> dict[tuple[int, int], Tensor]:
    """Every crop of the zero-padded image, by its offset."""
    channels, height, width = image.shape
    padded = torch.zeros(channels, height + 2 * pad, width + 2 * pad)
    padded[:, pad : pad + height, pad : pad + width] = image
    span = range(2 * pad + 1)
    return {(top, left): padded[:, top : top + height, left : left + width] for top in span for left in span}


@pytest.mark.parametrize("pad", [1, 2, 4])
def test_every_pad_crop_is_a_window_of_its_own_padded_image(luck: MakeLuck, pad: int) -> None:
    x = distinct(12)
    for image, crop in zip(x, PadCrop(pad).change(x, luck(12)), strict=True):
        assert sum(torch.equal(crop, window) for window in windows(image, pad).values()) == 1


def test_all_offsets_of_a_pad_crop_occur_equally_often_and_rows_do_not_follow_columns(luck: MakeLuck) -> None:
    image = distinct(1, 1)
    crops = PadCrop(1).change(image.expand(4500, -1, -1, -1), luck(4500))
    counts = [int((crops == window).flatten(1).all(1).sum()) for window in windows(image[0], 1).values()]
    assert sum(counts) == 4500
    assert stats.chisquare(counts).pvalue > 1e-3


def test_no_padding_is_the_identity(luck: MakeLuck) -> None:
    assert torch.equal(PadCrop(0).change(distinct(4), luck(4)), distinct(4))


@pytest.mark.parametrize("prob", [0.2, 0.5])
def test_as_many_images_are_mirrored_as_asked_and_the_others_are_untouched(luck: MakeLuck, prob: float) -> None:
    x = distinct(1000, 1)
    result = Flip(prob).change(x, luck(1000))
    flipped, kept = ((result == y).flatten(1).all(1) for y in (x.flip(-1), x))
    assert (flipped ^ kept).all()
    assert stats.binomtest(int(flipped.sum()), 1000, prob).pvalue > 1e-3


BOXES = torch.tensor([[0, 0, 40, 48], [3, 5, 11, 17], [10, 1, 30, 4], [0, 47, 1, 1], [39, 0, 1, 48], [7, 20, 20, 24]])


@pytest.mark.parametrize("overhang", [(0, 0), (3, 5)])
def test_a_window_is_resized_as_torchvision_does_it(photographs: Tensor, overhang: tuple[int, int]) -> None:
    x = photographs[: len(BOXES)]
    result = resize_windows(x, *BOXES.float().unbind(1), overhang)
    for image, box, own in zip(x, BOXES.tolist(), result, strict=True):
        size, how = list(image.shape[1:]), InterpolationMode.BICUBIC
        exact = TF.resized_crop(image, *box, size, how, antialias=True).clamp(0, 1)
        torch.testing.assert_close(own, exact, atol=1e-4, rtol=0)
        # PIL rounds to 256 levels, between its two passes too.
        assert (own - tensor(TF.resized_crop(pil(image), *box, size, how))).abs().max() < 2.5 / 255


def test_a_window_that_reaches_past_the_image_sees_black_there(photographs: Tensor) -> None:
    boxes = torch.tensor([[-3, -5, 46, 60], [0, -2, 44, 50], [-4, 0, 45, 30]])
    result = resize_windows(photographs[:3], *boxes.float().unbind(1), (6, 12))
    for image, (top, left, height, width), own in zip(photographs, boxes.tolist(), result, strict=False):
        padded = torch.nn.functional.pad(image, [20, 20, 20, 20])
        box = (top + 20, left + 20, height, width)
        expected = TF.resized_crop(padded, *box, [40, 48], InterpolationMode.BICUBIC, antialias=True)
        torch.testing.assert_close(own, expected.clamp(0, 1), atol=1e-4, rtol=0)


def seen_windows(crops: Tensor) -> Tensor:
    """Top, left, height and width of the windows that crops of `ramps` came from, [B, 4], read off away from the edges."""
    height, width = crops.shape[2:]
    row, column = height // 2, width // 2
    across, down = 256 * crops[:, 0, row], 256 * crops[:, 1, :, column]
    wide, high = ((line[:, n - n // 3] - line[:, n // 3]) / (n - 2 * (n // 3)) for line, n in ((across, width), (down, height)))
    top, left = down[:, row] - (row + 0.5) * high, across[:, column] - (column + 0.5) * wide
    return torch.stack([top, left, high * height, wide * width], 1)


@pytest.mark.parametrize(("scale", "ratio"), [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.3, 0.5), (0.4, 0.9))])
def test_windows_are_drawn_as_torchvision_draws_them(luck: MakeLuck, scale: tuple, ratio: tuple) -> None:
    own = seen_windows(ResizedCrop(scale, ratio).change(ramps(1500, 60, 72), luck(1500)))
    assert (own - own.round()).abs().max() < 0.01
    image = torch.zeros(3, 60, 72)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = torch.tensor([RandomResizedCrop.get_params(image, list(scale), list(ratio)) for _ in range(1500)]).float()
    for measure in (
        lambda box: box[:, 2] * box[:, 3],
        lambda box: box[:, 3] / box[:, 2],
        lambda box: box[:, 0] / (61 - box[:, 2]),
        lambda box: box[:, 1] / (73 - box[:, 3]),
    ):
        assert stats.ks_2samp(measure(own.round()).numpy(), measure(theirs).numpy()).pvalue > 1e-3


@pytest.mark.parametrize("ratio", [(3.0, 3.0), (0.2, 0.25)])
def test_where_no_window_fits_the_largest_central_one_is_taken(luck: MakeLuck, ratio: tuple[float, float]) -> None:
    own = seen_windows(ResizedCrop((1.0, 1.0), ratio).change(ramps(3, 60, 72), luck(3)))
    theirs = RandomResizedCrop.get_params(torch.zeros(3, 60, 72), [1.0, 1.0], list(ratio))
    torch.testing.assert_close(own, torch.tensor(theirs).float().expand(3, -1), atol=0.01, rtol=0)


def test_the_whole_image_as_its_window_is_the_image(photographs: Tensor, luck: MakeLuck) -> None:
    square = photographs[:, :, :, :40]
    torch.testing.assert_close(ResizedCrop((1.0, 1.0), (1.0, 1.0)).change(square, luck(8)), square, atol=1e-6, rtol=0)


def test_windows_larger_than_the_image_hold_all_of_it_at_a_random_place(luck: MakeLuck) -> None:
    seen = seen_windows(ResizedCrop((0.8, 1.2), (0.95, 1.05)).change(ramps(1000, 60, 60), luck(1000)))
    own = seen.round()
    assert (own - seen).abs().max() < 0.05  # a shrunk ramp is nearly straight
    area, shape = own[:, 2] * own[:, 3] / 3600, own[:, 3] / own[:, 2]
    assert stats.kstest(area.numpy(), "uniform", (0.8, 0.4)).pvalue > 1e-4  # sides are whole pixels
    assert 0.92 < float(shape.min()) < 0.96
    assert 1.04 < float(shape.max()) < 1.08
    for start, length in ((own[:, 0], own[:, 2]), (own[:, 1], own[:, 3])):
        assert ((start >= 0) & (start + length <= 60))[length <= 60].all()
        assert ((start <= 0) & (start + length >= 60))[length >= 60].all()
        part = (start / (60 - length))[length > 64]
        assert {0.0, 1.0} <= set(part.tolist())
        assert abs(float(part.mean()) - 0.5) < 0.1


@pytest.mark.parametrize("degrees", [0.0, 2.0, -2.0, 30.0, 90.0, -135.0])
def test_a_rotation_is_pils_own(photographs: Tensor, degrees: float) -> None:
    angle = torch.full((8,), math.radians(degrees))
    turned = warp(photographs, rotation(angle, 40, 48), fill=0.0)
    for image, own in zip(photographs, turned, strict=True):
        expected = tensor(pil(image).rotate(degrees, Image.Resampling.BILINEAR))
        wrong = ((own - expected).abs() > 1.01 / 255).any(0)
        assert wrong.float().mean() < 0.005  # a pixel on the very edge may fall to either side


def test_angles_are_uniform_in_both_directions(luck: MakeLuck) -> None:
    turned = Rotation(10).change(ramps(2000, 30, 30), luck(2000))
    line = 256 * turned[:, :2, 15, 12:18]
    sine, cosine = (line[:, 1, -1] - line[:, 1, 0]) / 5, (line[:, 0, -1] - line[:, 0, 0]) / 5
    angle = torch.rad2deg(torch.atan2(sine, cosine))
    assert stats.kstest(angle.numpy(), "uniform", (-10, 20)).pvalue > 1e-3
