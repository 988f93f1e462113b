"""Parts of ImageNet with fewer classes: which, and what their labels are."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from robustvit.data import DataSpec
from robustvit.data.folders import imagenet_classes
from robustvit.data.sources.imagenet import chosen_classes
from robustvit.errors import UserError

TENCH, SPRINGER, TISSUE = "n01440764", "n02102040", "n15075141"


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    """Three classes with two training and one validation image each; a class's own number is its images' red."""
    for number, wnid in enumerate((TENCH, SPRINGER, TISSUE)):
        for name in ("train/{}/a.JPEG", "train/{}/b.JPEG", "val/{}/c.JPEG"):
            place = tmp_path / "imagenet" / name.format(wnid)
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (100 * number, 0, 0)).save(place)
    return tmp_path / "imagenet"


def listed(tmp_path: Path, wnids: Sequence[str]) -> str:
    (tmp_path / "classes.txt").write_text("\n".join(wnids) + "\n")
    return str(tmp_path / "classes.txt")


@pytest.mark.parametrize("order", [(TISSUE, SPRINGER), (SPRINGER, TISSUE)])
@pytest.mark.parametrize("split", ["train", "test"])
def test_listed_classes_are_renumbered_as_a_folder_of_them_would_be(
    split: str, order: tuple[str, ...], imagenet: Path, tmp_path: Path
) -> None:
    spec = DataSpec("imagenet", str(imagenet), size=8, classes=listed(tmp_path, order))
    images = spec.load(split)  # type: ignore[arg-type]
    assert (images.name, images.classes) == ("imagenet-2", (SPRINGER, TISSUE))
    assert sorted(images.y.tolist()) == ([0, 0, 1, 1] if split == "train" else [0, 1])
    x, y = images.batch(slice(None))
    assert [round(float(red) * 255, -1) for red in x[:, 0, 0, 0]] == [100 * (int(label) + 1) for label in y]


def test_a_seed_chooses_classes_without_looking_at_the_folder() -> None:
    everything = imagenet_classes()
    chosen = chosen_classes("100 by seed 0", everything)
    assert len(set(chosen)) == 100
    assert list(chosen) == sorted(chosen)
    assert chosen == chosen_classes("100 by seed 0", everything)
    assert chosen != chosen_classes("100 by seed 1", everything)
    assert chosen_classes("1000 by seed 3", everything) == everything
    # Of so many draws of 100, the mean place is 499.5 with a standard deviation of 6.
    places = [everything.index(name) for seed in range(20) for name in chosen_classes(f"100 by seed {seed}", everything)]
    assert abs(sum(places) / len(places) - 499.5) < 30


def test_a_seeds_classes_that_are_not_in_the_folder_are_an_error(imagenet: Path) -> None:
    spec = DataSpec("imagenet", str(imagenet), size=8, classes="100 by seed 0")
    with pytest.raises(UserError, match=r"data\.path: .*lacks (97|98|99|100) of the 100 classes, such as n\d{8}"):
        spec.load("test")


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ("none.txt", r"data\.classes: 'none\.txt' cannot be read .*imagenet100\.txt, or a number of classes by seed"),
        ("100 classes", r"cannot be read .*as in '100 by seed 0'"),
        ("1 by seed 0", "'1 by seed 0'; accepted: 2 to 1000 by a seed"),
        ("1001 by seed 0", "accepted: 2 to 1000 by a seed"),
    ],
)
def test_a_wish_that_means_nothing_is_an_error(wish: str, message: str, imagenet: Path) -> None:
    with pytest.raises(UserError, match=message):
        DataSpec("imagenet", str(imagenet), size=8, classes=wish).load("test")


@pytest.mark.parametrize(
    ("wnids", "message"),
    [
        ((TENCH, "cat"), "holds 'cat'; accepted: WNIDs of ImageNet-1k, as n01440764"),
        ((TENCH, TENCH), "holds 2 WNIDs, 1 different"),
        ((TENCH,), "holds 1 WNIDs, 1 different; accepted: 2 or more"),
        ((), "holds 0 WNIDs"),
    ],
)
def test_a_bad_list_of_classes_is_an_error(wnids: Sequence[str], message: str, imagenet: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        DataSpec("imagenet", str(imagenet), size=8, classes=listed(tmp_path, wnids)).load("test")


def test_classes_are_for_imagenet_alone() -> None:
    with pytest.raises(UserError, match=r"data\.classes: 10 by seed 0; accepted with the data imagenet alone, not 'folder'"):
        DataSpec("folder", classes="10 by seed 0")
