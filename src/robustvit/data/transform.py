"""timm's own transforms of whole images, each image by a seed of its own."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from robustvit.data.files import MODES
from robustvit.errors import UserError

Transform = Callable[[Image.Image], Tensor]  # to uint8 pixels [C, H, W]

# Arguments of timm.data.create_transform that a recipe may set. Others are what the model or the augmentation on the device
# decides, or mean nothing to pixels in [0, 1].
ARGUMENTS = (
    *("no_aug", "train_crop_mode", "scale", "ratio", "hflip", "vflip"),
    *(
        "color_jitter",
        "color_jitter_prob",
        "force_color_jitter",
        "grayscale_prob",
        "gaussian_blur_prob",
        "auto_augment",
        "interpolation",
    ),
)


def make_transform(arguments: dict[str, Any], shape: tuple[int, int, int]) -> Transform:
    """timm's training transform without its normalisation, which belongs to the model."""
    from timm.data import auto_augment, create_transform

    channels, height, width = shape
    try:
        transform = create_transform(shape, is_training=True, normalize=False, **arguments)
        with seeded(0):
            transform(Image.new(MODES[channels], (2 * width, 2 * height)))
    except Exception as error:  # timm and torchvision assert, convert and look up: what they raise has no common kind
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"data.transform: {arguments} is not accepted by timm.data.create_transform: {reason}") from None
    for operation in _operations(transform):
        if operation.aug_fn is auto_augment.posterize:
            operation.aug_fn = _posterise
    return transform


def _operations(transform: Any) -> Iterator[Any]:
    """timm's operations, wherever its policies keep them."""
    for step in getattr(transform, "transforms", ()):
        yield from getattr(step, "ops", ())
        for part in getattr(step, "policy", ()):
            yield from part


def _posterise(image: Image.Image, bits: int, **settings: Any) -> Image.Image:
    """timm's, with one bit left at least, as on the device: at its highest level it asks for none, which Pillow 13 refuses."""
    from timm.data.auto_augment import posterize

    return posterize(image, max(1, bits), **settings)


@contextmanager
def seeded(*key: int) -> Iterator[None]:
    """The generators of Python, NumPy and torch, which these transforms draw from, by a key; their state returns."""
    python, numpy = random.getstate(), np.random.get_state()
    words = np.random.SeedSequence(key).generate_state(3).tolist()
    with torch.random.fork_rng(devices=[]):
        random.seed(words[0])
        np.random.seed(words[1])
        torch.manual_seed(words[2])
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
