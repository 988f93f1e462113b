"""Folders of images: which files are found, what their labels are, and lists of some of them."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from PIL import Image
from torchvision.datasets import ImageFolder

from robustvit.data import DataSpec, Images
from robustvit.data.folders import imagenet_classes
from robustvit.errors import UserError

TENCH, SPRINGER, TISSUE = "n01440764", "n02102040", "n15075141"


def touch(root: Path, *names: str) -> str:
    for name in names:
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (len(names), 0, 0)).save(place)
    return str(root)


def folder(root: str | Path, source: str = "folder", **more: object) -> DataSpec:
    return DataSpec(source, str(root), size=8, **more)  # type: ignore[arg-type]


def paths(images: Images) -> list[str]:
    return [images.x.store.originals.paths[place] for place in images.x.places]


def found(spec: DataSpec) -> list[str]:
    return [str(Path(path).relative_to(spec.path or "")) for path in paths(spec.load("test"))]


@pytest.mark.parametrize("held", ["val", "test"])
def test_files_labels_and_classes_are_those_of_image_folder(held: str, tmp_path: Path) -> None:
    names = ("b/2.JPEG", "b/10.jpeg", "B/x.png", "a/deep/er/1.jpg", "a/0.webp", "c/1.bmp", "c/notes.txt.png")
    touch(tmp_path, *(f"{split}/{name}" for split in ("train", held) for name in names))
    (tmp_path / held / "a" / "readme.txt").write_text("no image")
    images, reference = folder(tmp_path).load("test"), ImageFolder(tmp_path / held)
    assert paths(images) == [path for path, _ in reference.samples]
    assert images.y.tolist() == reference.targets
    assert list(images.classes or ()) == reference.classes == ["B", "a", "b", "c"]
    assert images.name == tmp_path.name
    assert len(folder(tmp_path).load("train")) == 7


def test_a_folder_of_classes_alone_can_be_evaluated_on(tmp_path: Path) -> None:
    root = touch(tmp_path, "cat/1.png", "dog/1.png", "train/1.png")  # here, train is a class: it holds no classes
    assert found(folder(root)) == ["cat/1.png", "dog/1.png", "train/1.png"]
    with pytest.raises(UserError, match=r"holds no train images; accepted: a folder with train/CLASS/IMAGE"):
        folder(root).load("train")


def test_test_is_taken_before_val(tmp_path: Path) -> None:
    assert found(folder(touch(tmp_path, "val/a/1.png", "test/a/2.png"))) == ["test/a/2.png"]
    # As in Tiny-ImageNet, whose test images lie in no classes.
    assert found(folder(touch(tmp_path / "flat", "val/a/1.png", "test/2.png"))) == ["val/a/1.png"]


def test_a_class_without_test_images_does_not_shift_the_labels(tmp_path: Path) -> None:
    touch(tmp_path, "train/a/1.png", "train/b/1.png", "train/c/1.png", "val/c/1.png", "val/a/1.png")
    (tmp_path / "train" / ".cache").mkdir()
    images = folder(tmp_path).load("test")
    assert (images.classes, images.y.tolist()) == (("a", "b", "c"), [0, 2])


def test_a_class_that_training_does_not_know_is_an_error(tmp_path: Path) -> None:
    touch(tmp_path, "train/a/1.png", "test/images/1.png")
    with pytest.raises(UserError, match="holds 'images', which is none of the 1 classes"):
        folder(tmp_path).load("test")


def test_imagenet_labels_do_not_depend_on_which_folders_exist(tmp_path: Path) -> None:
    touch(tmp_path, f"val/{TISSUE}/1.JPEG", f"val/{SPRINGER}/2.JPEG", f"val/{TENCH}/3.JPEG")
    above, inside = folder(tmp_path, "imagenet").load("test"), folder(tmp_path / "val", "imagenet").load("test")
    for images in (above, inside):
        assert (images.name, images.num_classes) == ("imagenet", 1000)
        assert images.y.tolist() == [0, 217, 999]
        assert [images.classes[label] for label in images.y] == [TENCH, SPRINGER, TISSUE]
    assert list(imagenet_classes()) == sorted(imagenet_classes())


def test_a_folder_that_is_not_imagenets_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds 'cat', which is none of the 1000 classes"):
        folder(touch(tmp_path, "cat/1.JPEG"), "imagenet").load("test")


def test_missing_folders_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.path: missing; accepted: a folder of images, as in folder:PATH"):
        DataSpec("folder", size=8).load("test")
    with pytest.raises(UserError, match=r"data\.path: no folder"):
        folder(tmp_path / "none").load("test")
    with pytest.raises(UserError, match=r"holds no folders; accepted: a folder with CLASS/IMAGE"):
        folder(tmp_path).load("test")
    with pytest.raises(UserError, match=r"holds no test images; accepted: a folder with test/CLASS/IMAGE or val/CLASS/IMAGE"):
        folder(touch(tmp_path / "half", "train/a/1.png")).load("test")
    (tmp_path / "bare" / "a").mkdir(parents=True)
    with pytest.raises(UserError, match="the set is empty"):
        folder(tmp_path / "bare").load("test")


LISTED = (f"{SPRINGER}/ILSVRC2012_val_00000293.JPEG", f"{TENCH}/b.JPEG", f"{SPRINGER}/a.JPEG")


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    """A validation folder with the listed images and two others."""
    touch(tmp_path / "imagenet" / "val", *LISTED, f"{TENCH}/a.JPEG", f"{TISSUE}/1.JPEG")
    return tmp_path / "imagenet"


def write_list(place: Path, lines: Sequence[str], end: str = "\n") -> str:
    place.write_bytes(end.join(lines).encode())
    return str(place)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
def test_a_list_chooses_images_in_its_own_order(imagenet: Path, tmp_path: Path, end: str) -> None:
    subset = write_list(tmp_path / "few.txt", [*LISTED, ""], end)
    for root in (imagenet, imagenet / "val"):
        images = folder(root, "imagenet", subset=subset).load("test")
        assert [path[-len(name) :] for path, name in zip(paths(images), LISTED, strict=True)] == list(LISTED)
        assert images.y.tolist() == [217, 0, 217]
        assert (images.name, images.num_classes) == ("imagenet-few", 1000)
        assert images.batch(slice(None))[0].shape == (3, 3, 8, 8)
    assert found(folder(imagenet / "val", subset=subset)) == list(LISTED)


BAD = {
    "gone": (None, r"data\.subset: .*gone\.txt' cannot be read .*accepted: robustbench, or a text file"),
    "other class": (["n99999999/1.JPEG"], r"holds 'n99999999/1\.JPEG'; accepted: CLASS/IMAGE, as in n01440764/1\.JPEG"),
    "no class": (["ILSVRC2012_val_00000293.JPEG"], "accepted: CLASS/IMAGE"),
    "absolute": ([f"/val/{LISTED[0]}"], "accepted: CLASS/IMAGE"),
    "twice": ([*LISTED, LISTED[0]], "names 1 images twice"),
    "missing": (
        [*LISTED, f"{TENCH}/none.JPEG"],
        r"1 of the 4 images .* are not there, the first is .*none\.JPEG'. Pass the folder",
    ),
    "empty": ([], "the set is empty"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_list_is_an_error_that_says_what_is_accepted(case: str, imagenet: Path, tmp_path: Path) -> None:
    lines, message = BAD[case]
    subset = str(tmp_path / "gone.txt") if lines is None else write_list(tmp_path / "list.txt", lines)
    with pytest.raises(UserError, match=message):
        folder(imagenet, "imagenet", subset=subset).load("test")


def test_a_list_that_is_no_text_is_an_error(imagenet: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read"):
        folder(imagenet, "imagenet", subset=str(tmp_path / "list.txt")).load("test")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed `robustbench` that cannot be imported, as is often so beside a new timm."""
    place = tmp_path / "site" / "robustbench"
    place.mkdir(parents=True)
    (place / "__init__.py").write_text("raise ImportError('its zoo needs an old timm')")
    monkeypatch.syspath_prepend(str(place.parent))
    return place


