"""torchvision's data sets by name: on their real layouts, filled with synthetic images."""

import gzip
import json
import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from scipy.io import savemat
from torch import Tensor

from robustvit.data import DataSpec
from robustvit.data.files import Encoded, Files
from robustvit.data.sources.assemble import split_by_class
from robustvit.data.sources.caltech101 import caltech101
from robustvit.data.sources.torchvision import labels_of, split_argument
from robustvit.data.stored import Stored
from robustvit.errors import UserError


def write_mnist(root: Path, name: str = "FashionMNIST") -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng, made = np.random.default_rng(0), {}
    (root / name / "raw").mkdir(parents=True)
    for file, split, count in (("train", "train", 30), ("t10k", "test", 20)):
        x, y = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8), (np.arange(count) % 10).astype(np.uint8)
        for kind, array in (("images-idx3", x), ("labels-idx1", y)):
            header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            (root / name / "raw" / f"{file}-{kind}-ubyte").write_bytes(header + array.tobytes())
        made[split] = (x, y)
    return made


def write_food(root: Path) -> str:
    """Food-101's folder with twelve images a split, of three classes and many sizes."""
    rng, home = np.random.default_rng(0), root / "food-101"
    for split, count in (("train", 12), ("test", 12)):
        listed: dict[str, list[str]] = {}
        for number in range(count):
            name = ("apple_pie", "baklava", "carrot_cake")[number % 3]
            place = home / "images" / name / f"{split}{number}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (20 + number, 24, 3), dtype=np.uint8)).save(place)
            listed.setdefault(name, []).append(f"{name}/{place.stem}")
        (home / "meta").mkdir(exist_ok=True)
        (home / "meta" / f"{split}.json").write_text(json.dumps(listed))
    return str(root)


def test_a_set_with_train_as_an_argument_keeps_its_grey_pixels(tmp_path: Path) -> None:
    made = write_mnist(tmp_path)
    for split in ("train", "test"):
        images = DataSpec("torchvision:FashionMNIST", str(tmp_path)).load(split)  # type: ignore[arg-type]
        x, y = made[split]
        assert isinstance(images.x, Tensor)
        assert torch.equal(images.x, torch.from_numpy(x)[:, None])
        assert images.y.tolist() == y.tolist()
        assert (images.shape, images.num_classes, images.classes[0]) == ((1, 28, 28), 10, "T-shirt/top")  # type: ignore[index]
        assert images.name == "torchvision:FashionMNIST"


def test_a_grey_set_can_be_resized_for_a_grey_model_or_one_of_three_channels(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    spec = DataSpec("torchvision:FashionMNIST", str(tmp_path))
    grey, coloured = (spec.fitted(size).load("test") for size in ((1, 32, 32), (3, 32, 32)))
    assert (grey.shape, coloured.shape) == ((1, 32, 32), (3, 32, 32))
    assert torch.equal(coloured.batch(slice(4))[0], grey.batch(slice(4))[0].expand(4, 3, 32, 32))
    with Image.open(write_png(tmp_path, spec.load("test").x[0, 0])) as image:  # type: ignore[index]
        expected = np.array(image.resize((32, 32), Image.Resampling.BICUBIC))
    assert torch.equal(grey.batch(slice(1))[0][0, 0] * 255, torch.from_numpy(expected).float())


def write_png(folder: Path, pixels: Tensor) -> Path:
    Image.fromarray(pixels.numpy()).save(folder / "one.png")
    return folder / "one.png"


def test_a_set_with_split_as_an_argument_is_decoded_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = DataSpec("torchvision:Food101", write_food(tmp_path), size=16, resize=18)
    opened = []
    monkeypatch.setattr("PIL.Image.open", lambda file, real=Image.open: opened.append(file) or real(file))
    images = spec.load("test")
    assert isinstance(images.x, Stored)
    assert images.classes == ("apple_pie", "baklava", "carrot_cake")
    assert images.y.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    opened.clear()
    x, _ = images.batch(torch.tensor([5]))
    assert len(opened) == 1
    assert torch.equal(x * 255, Encoded(Files((opened[0].name,)), 16, 18).read([0], lambda *_: None).float())


def test_a_set_of_many_sizes_needs_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.size: missing, and torchvision:Food101 has images of 24×20 and 24×23 pixels"):
        DataSpec("torchvision:Food101", write_food(tmp_path)).load("test")


def test_a_resize_or_a_transform_without_a_size_is_not_passed_over(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    for more in ({"resize": 32}, {"transform": {"hflip": 0.5}}):
        spec = DataSpec("torchvision:FashionMNIST", str(tmp_path), **more)  # type: ignore[arg-type]
        with pytest.raises(UserError, match=r"data\.size: missing, and the model does not say"):
            spec.load("train")


def test_another_split_can_be_named(tmp_path: Path) -> None:
    spec = DataSpec("torchvision:Food101", write_food(tmp_path), size=8, splits={"train": "test"})
    assert torch.equal(spec.load("train").batch(slice(None))[0], spec.load("test").batch(slice(None))[0])
    with pytest.raises(UserError, match=r"data\.splits\.test: extra are no splits of torchvision:Food101: .*'extra'"):
        DataSpec("torchvision:Food101", str(tmp_path), splits={"test": "extra"}).load("test")
    with pytest.raises(UserError, match=r"data\.splits\.val: .*accepted in data\.splits: train, test"):
        DataSpec("torchvision:Food101", splits={"val": "val"})
    with pytest.raises(UserError, match=r"data\.splits: .*; accepted with the data flowers102, torchvision and timm alone"):
        DataSpec("cifar10", splits={"train": "train"})


def test_svhns_rows_and_channels_are_in_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stores [H, W, C, N]; torchvision's table of hashes is told of the synthetic file."""
    import hashlib

    x = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 6), dtype=np.uint8)
    savemat(tmp_path / "test_32x32.mat", {"X": x, "y": np.array([[1, 2, 3, 10, 5, 6]]).T})
    digest = hashlib.md5((tmp_path / "test_32x32.mat").read_bytes()).hexdigest()
    monkeypatch.setitem(torchvision.datasets.SVHN.split_list, "test", ["", "test_32x32.mat", digest])
    images = DataSpec("torchvision:SVHN", str(tmp_path)).load("test")
    assert torch.equal(images.x, torch.from_numpy(x).permute(3, 2, 0, 1))  # type: ignore[arg-type]
    assert images.y.tolist() == [1, 2, 3, 0, 5, 6]  # SVHN writes the digit 0 as 10


