"""Where images come from: a name in SOURCES and what it needs, to labelled images. One file an idea."""

from collections.abc import Callable

from robustvit.data.images import Images
from robustvit.data.sources.arrays import digits, npz
from robustvit.data.sources.caltech101 import caltech101
from robustvit.data.sources.cifar import cifar10, cifar100
from robustvit.data.sources.folder import folder
from robustvit.data.sources.generated import generated
from robustvit.data.sources.imagenet import imagenet
from robustvit.data.sources.timm import timm
from robustvit.data.sources.torchvision import flowers102, torchvision
from robustvit.data.spec import DataSpec, Split

Source = Callable[[DataSpec, Split], Images]

SOURCES: dict[str, Source] = {
    "digits": digits,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "npz": npz,
    "generated": generated,
    "folder": folder,
    "imagenet": imagenet,
    "flowers102": flowers102,
    "caltech101": caltech101,
    "torchvision": torchvision,
    "timm": timm,
}
