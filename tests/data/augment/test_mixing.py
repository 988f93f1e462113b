"""Mixup and CutMix against their definitions and timm's windows."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from timm.data.mixup import rand_bbox
from torch import Tensor

from robustvit.data.augment import CutMix, Luck, Mixup, MixupOrCutMix
from robustvit.data.augment.mixing import Mixing

MakeLuck = Callable[..., Luck]
ALL = [Mixup(), CutMix(), MixupOrCutMix()]


def plain(count: int, height: int = 24, width: int = 30) -> tuple[Tensor, Tensor]:
    """Image k is (k + 1)/count all over and of a class of its own, so that a mix shows what went into it."""
    x = (torch.arange(count) + 1).view(-1, 1, 1, 1) / count
    return x.expand(-1, 1, height, width).contiguous(), torch.eye(count)


def own_share(y: Tensor) -> Tensor:
    """λ, checked to leave the rest to the image before."""
    own, partner = y.diagonal(), y.roll(1, 1).diagonal()
    torch.testing.assert_close(own + partner, torch.ones(len(y)))
    return own


def test_mixup_is_a_weighted_mean_of_images_and_labels_alike(luck: MakeLuck) -> None:
    x, labels = plain(200)
    mixed, y = Mixup()(x, labels, luck(200))
    share = own_share(y).view(-1, 1, 1, 1)
    torch.testing.assert_close(mixed, share * x + (1 - share) * x.roll(1, 0))


@pytest.mark.parametrize("alpha", [0.2, 0.8, 1.0])
def test_mixups_share_has_the_beta_distribution(luck: MakeLuck, alpha: float) -> None:
    x, labels = plain(3000, 2, 2)
    share = own_share(Mixup(alpha)(x, labels, luck(3000))[1])
    assert stats.kstest(share.double().numpy(), "beta", (alpha, alpha)).pvalue > 1e-3


def test_cutmix_pastes_one_window_of_the_partner_and_labels_follow_its_area(luck: MakeLuck) -> None:
    x, labels = plain(300)
    mixed, y = CutMix()(x, labels, luck(300))
    pasted, kept = mixed == x.roll(1, 0), mixed == x
    assert (pasted ^ kept).all()
    torch.testing.assert_close(own_share(y), kept.float().mean((1, 2, 3)))
    for mask in pasted[:, 0]:
        assert int(mask.sum()) == int(mask.any(0).sum()) * int(mask.any(1).sum())


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_cutmix_windows_are_as_timms(luck: MakeLuck, alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = plain(2000)
    own = 1 - own_share(CutMix(alpha)(x, labels, luck(2000))[1])
    generator = np.random.RandomState(0)
    monkeypatch.setattr(np.random, "randint", generator.randint)
    boxes = [rand_bbox((24, 30), share) for share in generator.beta(alpha, alpha, 2000)]
    theirs = [(bottom - top) * (right - left) / 720 for top, bottom, left, right in boxes]
    assert stats.ks_2samp(own.numpy(), theirs).pvalue > 1e-3


@pytest.mark.parametrize("mixing", [Mixup(prob=0.3), CutMix(prob=0.3), MixupOrCutMix(prob=0.3, switch_prob=0.2)])
def test_as_many_images_are_mixed_as_asked(luck: MakeLuck, mixing: Mixing) -> None:
    blended, pasted = mixing.shares(luck(5000))
    assert not ((blended < 1) & (pasted < 1)).any()
    assert stats.binomtest(int(((blended < 1) | (pasted < 1)).sum()), 5000, 0.3).pvalue > 1e-3


@pytest.mark.parametrize("switch", [0.0, 0.25, 1.0])
def test_one_of_the_two_is_taken_with_its_own_alpha(luck: MakeLuck, switch: float) -> None:
    blended, pasted = MixupOrCutMix(0.8, 3.0, switch_prob=switch).shares(luck(4000))
    cut = int((pasted < 1).sum())
    assert cut == 4000 * switch if switch in (0, 1) else stats.binomtest(cut, 4000, switch).pvalue > 1e-3
    for share, alpha in ((blended, 0.8), (pasted, 3.0)):
        taken = share[share < 1]
        assert not len(taken) or stats.kstest(taken.double().numpy(), "beta", (alpha, alpha)).pvalue > 1e-3


def test_the_mix_of_both_kinds_is_each_kind_in_its_images(luck: MakeLuck) -> None:
    x, labels = plain(400)
    mixed, y = MixupOrCutMix()(x, labels, luck(400))
    levels = torch.tensor([len(image.unique()) for image in mixed])
    share = own_share(y).view(-1, 1, 1, 1)
    blend = share * x + (1 - share) * x.roll(1, 0)
    uniform = ((mixed - blend).abs() < 1e-5).flatten(1).all(1)
    assert (uniform | (levels == 2)).all()
    assert 140 < int(uniform.sum()) < 260


@pytest.mark.parametrize("mixing", ALL)
def test_how_much_is_mixed_does_not_depend_on_the_batch(luck: MakeLuck, mixing: Mixing) -> None:
    index = torch.tensor([30, 2, 17])
    whole, part = mixing.shares(luck(40)), mixing.shares(Luck.of(index, 0, 0))
    assert all(torch.equal(a[index], b) for a, b in zip(whole, part, strict=True))


@pytest.mark.parametrize("mixing", ALL)
def test_an_image_alone_in_its_batch_has_itself_for_a_partner(luck: MakeLuck, mixing: Mixing) -> None:
    for epoch in range(20):
        x, y = torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(epoch)), torch.tensor([[0.0, 1.0]])
        mixed, labels = mixing(x, y, luck(1, epoch=epoch))
        torch.testing.assert_close(mixed, x)
        torch.testing.assert_close(labels, y)


@pytest.mark.parametrize("mixing", ALL)
def test_mixed_labels_are_mixed_again(luck: MakeLuck, mixing: Mixing) -> None:
    x, y = plain(6)
    soft = 0.7 * y + 0.3 * y.roll(1, 1)
    _, labels = mixing(x, soft, luck(6))
    _, share = mixing(x, y, luck(6))
    torch.testing.assert_close(labels, share @ soft)
