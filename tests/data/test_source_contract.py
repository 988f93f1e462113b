"""What every data source promises, tested on every entry of the registry, and what each refuses."""

import hashlib
import io
import pickle
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from scipy.io import savemat
from torch import Tensor

from robustvit.data import SOURCES, DataSpec, Images, hold_out
from robustvit.data.spec import Split
from robustvit.errors import UserError

Arrays = dict[str, np.ndarray]
WNIDS = ("n01440764", "n02102040", "n15075141")  # of 1,000 classes the first, the 218th and the last


def arrays(shape: tuple[int, ...] = (32, 32, 3), classes: int = 10, **changes: np.ndarray) -> Arrays:
    """40 images for training and 20 for testing, uint8."""
    rng = np.random.default_rng(0)
    made: Arrays = {}
    for split, count in (("train", 40), ("test", 20)):
        made[f"x_{split}"] = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
        made[f"y_{split}"] = np.arange(count) % classes
    return {**made, **changes}


def write(folder: Path, content: Arrays) -> str:
    path = folder / "set.npz"
    np.savez(path, **content)
    return str(path)


def write_files(folder: Path, classes: tuple[str, ...], held: str = "test") -> str:
    """40 images for training and 20 for testing, as JPEG files of different sizes."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 40), (held, 20)):
        for number in range(count):
            place = folder / split / classes[number % len(classes)] / f"{number}.JPEG"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (20 + number, 24, 3), dtype=np.uint8)).save(place)
    return str(folder)


def write_caltech(folder: Path, patch: pytest.MonkeyPatch) -> str:
    """Two classes of 40 images, and the clutter; the source is told that there are no more."""
    patch.setattr(sys.modules["robustvit.data.sources.caltech101"], "CLASSES", 2)
    rng = np.random.default_rng(0)
    for name in ("ant", "bass", "BACKGROUND_Google"):
        for number in range(40):
            place = folder / "caltech101" / "101_ObjectCategories" / name / f"image_{number + 1:04}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (9, 10, 3), dtype=np.uint8)).save(place)
    return str(folder)


def write_flowers(folder: Path, patch: pytest.MonkeyPatch) -> str:
    """60 images of three flowers, 20 a split; only torchvision's table of file hashes is told of them."""
    rng, home = np.random.default_rng(0), folder / "flowers-102"
    (home / "jpg").mkdir(parents=True)
    for number in range(1, 61):
        Image.fromarray(rng.integers(0, 256, (9, 10, 3), dtype=np.uint8)).save(home / "jpg" / f"image_{number:05}.jpg")
    order = rng.permutation(60) + 1
    savemat(home / "imagelabels.mat", {"labels": np.arange(60) % 3 + 1})
    savemat(home / "setid.mat", {"trnid": order[:20], "valid": order[20:40], "tstid": order[40:]})
    hashes = {name: hashlib.md5((home / f"{name}.mat").read_bytes()).hexdigest() for name in ("imagelabels", "setid")}
    table = {"label": ("imagelabels.mat", hashes["imagelabels"]), "setid": ("setid.mat", hashes["setid"])}
    patch.setattr(torchvision.datasets.Flowers102, "_file_dict", table)
    return str(folder)


