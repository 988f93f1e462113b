"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from robustvit.data.images import Images
from robustvit.data.sources.arrays import npz
from robustvit.data.sources.assemble import from_arrays
from robustvit.data.spec import DataSpec, Split
from robustvit.errors import UserError

PUBLIC = "https://www.cs.toronto.edu/~kriz/cifar.html"
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree
wolf woman worm
"""
CIFAR100 = tuple(FINE.split())


def cifar10(spec: DataSpec, split: Split) -> Images:
    """CIFAR-10 from an `.npz` (see `npz`) or from torchvision's folder, which `download` fetches."""
    from torchvision.datasets import CIFAR10 as FOLDER

    return _cifar("cifar10", FOLDER, CIFAR10, spec, split)


def cifar100(spec: DataSpec, split: Split) -> Images:
    """CIFAR-100, its 100 fine classes, from an `.npz` or from torchvision's folder, which `download` fetches."""
    from torchvision.datasets import CIFAR100 as FOLDER

    return _cifar("cifar100", FOLDER, CIFAR100, spec, split)


def _named(images: Images, name: str, classes: tuple[str, ...]) -> Images:
    """With the set's own name and classes, if the file can be of that set."""
    if images.classes and tuple(images.classes) != classes:
        raise UserError(f"data.path: its `classes` are not those of {name}; accepted: data.source=npz for other sets")
    if len(classes) > 10 > int(images.y.max()) and len(images) > 100:
        raise UserError(
            f"data.path: {len(images)} labels and none above {int(images.y.max())}, as of CIFAR-10; accepted: {name}"
        )
    return replace(images, name=name, classes=classes)


def _cifar(name: str, kind: Any, classes: tuple[str, ...], spec: DataSpec, split: Split) -> Images:
    root = Path(spec.path or "data").expanduser()
    if root.is_file():
        return _named(npz(spec, split), name, classes)
    try:
        if root.suffix == ".npz":
            raise FileNotFoundError(root)
        folder = kind(root, train=split == "train", download=spec.download)
    except (RuntimeError, OSError) as error:
        if spec.download:
            raise UserError(f"data {name!r}: could not be fetched into {str(root)!r}: {error}") from None
        raise UserError(
            f"data {name!r}: not found in {str(root)!r}, or not whole; accepted: an .npz or torchvision's folder "
            f"(train: data.path=PATH, evaluate: --data {name}:PATH); `robustvit train` fetches it from {PUBLIC} into a folder "
            "with data.path=FOLDER data.download=true"
        ) from None
    return from_arrays(name, folder.data, np.array(folder.targets), classes)
