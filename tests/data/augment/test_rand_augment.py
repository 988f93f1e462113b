"""RandAugment against timm's operations, which work on one PIL image at a time."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from timm.data import auto_augment
from torch import Tensor

from robustvit.data.augment import Luck, RandAugment
from robustvit.data.augment.rand_augment import OPERATIONS, operated

MakeLuck = Callable[..., Luck]

# In the order of OPERATIONS.
TIMM = (
    "AutoContrast",
    "Equalize",
    "Invert",
    "PosterizeIncreasing",
    "SolarizeIncreasing",
    "SolarizeAdd",
    "ContrastIncreasing",
    "BrightnessIncreasing",
    "ColorIncreasing",
    "SharpnessIncreasing",
    "Rotate",
    "ShearX",
    "ShearY",
    "TranslateXRel",
    "TranslateYRel",
)
EXACT = ("equalise", "invert", "posterise", "solarise", "solarise_add")
BY_NAME = dict(zip(OPERATIONS, TIMM, strict=True))


def by_timm(image: Tensor, name: str, level: float, sign: float, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """One image after timm's operation, in the wanted direction."""
    monkeypatch.setattr(auto_augment.random, "random", lambda: 0.75 if sign < 0 else 0.25)
    hparams = {"magnitude_std": 0, "img_mean": (128, 128, 128), "interpolation": Image.Resampling.BILINEAR}
    pixels = (255 * image).round().byte().permute(1, 2, 0).numpy()
    grey = pixels.shape[2] == 1
    if grey:
        hparams["img_mean"] = 128
    operation = auto_augment.AugmentOp(BY_NAME[name], prob=1.0, magnitude=level, hparams=hparams)
    result = np.array(operation(Image.fromarray(pixels[..., 0] if grey else pixels)))
    return torch.from_numpy(result).view(pixels.shape).permute(2, 0, 1) / 255


def alike(own: Tensor, theirs: Tensor) -> bool:
    """All but a few pixels, which fall to either side of an edge, are at most a level apart: PIL rounds down in places."""
    return bool(((own - theirs).abs() > 1.01 / 255).any(0).float().mean() < 0.01)


def test_the_operations_are_timms() -> None:
    assert sorted(TIMM) == sorted(auto_augment._RAND_INCREASING_TRANSFORMS)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_timms_at_every_level(
    photographs: Tensor, name: str, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Levels whose posterising and solarising do not hang on the last bit of a float; at 10 timm leaves posterise no bit.
    for level, sign in ((0.0, 1), (1.3, -1), (4.4, 1), (8.9, -1), (8.9, 1), (10.0, -1), (10.0, 1)):
        if name == "posterise" and level == 10:
            continue
        x = photographs[::3, :channels]
        number = torch.full((len(x),), float(OPERATIONS.index(name)))
        size, direction = torch.full((len(x),), level / 10), torch.full((len(x),), float(sign))
        for image, own in zip(x, operated(x, number, size, direction, fill=0.5), strict=True):
            expected = by_timm(image, name, level, sign, monkeypatch)
            assert alike(own, expected), (name, level, sign)
            assert name not in EXACT or torch.equal(own, expected), (name, level, sign)


def test_posterise_keeps_a_bit_at_full_size(photographs: Tensor) -> None:
    number, ones = torch.full((8,), float(OPERATIONS.index("posterise"))), torch.ones(8)
    result = operated(photographs, number, ones, ones, fill=0.5)
    torch.testing.assert_close(result, (photographs >= 128 / 255).float() * 128 / 255)


@pytest.mark.parametrize("name", ["autocontrast", "equalise"])
def test_images_of_few_levels_are_spread_as_pil_spreads_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(4, 3, 16, 20)
    x[1] = 0.5
    x[2, :, :, 7:] = 100 / 255
    x[3, 1] = torch.arange(20).div(255)[None]
    number, ones = torch.full((4,), float(OPERATIONS.index(name))), torch.ones(4)
    for image, own in zip(x, operated(x, number, ones, ones, fill=0.5), strict=True):
        assert (own - by_timm(image, name, 9, 1, monkeypatch)).abs().max() < 1.01 / 255


def test_the_whole_is_timms_operations_as_drawn(photographs: Tensor, luck: MakeLuck, monkeypatch: pytest.MonkeyPatch) -> None:
    x = photographs.repeat(8, 1, 1, 1)
    result, stream = RandAugment(magnitude=8, std=4, layers=3, prob=0.6).change(x, luck(64)), luck(64)
    expected = list(x)
    for _ in range(3):
        level = (8 + 4 * stream.normal()).tolist()
        number, sign = stream.whole(14).long().tolist(), stream.sign().tolist()
        for i, applied in enumerate(stream.chance(0.6).tolist()):
            if applied:
                name = OPERATIONS[number[i]]
                size = min(level[i], 9.9) if name == "posterise" else level[i]  # which timm cuts to 0 … 10
                expected[i] = by_timm(expected[i], name, size, sign[i], monkeypatch)
    # A level of difference in one layer may be several after the next, most of all where equalise or posterise meet it.
    near = [float((own - theirs).abs().mean()) < 6 / 255 for own, theirs in zip(result, expected, strict=True)]
    assert sum(near) >= 62


def test_every_operation_is_as_likely_as_the_others_and_half_of_the_draws_are_applied(luck: MakeLuck) -> None:
    # A small image that no operation leaves as it is, and that all of them change differently.
    x = torch.rand(1, 3, 20, 20, generator=torch.Generator().manual_seed(0)) * 0.9 + 0.04
    x = (255 * x).round() / 255
    results = RandAugment(std=0, layers=1).change(x.expand(6000, -1, -1, -1), luck(6000))
    kinds, counts = results.flatten(1).unique(dim=0, return_counts=True)
    untouched = int(counts[(kinds == x.flatten()).all(1)].sum())
    assert stats.binomtest(untouched, 6000, 0.5).pvalue > 1e-3
    both = torch.ones(15), torch.full((15,), 0.9)
    per_operation = []
    for sign in (-1.0, 1.0):
        each = operated(x.expand(15, -1, -1, -1), torch.arange(15.0), both[1], sign * both[0], fill=0.5)
        per_operation.append([(results == image).flatten(1).all(1) for image in each])
    found = [int((minus | plus).sum()) for minus, plus in zip(*per_operation, strict=True)]
    assert sum(found) == 6000 - untouched
    assert stats.chisquare(found).pvalue > 1e-3


def test_images_that_no_operation_meets_keep_their_bits(luck: MakeLuck) -> None:
    x = torch.rand(200, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    result = RandAugment(layers=1, prob=0.2).change(x, luck(200))
    assert stats.binomtest(int((result == x).flatten(1).all(1).sum()), 200, 0.8).pvalue > 1e-3
    assert torch.equal(RandAugment(prob=0).change(x, luck(200)), x)