@pytest.mark.parametrize("home", ["helper_files", "data"])
def test_robustbenchs_list_is_read_from_its_package(home: str, package: Path, imagenet: Path) -> None:
    (package / home).mkdir()
    write_list(package / home / "imagenet_test_image_ids.txt", LISTED)
    images = folder(imagenet, "imagenet", subset="robustbench").load("test")
    assert images.y.tolist() == [217, 0, 217]
    assert images.name == "imagenet-robustbench"


def test_a_robustbench_without_its_list_is_an_error_that_says_where_to_get_it(package: Path, imagenet: Path) -> None:
    message = (
        r"is installed in .* but lacks imagenet_test_image_ids\.txt\. Save https://github\.com/RobustBench/.* and pass the path"
    )
    with pytest.raises(UserError, match=message):
        folder(imagenet, "imagenet", subset="robustbench").load("test")


def test_without_robustbench_the_error_says_where_to_get_its_list(imagenet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robustvit.data.folders.find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"robustbench is not installed\. Save https://github\.com/RobustBench/.* and pass the path"
    ):
        folder(imagenet, "imagenet", subset="robustbench").load("test")


def test_finding_the_images_opens_none_of_them(imagenet: Path) -> None:
    for file in imagenet.rglob("*.JPEG"):
        file.write_bytes(b"not an image")
    images = folder(imagenet, "imagenet").load("test")
    assert torch.equal(images.y, torch.tensor([0, 0, 217, 217, 999]))
    with pytest.raises(UserError, match="cannot be decoded"):
        images.batch(slice(0, 1))
