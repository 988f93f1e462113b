"""Random erasing against its definition and timm's."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from timm.data.random_erasing import RandomErasing
from torch import Tensor

from robustvit.data.augment import Erasing, Luck

MakeLuck = Callable[..., Luck]


def rectangles(erased: Tensor) -> Tensor:
    """Top, left, height and width of what is erased, [N, 4], in images where anything is; each must be a full rectangle."""
    found = []
    for mask in erased[erased.flatten(1).any(1)]:
        rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
        height, width = int(rows.max() - rows.min()) + 1, int(columns.max() - columns.min()) + 1
        assert int(mask.sum()) == height * width
        found.append([int(rows.min()), int(columns.min()), height, width])
    return torch.tensor(found).float()


def test_rectangles_are_drawn_as_timm_draws_them(luck: MakeLuck) -> None:
    own = rectangles((Erasing(1.0).change(torch.full((1200, 3, 48, 36), 2.0), luck(1200)) != 2).any(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("timm.data.random_erasing.random", __import__("random").Random(0))
        theirs = rectangles(RandomErasing(1.0, device="cpu")(torch.full((1200, 3, 48, 36), 2.0))[:, 0] != 2)
    assert abs(len(own) - len(theirs)) < 20
    for measure in (
        lambda box: box[:, 2] * box[:, 3],
        lambda box: box[:, 2] / box[:, 3],
        lambda box: box[:, 0] / (49 - box[:, 2]),
        lambda box: box[:, 1] / (37 - box[:, 3]),
    ):
        assert stats.ks_2samp(measure(own).numpy(), measure(theirs).numpy()).pvalue > 1e-3


@pytest.mark.parametrize("prob", [0.0, 0.25, 1.0])
def test_as_many_images_are_erased_as_asked(luck: MakeLuck, prob: float) -> None:
    x = torch.full((2000, 1, 16, 16), 2.0)
    count = int((Erasing(prob, area=(0.1, 0.2), ratio=(0.5, 2.0)).change(x, luck(2000)) != 2).flatten(1).any(1).sum())
    assert count == 2000 * prob if prob in (0, 1) else stats.binomtest(count, 2000, prob).pvalue > 1e-3


def test_a_rectangle_that_cannot_fit_is_not_erased(luck: MakeLuck) -> None:
    for height, width in ((8, 16), (16, 8)):  # a square of half the area is as long as the shorter side, and that is too long
        x = torch.full((50, 3, height, width), 2.0)
        assert torch.equal(Erasing(1.0, area=(0.5, 0.5), ratio=(1.0, 1.0)).change(x, luck(50)), x)
        assert (Erasing(1.0, area=(0.4, 0.4), ratio=(1.0, 1.0)).change(x, luck(50)) != 2).flatten(1).any(1).all()


def test_each_filling_is_what_it_is_called(luck: MakeLuck) -> None:
    x = torch.full((300, 3, 20, 20), 2.0)
    for fill, colours in (("pixels", None), ("colour", 1), ("grey", 1)):
        result = Erasing(1.0, fill=fill).change(x, luck(300))
        values = [[channel[channel != 2] for channel in image] for image in result if (image != 2).any()]
        if colours:
            assert all(len(channel.unique()) == colours for image in values for channel in image)
        else:
            assert stats.kstest(np.concatenate([c.numpy() for image in values for c in image]), "uniform").pvalue > 1e-3
        if fill == "grey":
            assert set(torch.cat([c for image in values for c in image]).tolist()) == {0.5}
        else:
            assert len({float(image[k][0]) for image in values for k in range(3)}) > 2 * len(values)