def test_more_arguments_reach_the_constructor(tmp_path: Path) -> None:
    """EMNIST calls something else a split."""
    raw = tmp_path / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    x, y = np.zeros((4, 28, 28), np.uint8), np.array([1, 2, 3, 26], np.uint8)
    for split in ("train", "test"):
        for kind, array in (("images-idx3", x), ("labels-idx1", y)):
            header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            with gzip.open(raw / f"emnist-letters-{split}-{kind}-ubyte.gz", "wb") as file:
                file.write(header + array.tobytes())
            (raw / f"emnist-letters-{split}-{kind}-ubyte").write_bytes(header + array.tobytes())
    images = DataSpec("torchvision:EMNIST", str(tmp_path), args={"split": "letters"}).load("train")
    assert images.y.tolist() == [1, 2, 3, 26]
    with pytest.raises(UserError, match=r"data\.args: .'sprit': 'letters'. is not accepted by torchvision's EMNIST"):
        DataSpec("torchvision:EMNIST", str(tmp_path), args={"sprit": "letters"}).load("train")


@pytest.mark.parametrize(
    ("name", "argument"),
    [("MNIST", "train"), ("EMNIST", "train"), ("KMNIST", "train"), ("CIFAR100", "train"), ("USPS", "train")]
    + [(name, "split") for name in ("SVHN", "Food101", "STL10", "GTSRB", "PCAM", "Imagenette", "Places365", "OxfordIIITPet")]
    + [(name, None) for name in ("FakeData", "EuroSAT", "Caltech256", "SEMEION")],
)
def test_how_a_set_is_asked_for_a_split(name: str, argument: str | None) -> None:
    assert split_argument(getattr(torchvision.datasets, name)) == argument


def test_labels_that_a_set_keeps_apart_are_only_believed_if_they_are_those_of_its_items() -> None:
    class Shifted(torch.utils.data.Dataset):
        targets = (0, 1, 2, 0, 1, 2)

        def __len__(self) -> int:
            return 6

        def __getitem__(self, place: int) -> tuple[Image.Image, int]:
            return Image.new("L", (4, 4)), self.targets[place] + 1

    assert labels_of(Shifted(), "shifted").tolist() == [1, 2, 3, 1, 2, 3]


def test_a_set_without_single_labels_is_an_error() -> None:
    class Captions(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, place: int) -> tuple[Image.Image, str]:
            return Image.new("L", (4, 4)), "a cat"

    with pytest.raises(UserError, match="item 0 has the label 'a cat'; accepted: sets with one class number an image"):
        labels_of(Captions(), "captions")


def test_unknown_and_missing_sets_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown data set of torchvision 'SVNH': did you mean 'SVHN'"):
        DataSpec.parse(f"torchvision:SVNH:{tmp_path}").load("test")
    with pytest.raises(UserError, match="unknown data set of torchvision ''"):
        DataSpec.parse("torchvision").load("test")
    with pytest.raises(UserError, match=r"not found in .*--data torchvision:SVHN:PATH.*https://.*data\.download=true"):
        DataSpec.parse(f"torchvision:SVHN:{tmp_path}").load("test")


def test_a_seeded_split_takes_its_share_of_every_class() -> None:
    y = torch.tensor([0] * 50 + [1] * 10 + [7] * 5)[torch.randperm(65, generator=torch.Generator().manual_seed(0))]
    train, test = split_by_class(y, "train"), split_by_class(y, "test")
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(65))
    assert y[train].bincount().tolist() == [40, 8, 0, 0, 0, 0, 0, 4]
    assert torch.equal(train, split_by_class(y, "train"))
    assert split_by_class(y, "train", 5)[:3].tolist() == sorted(split_by_class(y, "train", 5).tolist())[:3]
    assert y[split_by_class(y, "train", 5)].bincount().tolist() == [5, 5, 0, 0, 0, 0, 0, 5]


