"""The streams of numbers behind augmentation, against the distributions they are meant to have."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from robustvit import noise
from robustvit.data.augment import Luck

MakeLuck = Callable[..., Luck]


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(np.corrcoef(a.numpy(), b.numpy())[0, 1])


def test_numbers_are_uniform_over_images_calls_and_epochs(luck: MakeLuck) -> None:
    stream = luck(20_000)
    samples = [stream.uniform(), stream.uniform(), luck(20_000, epoch=1).uniform(), luck(20_000, seed=1).uniform()]
    of_one_image = torch.stack([Luck.of(torch.tensor([7]), 0, epoch).uniform(2) for epoch in range(2000)])
    for sample in (*samples, of_one_image[:, 0, 0], of_one_image[:, 0, 1]):
        assert stats.kstest(sample.numpy(), "uniform").pvalue > 1e-3
    for i, a in enumerate(samples):
        assert all(abs(correlation(a, b)) < 0.03 for b in samples[:i])
        assert abs(correlation(a[1:], a[:-1])) < 0.03  # of neighbouring images


def test_streams_belong_to_the_number_of_an_image(luck: MakeLuck) -> None:
    whole = luck(50).uniform(3, 2)
    index = torch.tensor([49, 3, 3, 0])
    assert torch.equal(Luck.of(index, 0, 0).uniform(3, 2), whole[index])


def test_keys_of_seeds_epochs_and_images_hardly_ever_meet() -> None:
    keys = torch.stack([noise.numbered(torch.arange(10_000), seed, epoch) for seed in range(4) for epoch in range(5)])
    assert keys.dtype == torch.int32
    assert len(keys.unique()) >= keys.numel() - 20  # 4.7 meetings expected of 200,000 among 2³²


def test_neighbouring_seeds_do_not_share_the_next_ones_epochs() -> None:
    index = torch.arange(100)
    for seed, epoch in ((1, 0), (0, 1), (1, 1), (2, 0)):
        assert not (noise.numbered(index, seed, epoch) == noise.numbered(index, epoch + 5, seed)).any()
        if seed != epoch:
            assert not (noise.numbered(index, seed, epoch) == noise.numbered(index, epoch, seed)).any()


@pytest.mark.parametrize("most", [1, 6, 223])
def test_whole_numbers_are_equally_likely_with_both_ends(luck: MakeLuck, most: int) -> None:
    counts = luck(30_000).whole(most).long().bincount()
    assert len(counts) == most + 1
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_whole_numbers_take_a_limit_for_each_image(luck: MakeLuck) -> None:
    most = torch.arange(1000) % 4
    numbers = luck(1000).whole(most)
    assert (numbers <= most).all()
    assert numbers[most == 0].eq(0).all()
    assert len(numbers[most == 3].unique()) == 4


@pytest.mark.parametrize("prob", [0.0, 0.1, 0.5, 1.0])
def test_chance_comes_true_as_often_as_it_says(luck: MakeLuck, prob: float) -> None:
    count = int(luck(10_000).chance(prob).sum())
    assert count == prob * 10_000 if prob in (0, 1) else stats.binomtest(count, 10_000, prob).pvalue > 1e-3


def test_signs_and_intervals(luck: MakeLuck) -> None:
    assert luck(1000).sign().unique().tolist() == [-1, 1]
    assert stats.kstest(luck(10_000).between(-2, 5).numpy(), "uniform", (-2, 7)).pvalue > 1e-3
    assert luck(5).between(1, 2, 3, 4).shape == (5, 3, 4)


def test_normal_numbers_are_normal(luck: MakeLuck) -> None:
    assert stats.kstest(luck(50_000).normal().numpy(), "norm").pvalue > 1e-3


@pytest.mark.parametrize("alpha", [0.3, 0.8, 1.0, 4.0])
def test_beta_numbers_have_the_beta_distribution(luck: MakeLuck, alpha: float) -> None:
    numbers = luck(50_000).beta(alpha)
    assert stats.kstest(numbers.double().numpy(), "beta", (alpha, alpha)).pvalue > 1e-3


def test_beta_is_defined_where_the_gamma_variates_underflow(luck: MakeLuck) -> None:
    numbers = luck(10_000).beta(1e-3)
    assert numbers.isfinite().all()
    assert ((numbers < 1e-6) | (numbers > 1 - 1e-6)).float().mean() > 0.95
    assert abs(float(numbers.mean()) - 0.5) < 0.02