def write_shards(folder: Path) -> str:
    """WebDataset archives with 40 images for training, in two of them, and 20 for validation."""
    rng = np.random.default_rng(0)
    for name, count in (("set-train-00", 25), ("set-train-01", 15), ("set-validation-00", 20)):
        with tarfile.open(folder / f"{name}.tar", "w") as archive:
            for number in range(count):
                image = io.BytesIO()
                Image.fromarray(rng.integers(0, 256, (9, 10, 3), dtype=np.uint8)).save(image, "JPEG")
                for key, content in (("cls", str(number % 3).encode()), ("jpg", image.getvalue())):
                    member = tarfile.TarInfo(f"{number:06}.{key}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    return str(folder)


def write_generated(folder: Path) -> str:
    made = arrays()
    return write(folder, {"image": made["x_train"], "label": made["y_train"]})


FAKE = {"size": 120, "image_size": [3, 8, 8], "num_classes": 3}

TABLE: dict[str, Callable[[Path, pytest.MonkeyPatch], DataSpec]] = {
    "digits": lambda folder, patch: DataSpec("digits"),
    "cifar10": lambda folder, patch: DataSpec("cifar10", write(folder, arrays())),
    "cifar100": lambda folder, patch: DataSpec("cifar100", write(folder, arrays(classes=20))),
    "npz": lambda folder, patch: DataSpec("npz", write(folder, arrays((9, 7, 1), classes=4))),
    "generated": lambda folder, patch: DataSpec("generated", write_generated(folder)),
    "folder": lambda folder, patch: DataSpec("folder", write_files(folder, ("cat", "dog", "fox")), size=16),
    "imagenet": lambda folder, patch: DataSpec("imagenet", write_files(folder, WNIDS, "val"), size=16, resize=18),
    "flowers102": lambda folder, patch: DataSpec("flowers102", write_flowers(folder, patch), size=8),
    "caltech101": lambda folder, patch: DataSpec("caltech101", write_caltech(folder, patch), size=8, resize=9),
    "torchvision": lambda folder, patch: DataSpec("torchvision:FakeData", args=FAKE),
    "timm": lambda folder, patch: DataSpec("timm:wds/set", write_shards(folder), size=8),
}
WITH_TEST = sorted(TABLE.keys() - {"generated"})
SPLITS = [(name, "train") for name in TABLE] + [(name, "test") for name in WITH_TEST]


def test_the_table_covers_the_registry() -> None:
    assert TABLE.keys() == SOURCES.keys()


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_every_source_gives_labelled_images_in_the_unit_box(
    name: str, split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = TABLE[name](tmp_path, monkeypatch).load(split)
    x, y = images.batch(slice(0, 16))
    assert (x.shape, x.dtype) == ((16, *images.shape), torch.float32)
    assert (y.shape, y.dtype) == ((16,), torch.int64)
    assert x.min() >= 0
    assert x.max() <= 1
    assert x.max() > 0.5  # scaled to the box, not below it
    assert images.shape[0] in (1, 3)
    assert images.y.min() >= 0
    assert images.y.max() < images.num_classes
    torch.testing.assert_close(x * 255, (x * 255).round(), rtol=0, atol=1e-4)  # stored as uint8


@pytest.mark.parametrize("name", WITH_TEST)
def test_every_source_is_the_same_each_time_and_differs_between_splits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = TABLE[name](tmp_path, monkeypatch)
    first, again, test = spec.load("train"), spec.load("train"), spec.load("test")
    x, y = first.batch(slice(None))
    assert torch.equal(x, again.batch(slice(None))[0])
    assert torch.equal(y, again.batch(slice(None))[1])
    assert torch.equal(y, first.y)
    assert (first.shape, first.num_classes) == (test.shape, test.num_classes)
    assert not torch.equal(x[: len(test)], test.batch(slice(None))[0])


@pytest.mark.parametrize(("name", "split"), [*((name, "test") for name in WITH_TEST), ("generated", "train")])
def test_a_part_of_a_source_holds_its_images_and_no_others(
    name: str, split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = TABLE[name](tmp_path, monkeypatch).load(split)
    x, y = images.batch(slice(None))
    for part in (torch.tensor([7, 0, 7, len(images) - 1]), slice(2, 5), slice(-3, None)):
        assert torch.equal(images.subset(part).batch(slice(None))[0], x[part])
        assert torch.equal(images.subset(part).y, y[part])
        assert torch.equal(images.batch(part)[0], x[part])
        assert torch.equal(images.batch(part)[1], y[part])
    chosen, places = images.first(6, sample_seed=1)
    assert torch.equal(chosen.to("cpu").batch(slice(None))[0], x[places])
    assert images.batch(slice(0))[0].shape == (0, *images.shape)


def test_digits_are_split_into_disjoint_parts_of_the_whole_set() -> None:
    from sklearn.datasets import load_digits

    train, test = DataSpec("digits").load("train"), DataSpec("digits").load("test")
    assert (len(train), len(test), train.shape) == (1437, 360, (1, 8, 8))
    assert train.y.bincount().min() > 130  # stratified

    def rows(x: np.ndarray) -> list[tuple[int, ...]]:
        return sorted(map(tuple, x.reshape(len(x), -1).tolist()))

    both = torch.cat([train.x, test.x]).numpy().astype(int)
    assert rows(both) == rows(np.round(load_digits().images * 255 / 16).astype(int))


def test_an_npz_keeps_pixels_in_their_places(tmp_path: Path) -> None:
    made = arrays((9, 7, 3))
    images = DataSpec.parse(f"npz:{write(tmp_path, made)}").load("test")
    assert images.shape == (3, 9, 7)
    assert torch.equal(images.x, torch.from_numpy(made["x_test"]).permute(0, 3, 1, 2))
    assert images.y.tolist() == made["y_test"].tolist()
    torch.testing.assert_close(images.batch(slice(0, 4))[0], images.x[:4].float() / 255)


def test_an_npz_may_hold_grey_images_without_a_channel_axis(tmp_path: Path) -> None:
    assert DataSpec("npz", write(tmp_path, arrays((8, 8)))).load("train").shape == (1, 8, 8)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_npz_may_hold_floats(tmp_path: Path, dtype: type) -> None:
    made = arrays((8, 8))
    made["x_train"] = (made["x_train"] / 255).astype(dtype)
    x, _ = DataSpec("npz", write(tmp_path, made)).load("train").batch(slice(None))
    assert x.dtype == torch.float32
    np.testing.assert_array_equal(x[:, 0].numpy(), made["x_train"].astype(np.float32))


def test_class_names_in_an_npz_fix_the_class_count(tmp_path: Path) -> None:
    names = np.array(["cat", "dog", "fox", "owl", "elk"])
    images = DataSpec("npz", write(tmp_path, arrays((8, 8), classes=3) | {"classes": names})).load("test")
    assert (images.classes, images.num_classes) == (("cat", "dog", "fox", "owl", "elk"), 5)


BAD: dict[str, tuple[Arrays, str]] = {
    "floats above one": (arrays(x_train=np.full((40, 8, 8), 255.0)), r"from 255 to 255; accepted: floats in \[0, 1\] or uint8"),
    "floats that are not numbers": (arrays(x_train=np.full((40, 8, 8), np.nan)), "accepted: floats in"),
    "floats that torch does not know": (arrays(x_train=np.full((40, 8, 8), 0.5, np.longdouble)), "images of type"),
    "a single number": (arrays(x_train=np.array(1, np.uint8)), r"of shape \(\); accepted"),
    "integers of another type": (arrays(x_train=np.zeros((40, 8, 8), np.int64)), "torch.int64; accepted: uint8"),
    "no images": (arrays(x_train=np.zeros((0, 8, 8)), y_train=np.zeros(0, int)), "the set is empty"),
    "two channels": (arrays((8, 8, 2)), "with 1 or 3 channels"),
    "channels first": (arrays((3, 8, 8)), r"x_train in .*of shape \(40, 3, 8, 8\); accepted: \[N, height, width, channels\]"),
    "flat images": (arrays((64,)), "accepted: .N, height, width, channels."),
    "negative labels": (arrays(y_train=np.full(40, -1)), "labels from -1 to -1; accepted: 0 or more"),
    "labels beyond the classes": (arrays() | {"classes": np.array(["a", "b"])}, "accepted: 0 to 1"),
    "too few labels": (arrays(y_train=np.zeros(3, int)), r"40 images but labels of shape \(3,\)"),
    "labels in a column": (arrays(y_train=np.zeros((40, 1), int)), r"labels of shape \(40, 1\)"),
    "fractional labels": (arrays(y_train=np.full(40, 1.7)), "labels"),
    "labels as words": (arrays(y_train=np.array(["cat"] * 40)), "labels"),
    "images as words": (arrays(x_train=np.full((40, 8, 8), "a")), "images of type"),
    "no training part": ({"x_test": np.zeros((2, 8, 8)), "y_test": np.zeros(2, int)}, "lacks x_train and y_train"),
    "pickled objects": (arrays(x_train=np.array([{"run": "me"}] * 40, dtype=object)), "is no .npz, or not whole"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_npz_is_an_error_that_says_what_is_accepted(case: str, tmp_path: Path) -> None:
    content, message = BAD[case]
    with pytest.raises(UserError, match=message):
        DataSpec("npz", write(tmp_path, content)).load("train")


@pytest.mark.parametrize("damage", ["truncated", "text", "empty", "array"])
def test_a_file_that_is_no_npz_is_an_error(damage: str, tmp_path: Path) -> None:
    path = Path(write(tmp_path, arrays((8, 8))))
    if damage == "array":
        with path.open("wb") as file:
            np.save(file, np.zeros((4, 8, 8)))
    else:
        path.write_bytes({"truncated": path.read_bytes()[:1000], "text": b"hello", "empty": b""}[damage])
    with pytest.raises(UserError, match=r"is no \.npz, or not whole"):
        DataSpec("npz", str(path)).load("train")


def test_missing_files_paths_and_sources_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.path: no file"):
        DataSpec("npz", str(tmp_path / "none.npz")).load("train")
    with pytest.raises(UserError, match=r"data\.path: missing"):
        DataSpec("npz").load("train")
    with pytest.raises(UserError, match="unknown data 'digitz': did you mean 'digits'"):
        DataSpec("digitz").load("train")
    with pytest.raises(UserError, match=r"not found in .*data\.download=true"):
        DataSpec("cifar10", str(tmp_path)).load("test")


def test_cifar10_labels_beyond_its_ten_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'cifar10': labels from 0 to 11; accepted: 0 to 9"):
        DataSpec("cifar10", write(tmp_path, arrays(classes=12))).load("train")


def test_a_file_of_another_set_is_not_taken_for_cifar100(tmp_path: Path) -> None:
    few = arrays(classes=10)
    many = {name: np.concatenate([part] * 20) for name, part in few.items()}
    with pytest.raises(UserError, match=r"none above 9, as of CIFAR-10; accepted: cifar100"):
        DataSpec("cifar100", write(tmp_path, many)).load("train")
    named = few | {"classes": np.arange(10).astype(str)}
    with pytest.raises(UserError, match="its `classes` are not those of cifar10"):
        DataSpec("cifar10", write(tmp_path, named)).load("train")


def test_cifar10_is_read_from_torchvisions_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny folder of the real layout; only torchvision's table of file hashes is told of it."""
    made = arrays()
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()

    def batch(name: str, content: dict) -> list[str]:
        data = pickle.dumps(content)
        (folder / name).write_bytes(data)
        return [name, hashlib.md5(data).hexdigest()]

    def flat(split: str) -> dict:
        x = made[f"x_{split}"].transpose(0, 3, 1, 2).reshape(-1, 3072)
        return {"data": x, "labels": made[f"y_{split}"].tolist()}

    cifar = torchvision.datasets.CIFAR10
    monkeypatch.setattr(cifar, "train_list", [batch("data_batch_1", flat("train"))])
    monkeypatch.setattr(cifar, "test_list", [batch("test_batch", flat("test"))])
    _, digest = batch("batches.meta", {"label_names": list("abcdefghij")})
    monkeypatch.setattr(cifar, "meta", {"filename": "batches.meta", "key": "label_names", "md5": digest})

    from_folder, from_npz = DataSpec("cifar10", str(tmp_path)), DataSpec("cifar10", write(tmp_path, made))
    for split in ("train", "test"):
        one, other = from_folder.load(split), from_npz.load(split)
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.y, other.y)
        assert one.classes == other.classes


def numbered(count: int) -> Images:
    """Image i holds i in its pixels."""
    x = torch.arange(count).view(-1, 1, 1, 1) / max(count, 1)
    return Images("numbered", x, torch.arange(count) % 5)


def places(images: Images, count: int) -> list[int]:
    return (images.x.flatten() * count).round().int().tolist()


@pytest.mark.parametrize(("count", "held"), [(2, 1), (50, 5), (1437, 143), (10_240, 1024), (50_000, 1024)])
def test_hold_out_takes_a_tenth_or_1024_disjoint_images(count: int, held: int) -> None:
    train, kept = hold_out(numbered(count), seed=0)
    assert (len(train), len(kept)) == (count - held, held)
    assert sorted(places(train, count) + places(kept, count)) == list(range(count))


def test_hold_out_depends_on_the_seed_alone() -> None:
    first, again, other = (places(hold_out(numbered(500), seed)[1], 500) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert first != list(range(50))


def test_one_image_cannot_be_held_out_from() -> None:
    with pytest.raises(UserError, match="accepted: 2 or more"):
        hold_out(numbered(1), seed=0)


def test_first_takes_the_first_images_or_a_seeded_sample_with_their_places() -> None:
    images = numbered(100)
    head, index = images.first(10)
    assert index.tolist() == places(head, 100) == list(range(10))

    sampled, index = images.first(10, sample_seed=3)
    assert index.tolist() == places(sampled, 100)
    assert len(set(index.tolist())) == 10
    assert index.tolist() != list(range(10))
    assert torch.equal(index, images.first(10, sample_seed=3)[1])
    assert not torch.equal(index, images.first(10, sample_seed=4)[1])

    everything, index = images.first(None)
    assert len(everything) == 100
    assert index.tolist() == list(range(100))


@pytest.mark.parametrize("count", [0, -1, 101])
def test_a_count_beyond_the_set_is_an_error(count: int) -> None:
    with pytest.raises(UserError, match=f"images: {count}; accepted: 1 to 100"):
        numbered(100).first(count)


def test_a_subset_keeps_images_and_labels_together() -> None:
    part: Tensor = torch.tensor([7, 3, 3])
    chosen = numbered(10).subset(part)
    assert places(chosen, 10) == [7, 3, 3]
    assert chosen.y.tolist() == [2, 3, 3]
