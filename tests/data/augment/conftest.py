"""Photographs that need no download."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from robustvit.data.augment import Luck


@pytest.fixture(scope="session")
def photographs() -> Tensor:
    """Eight pieces of the two photographs that scikit-learn carries, [8, 3, 40, 48], each value one of 256 levels."""
    from sklearn.datasets import load_sample_image

    pieces = []
    for name in ("china.jpg", "flower.jpg"):
        small = Image.fromarray(load_sample_image(name)).resize((96, 80), Image.Resampling.BOX)
        pixels = torch.from_numpy(np.array(small)).permute(2, 0, 1)
        pieces += [pixels[:, top : top + 40, left : left + 48] for top in (0, 40) for left in (0, 48)]
    return torch.stack(pieces) / 255


@pytest.fixture(scope="session")
def luck() -> Callable[..., Luck]:
    """Of so many images, from the start of its stream."""
    return lambda count, seed=0, epoch=0: Luck.of(torch.arange(count), seed, epoch)
