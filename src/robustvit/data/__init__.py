"""Data: sources of images and what is done to them before a model sees them."""

from robustvit.data.augment import AUGMENTATIONS, Augmentation
from robustvit.data.images import Images, hold_out
from robustvit.data.sources import SOURCES
from robustvit.data.spec import DataSpec

__all__ = ["AUGMENTATIONS", "SOURCES", "Augmentation", "DataSpec", "Images", "hold_out"]
