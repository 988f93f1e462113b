"""The stateless generator: uniform, independent of the batch, and without a trace of its inputs."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from robustvit.noise import uniform


@pytest.fixture(scope="module")
def photographs() -> Tensor:
    """Content to hash: 200 random 3×16×16 images of 256 grey levels."""
    return torch.randint(0, 256, (200, 3, 16, 16), generator=torch.Generator().manual_seed(0)) / 255


def correlation(a: Tensor, b: Tensor) -> float:
    return float(np.corrcoef(a.flatten().double().numpy(), b.flatten().double().numpy())[0, 1])


@pytest.mark.parametrize("seed", [0, 1, -1, 123_456_789, 2**31, 2**40 + 7])
def test_noise_is_uniform(photographs: Tensor, seed: int) -> None:
    sample = uniform(photographs, seed).flatten().double().numpy()
    n = sample.size
    assert abs(sample.mean() - 0.5) < 4 * np.sqrt(1 / 12 / n)
    assert abs(sample.var() - 1 / 12) < 4 * np.sqrt(1 / 180 / n)
    assert stats.kstest(sample, "uniform").pvalue > 1e-4


def test_the_noise_of_each_single_image_is_uniform(photographs: Tensor) -> None:
    pvalues = [stats.kstest(image.flatten().numpy(), "uniform").pvalue for image in uniform(photographs, 0)]
    assert stats.kstest(pvalues, "uniform").pvalue > 1e-4


def test_the_noise_of_each_single_pixel_is_uniform_over_images(photographs: Tensor) -> None:
    pixels = uniform(photographs, 0).flatten(1).numpy()
    pvalues = [stats.kstest(pixels[:, place], "uniform").pvalue for place in range(pixels.shape[1])]
    assert stats.kstest(pvalues, "uniform").pvalue > 1e-4


def test_neighbouring_pixels_are_uncorrelated(photographs: Tensor) -> None:
    noise = uniform(photographs, 0)
    assert abs(correlation(noise[..., :-1], noise[..., 1:])) < 0.015
    assert abs(correlation(noise[..., :-1, :], noise[..., 1:, :])) < 0.015
    assert abs(correlation(noise[:, :-1], noise[:, 1:])) < 0.015


def test_seeds_and_steps_are_uncorrelated(photographs: Tensor) -> None:
    streams = [uniform(photographs, seed, step) for seed in (0, 1, 2) for step in (0, 1, 2)]
    for i, a in enumerate(streams):
        for b in streams[:i]:
            assert abs(correlation(a, b)) < 0.015


def test_nearly_identical_images_get_unrelated_noise(photographs: Tensor) -> None:
    touched = photographs.clone()
    touched[:, 1, 3, 5] = torch.nextafter(touched[:, 1, 3, 5], torch.tensor(0.5))  # one pixel by one ulp
    assert abs(correlation(uniform(photographs, 0), uniform(touched, 0))) < 0.015


def test_swapping_two_pixels_changes_the_noise(photographs: Tensor) -> None:
    swapped = photographs.clone()
    swapped[:, 0, 0, 0], swapped[:, 0, 0, 1] = 0.25, 0.75
    other = swapped.clone()
    other[:, 0, 0, 0], other[:, 0, 0, 1] = 0.75, 0.25
    assert abs(correlation(uniform(swapped, 0), uniform(other, 0))) < 0.015


@pytest.mark.parametrize("changed", ["seed", "step"])
def test_every_bit_of_seed_and_step_flips_half_of_the_output_bits(photographs: Tensor, changed: str) -> None:
    def bits(seed: int, step: int) -> Tensor:
        words = (uniform(photographs[:20], seed, step) * 2**23).int()
        return words.flatten()[:, None] >> torch.arange(23) & 1

    base = bits(5, 5)
    for bit in range(32):
        flipped = bits(5 ^ 1 << bit, 5) if changed == "seed" else bits(5, 5 ^ 1 << bit)
        share = (base != flipped).float().mean(0)  # of each output bit
        assert (share - 0.5).abs().max() < 0.03


def test_noise_lies_strictly_between_zero_and_one() -> None:
    noise = uniform(torch.zeros(4, 3, 1000, 1000), seed=0)
    assert noise.min() > 0
    assert noise.max() < 1
    assert noise.min() < 1e-6  # and yet comes close to both ends
    assert noise.max() > 1 - 1e-6


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_noise_is_open_and_of_the_images_type_in_any_precision(dtype: torch.dtype) -> None:
    noise = uniform(torch.zeros(1, 3, 200, 200, dtype=dtype), seed=0)
    assert noise.dtype == dtype
    assert noise.min() > 0
    assert noise.max() < 1


def test_unseeded_noise_is_open_too() -> None:
    """torch.rand itself gives an exact 0 about four times in these 2^26 draws."""
    x = torch.empty(1, 1, 4096, 4096)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        assert min(float(uniform(x, None).min()) for _ in range(4)) > 0


@pytest.mark.parametrize("size", [1, 7, 16])
def test_noise_does_not_depend_on_the_batch(images: tuple[Tensor, Tensor], size: int) -> None:
    x, _ = images
    whole = uniform(x, seed=3, step=2)
    parts = torch.cat([uniform(part, seed=3, step=2) for part in x.split(size)])
    assert torch.equal(whole, parts)


def test_noise_follows_an_image_through_any_order(images: tuple[Tensor, Tensor]) -> None:
    x, _ = images
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    assert torch.equal(uniform(x[order], 0), uniform(x, 0)[order])
    assert torch.equal(uniform(x.contiguous(memory_format=torch.channels_last), 0), uniform(x, 0))


def test_the_same_content_gets_the_same_noise_and_leaves_the_global_generator_alone() -> None:
    x = torch.full((3, 1, 8, 8), 0.5)
    before = torch.get_rng_state()
    noise = uniform(x, 0)
    assert torch.equal(noise[0], noise[1])
    assert torch.equal(noise, uniform(x.clone(), 0))
    assert torch.equal(before, torch.get_rng_state())


def test_without_a_seed_noise_comes_from_torchs_generator() -> None:
    x = torch.zeros(2, 1, 4, 4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first, second = uniform(x, None), uniform(x, None)
        torch.manual_seed(1)
        assert torch.equal(uniform(x, None), first)
    assert not torch.equal(first, second)
