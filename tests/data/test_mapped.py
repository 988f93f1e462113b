"""Generated images mapped into memory: which files they may be in, where their pixels are found, and what is loaded."""

import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from robustvit.data import DataSpec
from robustvit.data.images import Images
from robustvit.data.mapped import Mapped, map_images
from robustvit.data.stored import Stored
from robustvit.errors import UserError


def made(count: int = 12, seed: int = 0, size: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (count, size, size + 1, 3), dtype=np.uint8)
    return {"image": image, "label": rng.integers(0, 10, count)}


def shard(path: Path, content: dict[str, np.ndarray]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **content)
    return path


def expected(content: dict[str, np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(content["image"]).permute(0, 3, 1, 2)


def test_the_pixels_are_those_that_numpy_reads(tmp_path: Path) -> None:
    content = made()
    store, y = map_images(shard(tmp_path / "set.npz", content))
    x = Stored.whole(store)
    assert x.shape == (12, 3, 5, 6)
    assert torch.equal(x.read(), expected(content))
    assert torch.equal(x[torch.tensor([7, 0, 7])].read(), expected(content)[[7, 0, 7]])
    assert y.dtype == torch.int64
    assert y.tolist() == content["label"].tolist()


def test_an_archive_of_another_writer_is_read_where_its_own_header_says(tmp_path: Path) -> None:
    """Python's zipfile repeats names and extra fields alike in file and directory; others pad the file's own."""
    content = made(3)
    arrays = {}
    for name, array in content.items():
        buffer = io.BytesIO()
        np.save(buffer, array)
        arrays[name] = buffer.getvalue()
    with zipfile.ZipFile(tmp_path / "set.npz", "w") as archive:
        for name, data in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy")
            info.extra = b"\xff\xff\x08\x00padding."
            archive.writestr(info, data)
    raw = bytearray((tmp_path / "set.npz").read_bytes())
    directory = raw.index(b"PK\x01\x02")
    while directory >= 0:  # the extra fields of the directory's entries are cut off
        name, extra = (int.from_bytes(raw[directory + at : directory + at + 2], "little") for at in (28, 30))
        raw[directory + 30 : directory + 32] = (0).to_bytes(2, "little")
        del raw[directory + 46 + name : directory + 46 + name + extra]
        directory = raw.find(b"PK\x01\x02", directory + 46)
    end = raw.index(b"PK\x05\x06")
    size = end - raw.index(b"PK\x01\x02")
    raw[end + 12 : end + 16] = size.to_bytes(4, "little")
    (tmp_path / "set.npz").write_bytes(raw)
    assert zipfile.ZipFile(tmp_path / "set.npz").getinfo("image.npy").extra == b""
    store, _ = map_images(tmp_path / "set.npz")
    assert torch.equal(Stored.whole(store).read(), expected(content))


def test_shards_follow_each_other_by_name(tmp_path: Path) -> None:
    contents = [made(4, 0), made(9, 1), made(1, 2)]
    for number, content in enumerate(contents):
        shard(tmp_path / f"shard-{number}.npz", content)
    store, y = map_images(tmp_path)
    x = torch.cat([expected(content) for content in contents])
    places = torch.tensor([13, 0, 3, 4, 12, 12, 5])
    assert torch.equal(Stored.whole(store)[places].read(), x[places])
    assert y.tolist() == np.concatenate([content["label"] for content in contents]).tolist()


def test_an_unzipped_archive_is_a_folder_that_can_be_passed(tmp_path: Path) -> None:
    """What the error for compressed archives advises."""
    content = made()
    np.savez_compressed(tmp_path / "set.npz", **content)
    with pytest.raises(UserError, match=r"set\.npz: is compressed.* Unzip it \(unzip set\.npz -d set\) and pass the folder"):
        map_images(tmp_path / "set.npz")
    zipfile.ZipFile(tmp_path / "set.npz").extractall(tmp_path / "set")
    store, y = map_images(tmp_path / "set")
    assert torch.equal(Stored.whole(store).read(), expected(content))
    assert y.tolist() == content["label"].tolist()


def test_five_million_images_are_mapped_and_not_loaded(tmp_path: Path) -> None:
    """15 GB that exist as a header and a hole; of a batch, its own pixels are all that is allocated."""
    count = 5_000_000
    folder = tmp_path / "5m"
    folder.mkdir()
    header = {"descr": "|u1", "fortran_order": False, "shape": (count, 32, 32, 3)}
    with (folder / "image.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        begin = file.tell()
        file.seek(begin + (count - 1) * 3072)
        file.write(bytes(range(256)) * 12)  # the last image
    np.save(folder / "label.npy", np.zeros(1, dtype=np.uint8))
    with pytest.raises(UserError, match="5000000 whole numbers, one an image"):
        map_images(folder)
    np.save(folder / "label.npy", (np.arange(count) % 10).astype(np.uint8))
    store, y = map_images(folder)
    images = Images("generated", Stored.whole(store), y)
    assert images.kept() is images
    tracemalloc.start()  # NumPy tells it of every allocation
    x, labels = images.batch(torch.tensor([5, count - 1]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20
    assert labels.tolist() == [5, 9]
    assert not x[0].any()
    assert torch.equal(x[1].permute(1, 2, 0).flatten() * 255, torch.arange(256).repeat(12).float())


def test_a_store_is_small_when_it_is_sent_to_a_worker(tmp_path: Path) -> None:
    import pickle

    store, _ = map_images(shard(tmp_path / "set.npz", made(200, size=32)))
    sent = pickle.dumps(store)
    assert len(sent) < 2_000
    back = pickle.loads(sent)
    assert isinstance(back, Mapped)
    assert torch.equal(Stored.whole(back).read(), Stored.whole(store).read())


BAD = {
    "no images": ({"label": np.zeros(3, int)}, r"lacks image\.npy; it has: label\.npy"),
    "other names": ({"x_train": np.zeros(3)}, r"lacks image\.npy and label\.npy"),
    "floats": (made() | {"image": np.zeros((12, 4, 4, 3))}, r"image is float64 of shape .12, 4, 4, 3.; accepted: uint8"),
    "no channels": (made() | {"image": np.zeros((12, 4, 4), np.uint8)}, r"image is uint8 of shape .12, 4, 4.; accepted"),
    "columns first": (made() | {"image": np.asfortranarray(made()["image"])}, "in Fortran order; accepted: uint8"),
    "too few labels": (made() | {"label": np.zeros(3, int)}, r"label is int64 of shape .3,.; accepted: 12 whole numbers"),
    "labels as words": (made() | {"label": np.array(["cat"] * 12)}, r"label is <U3 of shape .12,.; accepted"),
    "negative labels": (made() | {"label": np.full(12, -1)}, "labels from -1 to -1"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_set_is_an_error_that_says_what_is_accepted(case: str, tmp_path: Path) -> None:
    content, message = BAD[case]
    with pytest.raises(UserError, match=message):
        DataSpec("generated", str(shard(tmp_path / "set.npz", content))).load("train")


@pytest.mark.parametrize("damage", ["truncated", "text", "empty", "pickled"])
def test_a_damaged_file_is_an_error(damage: str, tmp_path: Path) -> None:
    path = shard(tmp_path / "set.npz", made())
    whole = path.read_bytes()
    path.write_bytes({"truncated": whole[:900], "text": b"hello", "empty": b"", "pickled": whole}[damage])
    if damage == "pickled":
        shard(path, made() | {"label": np.array([{"run": "me"}] * 12, dtype=object)})
    with pytest.raises(UserError, match=r"set\.npz: cannot be read as \.npz"):
        map_images(path)


def test_a_folder_whose_images_were_cut_short_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "image.npy", made()["image"])
    np.save(tmp_path / "label.npy", made()["label"])
    whole = (tmp_path / "image.npy").read_bytes()
    (tmp_path / "image.npy").write_bytes(whole[:-7])
    with pytest.raises(UserError, match=r"image\.npy: truncated: it ends 7 bytes before the end of its images"):
        map_images(tmp_path)


def test_shards_of_two_shapes_are_an_error(tmp_path: Path) -> None:
    shard(tmp_path / "a.npz", made(size=5))
    shard(tmp_path / "b.npz", made(size=6))
    with pytest.raises(UserError, match=r"shapes \(5, 6, 3\) and \(6, 7, 3\); accepted: one"):
        map_images(tmp_path)


def test_a_set_that_is_not_there_says_where_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.npz: no such file or folder .*https://huggingface\.co/datasets"):
        map_images(tmp_path / "none.npz")
    with pytest.raises(UserError, match=r"holds no generated images; accepted: a folder of \.npz files"):
        map_images(tmp_path)
    with pytest.raises(UserError, match=r"data\.path: missing; accepted: an \.npz"):
        DataSpec("generated").load("train")


def test_generated_images_are_for_training_alone(tmp_path: Path) -> None:
    path = shard(tmp_path / "set.npz", made())
    with pytest.raises(UserError, match="has no test images; accepted: real ones, as in --data cifar10:PATH"):
        DataSpec("generated", str(path)).load("test")
