"""Generated images in `.npz` files of any size, mapped into memory: what is not read is not loaded."""

import io
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from robustvit.data.stored import Store
from robustvit.errors import UserError
from robustvit.progress import Advance

PUBLIC = "https://huggingface.co/datasets/P2333/DM-Improves-AT"  # those of Wang et al. (2023), by EDM


@dataclass(frozen=True, slots=True)
class Region:
    """A uint8 array [N, height, width, channels] that begins at a byte of a file.

    Kept as its place and not as an open map, because a pickled map is a copy of all it shows.
    """

    path: str
    offset: int
    shape: tuple[int, int, int, int]

    def array(self) -> np.ndarray:
        return np.memmap(self.path, np.uint8, "r", self.offset, self.shape)


@dataclass(frozen=True, slots=True)
class Mapped(Store):
    """The images of all regions, one region after the other."""

    regions: tuple[Region, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        _, height, width, channels = self.regions[0].shape
        return (channels, height, width)

    def __len__(self) -> int:
        return sum(region.shape[0] for region in self.regions)

    def read(self, places: Sequence[int], advance: Advance) -> Tensor:
        x = torch.empty((len(places), *self.shape), dtype=torch.uint8)
        ends = torch.tensor(list(accumulate(region.shape[0] for region in self.regions)))
        wanted = torch.tensor(places, dtype=torch.int64)
        owner = torch.bucketize(wanted, ends, right=True)
        for number in owner.unique().tolist():
            region, rows = self.regions[number], (owner == number).nonzero().squeeze(1)
            within = wanted[rows] - (ends[number] - region.shape[0])
            x[rows] = torch.from_numpy(region.array()[within.numpy()]).permute(0, 3, 1, 2)
            advance(len(rows), "")
        return x


def map_images(path: str | Path) -> tuple[Mapped, Tensor]:
    """The images and labels of an `.npz` with `image` (uint8 [N, H, W, C]) and `label`, or of a folder of such shards.

    An unzipped `.npz` (a folder with `image.npy` and `label.npy`) is one too.
    """
    path = Path(path).expanduser()
    shards = sorted(path.glob("*.npz")) or [path] if path.is_dir() else [path]
    pieces = [_unzipped(shard) if shard.is_dir() else _zipped(shard) for shard in shards]
    shapes = {region.shape[1:] for region, _ in pieces}
    if len(shapes) > 1:
        raise UserError(f"{path}: its shards hold images of shapes {' and '.join(map(str, sorted(shapes)))}; accepted: one")
    for (region, labels), shard in zip(pieces, shards, strict=True):
        if labels.shape != region.shape[:1] or labels.dtype.kind not in "ui":
            accepted = f"{region.shape[0]} whole numbers, one an image"
            raise UserError(f"{shard}: label is {labels.dtype} of shape {labels.shape}; accepted: {accepted}")
    y = np.concatenate([labels.astype(np.int64) for _, labels in pieces])
    return Mapped(tuple(region for region, _ in pieces)), torch.from_numpy(y)


def _zipped(path: Path) -> tuple[Region, np.ndarray]:
    if not path.is_file():
        raise UserError(f"{path}: no such file or folder of generated images. Public ones: {PUBLIC} (cifar10/1m.npz)")
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            missing = {"image.npy", "label.npy"} - set(archive.namelist())
            if missing:
                held = ", ".join(archive.namelist()) or "nothing"
                raise UserError(f"{path}: lacks {' and '.join(sorted(missing))}; it has: {held}")
            image = archive.getinfo("image.npy")
            if image.compress_type != zipfile.ZIP_STORED:
                raise UserError(
                    f"{path}: is compressed, so its images cannot be mapped into memory. Unzip it (unzip {path.name} -d "
                    f"{path.stem}) and pass the folder, or save it with numpy.savez instead of savez_compressed"
                )
            file.seek(image.header_offset)
            # The lengths of name and extra field in the file itself: those in the archive's directory may differ.
            name, extra = struct.unpack("<26xHH", file.read(30))
            file.seek(name + extra, io.SEEK_CUR)
            return _region(path, file), np.lib.format.read_array(io.BytesIO(archive.read("label.npy")), allow_pickle=False)
    except UserError:
        raise
    except (ValueError, OSError, struct.error, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: cannot be read as .npz: {error}") from None


def _unzipped(folder: Path) -> tuple[Region, np.ndarray]:
    image, label = folder / "image.npy", folder / "label.npy"
    if not image.is_file() or not label.is_file():
        accepted = f"a folder of .npz files, or with image.npy and label.npy. Public ones: {PUBLIC}"
        raise UserError(f"{folder}: holds no generated images; accepted: {accepted}")
    try:
        with image.open("rb") as file:
            return _region(image, file), np.load(label, allow_pickle=False)
    except UserError:
        raise
    except (ValueError, OSError) as error:
        raise UserError(f"{folder}: cannot be read: {error}") from None


def _region(path: Path, file: BinaryIO) -> Region:
    """What the header of an `.npy` says about the bytes that follow it."""
    version = np.lib.format.read_magic(file)
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in headers:
        raise ValueError(f"image is of .npy version {version}")
    shape, fortran, dtype = headers[version](file)
    if dtype != np.uint8 or len(shape) != 4 or fortran:
        order = " in Fortran order" if fortran else ""
        raise UserError(f"{path}: image is {dtype} of shape {shape}{order}; accepted: uint8 [N, height, width, channels]")
    end = file.tell() + int(np.prod(shape, dtype=np.int64))
    if end > path.stat().st_size:
        raise UserError(f"{path}: truncated: it ends {end - path.stat().st_size} bytes before the end of its images")
    return Region(str(path), file.tell(), shape)
