"""Folders of images: which files there are and what their labels are. No file is opened but lists."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor
from torchvision.datasets.folder import IMG_EXTENSIONS, make_dataset

from robustvit.errors import UserError

Listing = tuple[tuple[str, ...], Tensor]  # paths and labels

LIST = "imagenet_test_image_ids.txt"
LIST_HOME = f"https://github.com/RobustBench/robustbench/blob/master/robustbench/helper_files/{LIST}"


def split_folder(root: Path, split: str, names: Sequence[str]) -> Path:
    """ROOT/NAME for the first of the names that is there; for testing also ROOT itself, if it holds classes, not splits."""
    if not root.is_dir():
        raise UserError(f"data.path: no folder {str(root)!r}")
    splits = [name for name in ("train", "val", "test") if (root / name).is_dir() and class_names(root / name)]
    for name in names:
        if name in splits:
            return root / name
    if splits or split == "train":
        wanted = " or ".join(f"{name}/CLASS/IMAGE" for name in names)
        raise UserError(f"data.path: {str(root)!r} holds no {split} images; accepted: a folder with {wanted}")
    return root


def class_names(folder: Path) -> tuple[str, ...]:
    names = (entry.name for entry in os.scandir(folder) if entry.is_dir())
    return tuple(sorted(name for name in names if not name.startswith(".")))


def check_known(folder: Path, classes: Sequence[str]) -> None:
    """A folder that is no class is most likely in the wrong place."""
    strange = sorted(set(class_names(folder)) - set(classes))
    if strange:
        raise UserError(f"data.path: {str(folder)!r} holds {strange[0]!r}, which is none of the {len(classes)} classes")


def find_images(folder: Path, classes: Sequence[str]) -> Listing:
    """Every image below FOLDER/CLASS, in the order of torchvision's ImageFolder."""
    if not classes:
        raise UserError(f"data.path: {str(folder)!r} holds no folders; accepted: a folder with CLASS/IMAGE")
    numbers = {name: number for number, name in enumerate(classes)}
    found = make_dataset(folder, numbers, IMG_EXTENSIONS, allow_empty=True)
    return tuple(path for path, _ in found), torch.tensor([label for _, label in found], dtype=torch.int64)


def listed_images(folder: Path, classes: Sequence[str], subset: str) -> Listing:
    """The images that a list names, one CLASS/IMAGE a line, in its order."""
    source = robustbench_list() if subset == "robustbench" else Path(subset)
    try:
        lines = [line.strip() for line in source.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        accepted = "robustbench, or a text file with one CLASS/IMAGE a line"
        raise UserError(f"data.subset: {subset!r} cannot be read ({error}); accepted: {accepted}") from None
    numbers = {name: number for number, name in enumerate(classes)}
    for line in lines:
        if line.count("/") != 1 or line.split("/")[0] not in numbers:
            raise UserError(f"data.subset: {str(source)!r} holds {line!r}; accepted: CLASS/IMAGE, as in {classes[0]}/1.JPEG")
    if len(set(lines)) < len(lines):
        raise UserError(f"data.subset: {str(source)!r} names {len(lines) - len(set(lines))} images twice")
    paths = tuple(str(folder / line) for line in lines)
    missing = [path for path in paths if not Path(path).is_file()]
    if missing:
        raise UserError(
            f"data.path: {len(missing)} of the {len(paths)} images that {str(source)!r} names are not there, the first is "
            f"{missing[0]!r}. Pass the folder that holds the folders of the classes, or the folder above it"
        )
    return paths, torch.tensor([numbers[line.split("/")[0]] for line in lines], dtype=torch.int64)


def imagenet_classes() -> tuple[str, ...]:
    """The 1,000 WordNet ids; an id's place is its label."""
    from timm.data import ImageNetInfo

    return tuple(ImageNetInfo().label_names())


def robustbench_list() -> Path:
    """From where the package lies: importing it would import its model zoo, which today's timm breaks."""
    package = find_spec("robustbench")
    places = [Path(place) for place in (package.submodule_search_locations or [])] if package else []
    for place in places:
        for file in place.glob(f"*/{LIST}"):  # in `helper_files` or, in old versions, in `data`
            return file
    found = f"is installed in {str(places[0])!r} but lacks {LIST}" if places else "is not installed"
    raise UserError(f"data.subset: robustbench {found}. Save {LIST_HOME} and pass the path of that file instead")
