"""From what a source found to Images: arrays become tensors, image files stay where they are; and what sources share."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from robustvit.data.files import Encoded, Originals
from robustvit.data.images import Images
from robustvit.data.spec import DataSpec, Split
from robustvit.data.stored import Stored
from robustvit.data.transform import make_transform
from robustvit.errors import UserError

TRAINING_SHARE = 0.8  # of each class, in a set that says nothing of splits


def from_arrays(name: str, x: np.ndarray, y: np.ndarray, classes: tuple[str, ...] | None) -> Images:
    """From NumPy's [N, H, W(, C)] to torch's [N, C, H, W]."""
    if x.dtype.kind not in "uif" or x.dtype.itemsize > 8:
        raise UserError(f"data {name!r}: images of type {x.dtype}; accepted: uint8, or floats in [0, 1]")
    if y.dtype.kind not in "ui":
        raise UserError(f"data {name!r}: labels of type {y.dtype}; accepted: whole numbers")
    x = x[..., None] if x.ndim == 3 else x
    if x.ndim == 4:
        x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    x = x.astype(x.dtype.newbyteorder("="), copy=False)  # torch knows this machine's order of bytes alone
    return Images(name, torch.from_numpy(x), torch.from_numpy(y.astype(np.int64)), classes)


def from_originals(
    name: str, spec: DataSpec, split: Split, originals: Originals, y: Tensor, classes: tuple[str, ...] | None
) -> Images:
    """Training images are decoded once, if they fit in memory and no transform wants to see them whole."""
    if spec.size is None:
        raise UserError(
            "data.size: missing, and the model does not say; accepted: the side of a square in pixels "
            "(train: data.size=224, evaluate: --size 224)"
        )
    store = Encoded(originals, spec.size, spec.resize or spec.size, spec.channels or 3)
    if spec.transform is not None and split == "train":
        make_transform(spec.transform, store.shape)  # one that cannot work fails before training starts
    images = Images(name, Stored.whole(store), y, classes)
    return images.kept() if split == "train" and spec.transform is None else images


def root_of(spec: DataSpec, public: str = "", of: str = "images") -> Path:
    """The folder that the spec names; `public` says where the set comes from, `of` what the folder holds."""
    come = f" {public}" if public else ""
    if not spec.path:
        raise UserError(f"data.path: missing; accepted: a folder of {of}, as in {spec.source}:PATH.{come}")
    root = Path(spec.path).expanduser()
    if not root.is_dir():
        raise UserError(f"data.path: no folder {str(root)!r}.{come}")
    return root


def split_by_class(y: Tensor, split: Split, training: int | None = None) -> Tensor:
    """Places of a split of a set that has none: so many images of each class, chosen by seed 0, are for training.

    Without a number they are four fifths of the class.
    """
    generator = torch.Generator().manual_seed(0)
    chosen = []
    for label in y.unique().tolist():
        places = (y == label).nonzero().squeeze(1)
        order = places[torch.randperm(len(places), generator=generator)]
        count = round(TRAINING_SHARE * len(places)) if training is None else training
        chosen.append(order[:count] if split == "train" else order[count:])
    return torch.cat(chosen).sort().values
