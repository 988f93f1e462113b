"""Every data set of torchvision that gives an image and a class, by the name of its class there."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset
from torchvision import datasets

from robustvit.data.files import Items
from robustvit.data.images import IN_MEMORY, Images
from robustvit.data.sources.assemble import from_arrays, from_originals, split_by_class
from robustvit.data.spec import DataSpec, Split
from robustvit.errors import UserError, unknown
from robustvit.progress import progress

PUBLIC = "https://pytorch.org/vision/stable/datasets.html"
FLOWERS = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"
# What torchvision's sets call their splits; `data.splits` says which where there are more.
NAMES = {"train": ("train", "trainval", "train-standard"), "test": ("test", "val", "valid")}
LABELS = ("targets", "labels", "_labels", "y")  # where its sets keep the labels
GREY = ("1", "L")


def torchvision(spec: DataSpec, split: Split) -> Images:
    """torchvision:NAME, such as torchvision:SVHN: any of its sets for classification, from the folder that `download` fills.

    `args` are more arguments of its constructor. A set without splits is split by class and seed. Where no size is asked for,
    images must have one already, and grey ones stay grey.
    """
    items = open_split(spec, split)
    y, classes = labels_of(items, spec.source), getattr(items, "classes", None)
    if split_argument(type(items)) is None:
        chosen = split_by_class(y, split)
        items, y = Subset(items, chosen.tolist()), y[chosen]
    # Some classes have several names.
    names = tuple(name if isinstance(name, str) else ", ".join(name) for name in classes) if classes else None
    if spec.size is spec.resize is spec.transform is None:
        return from_arrays(spec.source, _native(spec, items), y.numpy(), names)
    return from_originals(spec.source, spec, split, Items(spec.source, items), y, names)


def flowers102(spec: DataSpec, split: Split) -> Images:
    """Oxford Flowers-102 from torchvision's folder: its official 1,020 images for training and 6,149 for testing.

    With `splits: {train: train+val}`, also the 1,020 for validation are trained on, as transfer learning often does.
    """
    wish = spec.splits.get(split, split).split("+")
    parts = [_construct(datasets.Flowers102, spec, {"split": name}, FLOWERS) for name in wish]
    y = torch.cat([labels_of(part, spec.source) for part in parts])
    names = tuple(datasets.Flowers102.classes)
    return from_originals(spec.source, spec, split, Items(spec.source, ConcatDataset(parts)), y, names)


def open_split(spec: DataSpec, split: Split) -> Any:
    """torchvision's own object for a split."""
    name = spec.source.partition(":")[2]
    if name not in datasets.__all__:
        raise unknown("data set of torchvision", name, datasets.__all__)
    kind = getattr(datasets, name)
    argument = split_argument(kind)
    if argument is None:
        return _construct(kind, spec, {})
    if argument == "train":
        return _construct(kind, spec, {"train": split == "train"})
    accepted = (spec.splits[split],) if split in spec.splits else NAMES[split]
    for wish in accepted:
        try:
            return _construct(kind, spec, {"split": wish})
        except _NoSuchSplitError as error:
            refusal = error
    raise UserError(f"data.splits.{split}: {' and '.join(accepted)} are no splits of {spec.source}: {refusal}")


class _NoSuchSplitError(UserError):
    """The set is there, but it has no split of this name."""


def split_argument(kind: type) -> str | None:
    """`train` or `split`, as the constructor calls it; None for a set without splits."""
    accepted = _parameters(kind)
    # EMNIST has both, and calls something else a split.
    return next((name for name in ("train", "split") if name in accepted), None)


def _parameters(kind: type) -> set[str]:
    """Of all constructors: some pass what they do not name on to the class they derive from."""
    found: set[str] = set()
    for base in (base for base in kind.__mro__ if "__init__" in vars(base)):
        own = inspect.signature(base.__init__).parameters  # type: ignore[misc]
        found |= set(own)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in own.values()):
            break
    return found


def _construct(kind: Any, spec: DataSpec, more: dict[str, Any], public: str = PUBLIC) -> Any:
    accepted = _parameters(kind)
    root = Path(spec.path or "data").expanduser()
    fixed = {"root": root, "download": True} if spec.download else {"root": root}
    arguments = {**{k: v for k, v in fixed.items() if k in accepted}, **more, **spec.args}
    try:
        return kind(**arguments)
    except ImportError as error:
        raise UserError(f"data {spec.source!r}: {error}; install what is missing with pip") from None
    except TypeError as error:
        raise UserError(f"data.args: {spec.args} is not accepted by torchvision's {kind.__name__}: {error}") from None
    except ValueError as error:
        if "split" in more and "split" in str(error):
            raise _NoSuchSplitError(str(error)) from None
        raise UserError(f"data {spec.source!r}: {error}") from None
    except (RuntimeError, OSError) as error:
        if spec.download:
            raise UserError(f"data {spec.source!r}: could not be fetched into {str(root)!r}: {error}") from None
        raise UserError(
            f"data {spec.source!r}: not found in {str(root)!r}, or not whole ({error}); accepted: torchvision's folder "
            f"(train: data.path=PATH, evaluate: --data {spec.source}:PATH); where it is from says {public}, and "
            "`robustvit train` fetches most sets with data.download=true"
        ) from None


def labels_of(items: Any, name: str) -> Tensor:
    """Labels without decoding images where the set keeps them apart, which is checked on some; else by going through it."""
    count = len(items)
    for attribute in LABELS:
        kept = getattr(items, attribute, None)
        if kept is None or len(kept) != count:
            continue
        y = np.asarray(kept)
        if y.dtype.kind in "ui" and y.ndim == 1 and all(int(y[i]) == items[i][1] for i in _some(count)):
            return torch.from_numpy(y.astype(np.int64))
    with progress(count, f"labels of {name}") as advance:
        return torch.tensor([_label(items, place, name, advance) for place in range(count)], dtype=torch.int64)


def _label(items: Any, place: int, name: str, advance: Any) -> int:
    label = items[place][1]
    advance(1, "")
    if isinstance(label, Tensor | np.generic) and label.ndim == 0:
        label = label.item()
    if not isinstance(label, int):
        raise UserError(f"data {name!r}: item {place} has the label {label!r}; accepted: sets with one class number an image")
    return label


def _some(count: int) -> list[int]:
    return sorted({count * part // 5 for part in range(5)} | {count - 1}) if count else []


def _native(spec: DataSpec, items: Sequence[Any]) -> np.ndarray:
    """All images at their own size, in memory."""
    originals = Items(spec.source, items)
    first = originals.open(0)
    grey = spec.channels == 1 if spec.channels else first.mode in GREY
    if len(items) * first.width * first.height * (1 if grey else 3) > IN_MEMORY:
        raise UserError("data.size: missing, and the set is too large for memory; accepted: the side of a square in pixels")
    x = np.empty((len(items), first.height, first.width, 1 if grey else 3), dtype=np.uint8)
    with progress(len(items), f"read {spec.source}") as advance:
        for place, pixels in enumerate(x):
            image = originals.open(place)
            if image.size != first.size:
                sizes = f"{first.size[0]}×{first.size[1]} and {image.size[0]}×{image.size[1]}"
                raise UserError(
                    f"data.size: missing, and {spec.source} has images of {sizes} pixels; accepted: the side of a square "
                    "(train: data.size=224, evaluate: --size 224)"
                )
            pixels[:] = np.asarray(image.convert("L" if grey else "RGB")).reshape(pixels.shape)
            advance(1, "")
    return x
