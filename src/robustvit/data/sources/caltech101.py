"""Caltech-101 (Fei-Fei et al., 2004)."""

from pathlib import Path

from robustvit.data import folders
from robustvit.data.files import Files
from robustvit.data.images import Images
from robustvit.data.sources.assemble import from_originals, split_by_class
from robustvit.data.spec import DataSpec, Split
from robustvit.errors import UserError

PUBLIC = "https://data.caltech.edu/records/mzrjq-6wc02"
FOLDER = "101_ObjectCategories"
CLUTTER = "BACKGROUND_Google"  # what a search engine gave for no object at all
CLASSES = 101
TRAINING = 30  # images of each class


def caltech101(spec: DataSpec, split: Split) -> Images:
    """Caltech-101 from torchvision's folder: 30 images of each class, by seed, are for training and all others for testing.

    There is no official split; 30 a class is its authors' and most tables'. The folder of clutter is left out, as torchvision
    does: it is no class that an adversary could turn an object into.
    """
    here = _find(Path(spec.path or "data").expanduser(), spec.download)
    classes = tuple(name for name in folders.class_names(here) if name != CLUTTER)
    if len(classes) != CLASSES:
        raise UserError(f"data 'caltech101': {len(classes)} classes in {str(here)!r}; accepted: all {CLASSES}. Unpack it again")
    paths, y = folders.find_images(here, classes)
    chosen = split_by_class(y, split, TRAINING)
    files = Files(tuple(paths[place] for place in chosen.tolist()))
    return from_originals("caltech101", spec, split, files, y[chosen], classes)


def _find(root: Path, download: bool) -> Path:
    for place in (root / "caltech101" / FOLDER, root / FOLDER, root):
        if place.name == FOLDER and place.is_dir():
            return place
    if download:
        return _fetch(root)
    raise UserError(
        f"data 'caltech101': no {FOLDER} in {str(root)!r}; get it from {PUBLIC}, unpack it and pass the folder above it "
        "(train: data.path=PATH, evaluate: --data caltech101:PATH), or let `robustvit train` fetch it with data.download=true"
    )


def _fetch(root: Path) -> Path:
    from torchvision.datasets import Caltech101

    try:
        return Path(Caltech101(root, download=True).root) / FOLDER
    except (RuntimeError, OSError, ImportError) as error:
        raise UserError(f"data 'caltech101': could not be fetched into {str(root)!r}: {error}. It is at {PUBLIC}") from None
