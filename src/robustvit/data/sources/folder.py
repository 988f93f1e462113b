"""Any images in folders, one folder a class."""

from pathlib import Path

from robustvit.data import folders
from robustvit.data.files import Files
from robustvit.data.images import Images
from robustvit.data.sources.assemble import from_originals, root_of
from robustvit.data.spec import DataSpec, Split


def folder(spec: DataSpec, split: Split) -> Images:
    """Image files as PATH/train/CLASS/IMAGE and PATH/test or val/CLASS/IMAGE; or as PATH/CLASS/IMAGE, to evaluate on."""
    root = root_of(spec)
    here = folders.split_folder(root, split, ("train",) if split == "train" else ("test", "val"))
    # Training says which classes there are: one without test images must not shift the labels of the others.
    train = root / "train"
    classes = (folders.class_names(train) if here != root and train.is_dir() else ()) or folders.class_names(here)
    if classes:
        folders.check_known(here, classes)
    return from_folder(root.resolve().name, spec, split, here, classes)


def from_folder(name: str, spec: DataSpec, split: Split, here: Path, classes: tuple[str, ...]) -> Images:
    """The images below HERE/CLASS or, to evaluate on, those that `subset` lists."""
    if split == "test" and spec.subset:
        name = f"{name}-{Path(spec.subset).stem}"
        paths, y = folders.listed_images(here, classes, spec.subset)
    else:
        paths, y = folders.find_images(here, classes)
    return from_originals(name, spec, split, Files(paths), y, classes)
