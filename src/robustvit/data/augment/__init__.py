"""Augmentations by name: a whole batch at a time, on its device. A new one is a class and two rows, here and in its test."""

from robustvit.data.augment.base import Augmentation, augmented
from robustvit.data.augment.colour import ColourJitter
from robustvit.data.augment.erasing import Erasing
from robustvit.data.augment.geometry import Flip, PadCrop, ResizedCrop, Rotation
from robustvit.data.augment.luck import Luck
from robustvit.data.augment.mixing import CutMix, Mixup, MixupOrCutMix
from robustvit.data.augment.rand_augment import RandAugment

AUGMENTATIONS: dict[str, type[Augmentation]] = {
    "pad_crop": PadCrop,
    "flip": Flip,
    "resized_crop": ResizedCrop,
    "rotation": Rotation,
    "colour_jitter": ColourJitter,
    "rand_augment": RandAugment,
    "erasing": Erasing,
    "mixup": Mixup,
    "cutmix": CutMix,
    "mixup_or_cutmix": MixupOrCutMix,
}

__all__ = [
    "AUGMENTATIONS",
    "Augmentation",
    "ColourJitter",
    "CutMix",
    "Erasing",
    "Flip",
    "Luck",
    "Mixup",
    "MixupOrCutMix",
    "PadCrop",
    "RandAugment",
    "ResizedCrop",
    "Rotation",
    "augmented",
]
