"""Colour jitter against torchvision."""

from collections.abc import Callable

import pytest
import torch
import torchvision.transforms.functional as TF
from scipy import stats
from torch import Tensor

from robustvit.data.augment import ColourJitter, Luck
from robustvit.data.augment.colour import turn_hue

MakeLuck = Callable[..., Luck]


@pytest.mark.parametrize("turn", [-0.5, -0.2, 0.0, 0.1, 0.5])
def test_a_turn_of_hue_is_torchvisions(photographs: Tensor, turn: float) -> None:
    plain = torch.tensor([[0.0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1]])
    x = torch.cat([photographs, plain.view(8, 3, 1, 1).expand(-1, -1, 40, 48)])
    own = turn_hue(x, torch.full((16,), turn))
    torch.testing.assert_close(own, TF.adjust_hue(x, turn), atol=1e-5, rtol=0)


@pytest.mark.parametrize("jitter", [ColourJitter(), ColourJitter(0.2, 0.6, 0.9, 0.3)])
def test_all_steps_in_the_drawn_order_are_torchvisions(photographs: Tensor, luck: MakeLuck, jitter: ColourJitter) -> None:
    x = photographs.repeat(4, 1, 1, 1)
    stream = luck(32)
    order = stream.uniform(4).argsort(1)
    factors = [stream.between(1 - width, 1 + width) for width in (jitter.brightness, jitter.contrast, jitter.saturation)]
    factors.append(stream.between(-jitter.hue, jitter.hue))
    steps = (TF.adjust_brightness, TF.adjust_contrast, TF.adjust_saturation, TF.adjust_hue)
    result = jitter.change(x, luck(32))
    assert len(order.unique(dim=0)) > 12
    for number, image in enumerate(x):
        for step in order[number].tolist():
            image = steps[step](image, float(factors[step][number]))
        # Its weights of the channels are given to four digits.
        torch.testing.assert_close(result[number], image, atol=2e-3, rtol=0)


def test_factors_are_uniform_around_one(luck: MakeLuck) -> None:
    x = torch.full((3000, 3, 2, 2), 0.5)
    factor = ColourJitter(0.4, 0, 0).change(x, luck(3000))[:, 0, 0, 0] / 0.5
    assert stats.kstest(factor.numpy(), "uniform", (0.6, 0.8)).pvalue > 1e-3


def test_grey_images_stay_grey_under_saturation_and_hue(luck: MakeLuck) -> None:
    x = torch.rand(6, 1, 5, 5, generator=torch.Generator().manual_seed(0))
    for image in (x, x.expand(-1, 3, -1, -1)):
        torch.testing.assert_close(ColourJitter(0, 0, 0.8, 0.4).change(image, luck(6)), image)