@pytest.fixture
def caltech(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys.modules["robustvit.data.sources.caltech101"], "CLASSES", 2)
    for name, count in (("ant", 40), ("bass", 33), ("BACKGROUND_Google", 40)):
        for number in range(count):
            place = tmp_path / "caltech101" / "101_ObjectCategories" / name / f"image_{number + 1:04}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB" if number % 2 else "L", (9, 8)).save(place)
    return tmp_path


def test_caltech_trains_on_thirty_images_a_class_and_leaves_the_clutter_out(caltech: Path) -> None:
    spec = DataSpec("caltech101", str(caltech), size=8)
    train, test = spec.load("train"), spec.load("test")
    assert train.classes == test.classes == ("ant", "bass")
    assert train.y.bincount().tolist() == [30, 30]
    assert test.y.bincount().tolist() == [10, 3]
    for place in (caltech / "caltech101", caltech / "caltech101" / "101_ObjectCategories"):
        assert torch.equal(DataSpec("caltech101", str(place), size=8).load("test").y, test.y)


def test_caltech_with_classes_missing_is_not_taken_for_the_whole(caltech: Path) -> None:
    shutil.rmtree(caltech / "caltech101" / "101_ObjectCategories" / "bass")
    with pytest.raises(UserError, match=r"1 classes in .*accepted: all 2"):
        DataSpec("caltech101", str(caltech), size=8).load("train")


def test_caltech_has_torchvisions_classes_and_images(caltech: Path) -> None:
    ours = caltech101(DataSpec("caltech101", str(caltech), size=8), "test")
    theirs = torchvision.datasets.Caltech101(caltech)
    assert list(ours.classes or ()) == theirs.categories
    assert isinstance(ours.x, Stored)
    assert len(ours) + 60 == len(theirs)


def write_flowers(root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    import hashlib

    home = root / "flowers-102"
    (home / "jpg").mkdir(parents=True)
    for number in range(1, 7):
        Image.new("RGB", (9, 8), (40 * number, 0, 0)).save(home / "jpg" / f"image_{number:05}.jpg", quality=100)
    savemat(home / "imagelabels.mat", {"labels": np.array([1, 2, 102, 1, 2, 102])})
    savemat(home / "setid.mat", {"trnid": np.array([6, 1]), "valid": np.array([2, 3]), "tstid": np.array([4, 5])})
    table = {
        key: (f"{name}.mat", hashlib.md5((home / f"{name}.mat").read_bytes()).hexdigest())
        for key, name in (("label", "imagelabels"), ("setid", "setid"))
    }
    monkeypatch.setattr(torchvision.datasets.Flowers102, "_file_dict", table)
    return str(root)


def test_flowers_have_their_official_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = DataSpec("flowers102", write_flowers(tmp_path, monkeypatch), size=8)
    train, test = spec.load("train"), spec.load("test")
    assert (train.y.tolist(), test.y.tolist(), train.num_classes) == ([101, 0], [0, 1], 102)
    reds = [round(float(red) * 255 / 40) for red in test.batch(slice(None))[0][:, 0, 0, 0]]
    assert reds == [4, 5]
    more = DataSpec("flowers102", spec.path, size=8, splits={"train": "train+val"}).load("train")
    assert more.y.tolist() == [101, 0, 1, 101]


@pytest.mark.parametrize(
    ("source", "public"),
    [
        ("cifar10", "https://www.cs.toronto.edu"),
        ("cifar100", "https://www.cs.toronto.edu"),
        ("imagenet", "https://image-net.org"),
        ("flowers102", "https://www.robots.ox.ac.uk"),
        ("caltech101", "https://data.caltech.edu"),
        ("torchvision:GTSRB", "https://pytorch.org"),
        ("timm:wds/set", "https://huggingface.co"),
        ("generated", "https://huggingface.co"),
    ],
)
def test_a_missing_set_says_where_to_get_it_and_what_to_pass(source: str, public: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"(?s){public}") as told:
        DataSpec(source, str(tmp_path / "none")).load("train")
    assert any(hint in str(told.value) for hint in ("data.path", f"--data {source}:PATH", "no such file or folder"))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("source", ["cifar10", "cifar100"])
def test_a_missing_npz_of_a_known_set_says_where_to_get_it(source: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"(?s)cs\.toronto\.edu.*data\.download=true"):
        DataSpec(source, str(tmp_path / "none.npz")).load("train")


@pytest.mark.parametrize(("source", "wanted"), [("generated", "huggingface.co"), ("timm:wds/set", r"\.tar archives")])
def test_a_set_without_a_path_says_what_to_pass(source: str, wanted: str) -> None:
    with pytest.raises(UserError, match=f"(?s)data.path: missing.*{wanted}"):
        DataSpec(source).load("train")


def test_what_cannot_be_fetched_is_not_asked_to_be() -> None:
    with pytest.raises(UserError, match=r"data\.download: True; accepted with the data cifar10"):
        DataSpec("digits", download=True)
