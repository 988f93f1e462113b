"""Arrays that are not quite what a source takes."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from robustvit.data import DataSpec
from robustvit.errors import UserError


def arrays(**given: np.ndarray) -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).random((4, 3, 3, 1)).astype(np.float32)
    return {"x_test": x, "y_test": np.arange(4), **given}


def test_floats_in_another_order_of_bytes_are_the_same_numbers(tmp_path: Path) -> None:
    here = arrays()
    np.savez(tmp_path / "here.npz", **here)
    np.savez(tmp_path / "there.npz", **{**here, "x_test": here["x_test"].astype(">f4"), "y_test": here["y_test"].astype(">i8")})
    one, other = (DataSpec("npz", str(tmp_path / f"{name}.npz")).load("test") for name in ("here", "there"))
    assert torch.equal(one.x, other.x)
    assert torch.equal(one.y, other.y)
    assert one.digest() == other.digest()


def test_class_names_that_are_no_list_are_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", **arrays(classes=np.array("cat")))
    with pytest.raises(UserError, match=r"classes in .*set\.npz' is of shape \(\); accepted: a name each"):
        DataSpec("npz", str(tmp_path / "set.npz")).load("test")


def test_damaged_compression_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez_compressed(path, **arrays(x_test=np.zeros((400, 9, 9, 1), np.uint8), y_test=np.zeros(400, np.int64)))
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo("x_test.npy")
    content = bytearray(path.read_bytes())
    start = entry.header_offset + 60
    content[start : start + 20] = b"\xff" * 20
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"set\.npz' is no \.npz, or not whole"):
        DataSpec("npz", str(path)).load("test")
