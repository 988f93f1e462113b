"""Data: sources of images and what is done to them before a model sees them."""

from robustvit.data.augment import augment
from robustvit.data.images import Images, hold_out
from robustvit.data.sources import SOURCES
from robustvit.data.spec import DataSpec

__all__ = ["SOURCES", "DataSpec", "Images", "augment", "hold_out"]
