"""Where images come from. Sets that fit live on the device as they are stored and become floats batch by batch."""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from robustvit.errors import UserError, unknown

Split = Literal["train", "test"]


@dataclass(frozen=True, slots=True)
class Images:
    """N labelled images, uint8 or float in [0, 1], [N, C, H, W]. `classes` is None where the set does not say."""

    name: str
    x: Tensor
    y: Tensor
    classes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.x) == 0:
            raise UserError(f"data {self.name!r}: the set is empty; accepted: one image or more")
        if self.x.dim() != 4 or self.x.shape[1] not in (1, 3):
            raise UserError(
                f"data {self.name!r}: images of shape {tuple(self.x.shape)}; "
                "accepted: [N, height, width, channels] or [N, height, width], with 1 or 3 channels"
            )
        if self.y.shape != self.x.shape[:1]:
            raise UserError(f"data {self.name!r}: {len(self.x)} images but labels of shape {tuple(self.y.shape)}")
        low, high = int(self.y.min()), int(self.y.max())
        if low < 0 or (self.classes and high >= len(self.classes)):
            accepted = f"0 to {len(self.classes) - 1}" if self.classes else "0 or more"
            raise UserError(f"data {self.name!r}: labels from {low} to {high}; accepted: {accepted}")
        if self.x.is_floating_point():
            if not bool(((self.x >= 0) & (self.x <= 1)).all()):
                raise UserError(
                    f"data {self.name!r}: float images from {float(self.x.min()):.3g} to {float(self.x.max()):.3g}; "
                    "accepted: floats in [0, 1] or uint8"
                )
        elif self.x.dtype != torch.uint8:
            raise UserError(f"data {self.name!r}: images of type {self.x.dtype}; accepted: uint8, or floats in [0, 1]")

    def __len__(self) -> int:
        return len(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    @property
    def num_classes(self) -> int:
        return len(self.classes) if self.classes else int(self.y.max()) + 1

    def to(self, device: torch.device | str) -> "Images":
        return replace(self, x=self.x.to(device), y=self.y.to(device))

    def subset(self, index: Tensor | slice) -> "Images":
        return replace(self, x=self.x[index], y=self.y[index])

    def batch(self, index: Tensor | slice) -> tuple[Tensor, Tensor]:
        x = self.x[index]
        return (x.float() if x.is_floating_point() else x.float() / 255), self.y[index]

    def first(self, count: int | None, sample_seed: int | None = None) -> tuple["Images", Tensor]:
        """The first `count` images, or a seeded sample of that size, with their places in the set."""
        if count is not None and not 1 <= count <= len(self):
            raise UserError(f"images: {count}; accepted: 1 to {len(self)}, the size of {self.name!r}")
        order = torch.arange(len(self))
        if sample_seed is not None:
            order = torch.randperm(len(self), generator=torch.Generator().manual_seed(sample_seed))
        index = order[:count].sort().values
        return self.subset(index.to(self.x.device)), index


@dataclass(frozen=True, slots=True)
class DataSpec:
    """A source by name and, where it reads files, their place.

    `pad` and `flip` are the augmentation of training. The path is where, not what: it does not enter a recipe's hash.
    """

    source: str
    path: str | None = field(default=None, metadata={"identity": False})
    download: bool = field(default=False, metadata={"identity": False})
    pad: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        if self.pad < 0:
            raise UserError(f"data.pad: {self.pad}; accepted: 0 or more pixels")

    @staticmethod
    def parse(text: str) -> "DataSpec":
        """`digits`, or `npz:PATH`."""
        source, _, path = text.partition(":")
        return DataSpec(source, path or None)

    def load(self, split: Split) -> Images:
        if self.source not in SOURCES:
            raise unknown("data", self.source, SOURCES)
        return SOURCES[self.source](self, split)


Source = Callable[[DataSpec, Split], Images]


def hold_out(images: Images, seed: int) -> tuple[Images, Images]:
    """(train, held-out): 1,024 images chosen by seed, or 10% of a set of fewer than 10,240."""
    if len(images) < 2:
        raise UserError(f"data {images.name!r}: {len(images)} training image; accepted: 2 or more")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    held = max(1, min(1024, len(images) // 10))
    return images.subset(order[held:].sort().values), images.subset(order[:held].sort().values)


def digits(spec: DataSpec, split: Split) -> Images:
    """The 1,797 handwritten digits, 8×8 grey, that scikit-learn carries; four fifths of each class are for training."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

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

    root = Path(spec.path or "data")
    try:
        folder = datasets.CIFAR10(root, train=split == "train", download=spec.download)
    except (RuntimeError, OSError) as error:
        raise UserError(
            f"data 'cifar10': not found in {str(root)!r} ({error}). Pass the place of an .npz or of torchvision's folder "
            "(train: data.path=PATH, evaluate: --data cifar10:PATH), or fetch it once with data.download=true"
        ) from None
    return _images("cifar10", folder.data, np.array(folder.targets), CIFAR10)


def npz(spec: DataSpec, split: Split) -> Images:
    """An `.npz` with `x_train, y_train, x_test, y_test`, and `classes` (names) if it wants its class count checked."""
    if not spec.path:
        raise UserError("data.path: missing; accepted: the path of an .npz file, as in npz:PATH")
    path = Path(spec.path)
    if not path.is_file():
        raise UserError(f"data.path: no file {str(path)!r}")
    try:
        with zipfile.ZipFile(path):  # np.load takes other kinds of file too
            archive = np.load(path, allow_pickle=False)
        arrays: dict[str, Any] = {k: archive[k] for k in archive.files if k.endswith(split) or k == "classes"}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"data.path: {str(path)!r} cannot be read as .npz: {error}") from None
    if not {f"x_{split}", f"y_{split}"} <= set(arrays):
        raise UserError(f"data.path: {str(path)!r} lacks x_{split} and y_{split}; it has: {', '.join(arrays) or 'neither'}")
    classes = tuple(str(name) for name in arrays["classes"]) if "classes" in arrays else None
    return _images(path.stem, arrays[f"x_{split}"], arrays[f"y_{split}"], classes)


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


SOURCES: dict[str, Source] = {"digits": digits, "cifar10": cifar10, "npz": npz}
