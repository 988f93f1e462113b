"""Where images come from: a name in SOURCES and what it needs, to labelled images."""

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robustvit.data import folders
from robustvit.data.files import Files
from robustvit.data.images import Images
from robustvit.data.spec import IN_MEMORY, DataSpec, Split
from robustvit.errors import UserError

Source = Callable[[DataSpec, Split], Images]


def digits(spec: DataSpec, split: Split) -> Images:
    """The 1,797 handwritten digits, 8×8 grey, that scikit-learn carries; four fifths of each class are for training."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    if spec.path:
        raise UserError(f"data.path: {spec.path!r}; accepted with the data digits: none, they are part of scikit-learn")
    bunch = load_digits()
    # Stored as 0…16; rounding to uint8 changes a pixel by 1/510 at most.
    x = np.round(bunch.images * (255 / 16)).astype(np.uint8)
    parts = train_test_split(x, bunch.target, test_size=360, random_state=0, stratify=bunch.target)
    x, y = (parts[0], parts[2]) if split == "train" else (parts[1], parts[3])
    return _images("digits", x, y, tuple(str(d) for d in range(10)))


CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def cifar10(spec: DataSpec, split: Split) -> Images:
    """CIFAR-10 from an `.npz` (see `npz`) or from torchvision's folder, which `download` fetches."""
    if spec.path and spec.path.endswith(".npz"):
        return replace(npz(spec, split), name="cifar10", classes=CIFAR10)
    from torchvision import datasets

    root = Path(spec.path or "data").expanduser()
    try:
        folder = datasets.CIFAR10(root, train=split == "train", download=spec.download)
    except (RuntimeError, OSError) as error:
        if spec.download:
            raise UserError(f"data 'cifar10': could not be fetched into {str(root)!r}: {error}") from None
        raise UserError(
            f"data 'cifar10': not found in {str(root)!r}, or not whole; accepted: an .npz or torchvision's folder "
            "(train: data.path=PATH, evaluate: --data cifar10:PATH); `robustvit train` fetches it with data.download=true"
        ) from None
    return _images("cifar10", folder.data, np.array(folder.targets), CIFAR10)


def npz(spec: DataSpec, split: Split) -> Images:
    """An `.npz` with `x_train, y_train, x_test, y_test`, and `classes` (names) if it wants its class count checked."""
    if not spec.path:
        raise UserError("data.path: missing; accepted: the path of an .npz file, as in npz:PATH")
    path = Path(spec.path).expanduser()
    if not path.is_file():
        raise UserError(f"data.path: no file {str(path)!r}")
    try:
        with zipfile.ZipFile(path):  # np.load takes other kinds of file too
            archive = np.load(path, allow_pickle=False)
        wanted = (f"x_{split}", f"y_{split}", "classes")
        arrays: dict[str, Any] = {name: archive[name] for name in archive.files if name in wanted}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"data.path: {str(path)!r} cannot be read as .npz: {error}") from None
    if not {f"x_{split}", f"y_{split}"} <= set(arrays):
        held = ", ".join(archive.files) or "nothing"
        raise UserError(f"data.path: {str(path)!r} lacks x_{split} and y_{split}; it has: {held}")
    classes = tuple(str(name) for name in arrays["classes"]) if "classes" in arrays else None
    return _images(path.stem, arrays[f"x_{split}"], arrays[f"y_{split}"], classes)


def folder(spec: DataSpec, split: Split) -> Images:
    """Image files as PATH/train/CLASS/IMAGE and PATH/test or val/CLASS/IMAGE; or as PATH/CLASS/IMAGE, to evaluate on."""
    root = _root(spec)
    here = folders.split_folder(root, split, ("train",) if split == "train" else ("test", "val"))
    # Training says which classes there are: one without test images must not shift the labels of the others.
    train = root / "train"
    classes = (folders.class_names(train) if here != root and train.is_dir() else ()) or folders.class_names(here)
    return _decoded(root.resolve().name, spec, split, here, classes)


def imagenet(spec: DataSpec, split: Split) -> Images:
    """ImageNet-1k: PATH/val/WNID/IMAGE or PATH/WNID/IMAGE. Labels are those of the 1,000 classes, whichever are there."""
    here = folders.split_folder(_root(spec), split, ("train",) if split == "train" else ("val",))
    return _decoded("imagenet", spec, split, here, folders.imagenet_classes())


def _root(spec: DataSpec) -> Path:
    if not spec.path:
        raise UserError(f"data.path: missing; accepted: a folder of images, as in {spec.source}:PATH")
    return Path(spec.path).expanduser()


def _decoded(name: str, spec: DataSpec, split: Split, here: Path, classes: tuple[str, ...]) -> Images:
    if spec.size is None:
        raise UserError(
            "data.size: missing, and the model does not say; accepted: the side of a square in pixels "
            "(train: data.size=224, evaluate: --size 224)"
        )
    if split == "test" and spec.subset:
        name = f"{name}-{Path(spec.subset).stem}"
        paths, y = folders.listed_images(here, classes, spec.subset)
    else:
        paths, y = folders.find_images(here, classes)
    images = Images(name, Files(paths, spec.size, spec.resize or spec.size), y, classes)
    return images.kept(IN_MEMORY) if split == "train" else images


def _images(name: str, x: np.ndarray, y: np.ndarray, classes: tuple[str, ...] | None) -> Images:
    """From NumPy's [N, H, W(, C)] to torch's [N, C, H, W]."""
    if x.dtype.kind not in "uif":
        raise UserError(f"data {name!r}: images of type {x.dtype}; accepted: uint8, or floats in [0, 1]")
    if y.dtype.kind not in "ui":
        raise UserError(f"data {name!r}: labels of type {y.dtype}; accepted: whole numbers")
    x = x[..., None] if x.ndim == 3 else x
    if x.ndim == 4:
        x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    return Images(name, torch.from_numpy(x), torch.from_numpy(y.astype(np.int64)), classes)


SOURCES: dict[str, Source] = {"digits": digits, "cifar10": cifar10, "npz": npz, "folder": folder, "imagenet": imagenet}
