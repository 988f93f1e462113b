"""Labelled images: labels in memory; pixels there too, as stored, or in a store. They become floats batch by batch."""

import hashlib
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robustvit.data.stored import Stored
from robustvit.errors import UserError

IN_MEMORY = 4 * 2**30  # bytes of training images that are read once; larger sets are read batch by batch


@dataclass(frozen=True, slots=True)
class Images:
    """N labelled images, uint8 or float in [0, 1], [N, C, H, W]. `classes` is None where the set does not say.

    With `Stored` images in the place of the tensor `x`, a batch is read when it is asked for.
    """

    name: str
    x: Tensor | Stored
    y: Tensor
    classes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.x.shape) != 4 or self.x.shape[1] not in (1, 3):
            raise UserError(
                f"data {self.name!r}: images of shape {tuple(self.x.shape)}; accepted: [N, channels, height, width], "
                "with 1 or 3 channels"
            )
        if len(self.x) == 0:
            raise UserError(f"data {self.name!r}: the set is empty; accepted: one image or more")
        if self.y.shape != self.x.shape[:1]:
            raise UserError(f"data {self.name!r}: {len(self.x)} images but labels of shape {tuple(self.y.shape)}")
        if self.y.is_floating_point() or self.y.dtype == torch.bool:
            raise UserError(f"data {self.name!r}: labels of type {self.y.dtype}; accepted: whole numbers, as int64")
        object.__setattr__(self, "y", self.y.long())
        low, high = int(self.y.min()), int(self.y.max())
        if low < 0 or (self.classes and high >= len(self.classes)):
            accepted = f"0 to {len(self.classes) - 1}" if self.classes else "0 or more"
            raise UserError(f"data {self.name!r}: labels from {low} to {high}; accepted: {accepted}")
        if isinstance(self.x, Tensor):
            _check_pixels(self.name, self.x)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    @property
    def num_classes(self) -> int:
        return len(self.classes) if self.classes else int(self.y.max()) + 1

    def to(self, device: torch.device | str) -> "Images":
        return replace(self, x=self.x.to(device), y=self.y.to(device))

    def subset(self, index: Tensor | slice) -> "Images":
        return replace(self, x=self.x[index], y=self.y[index])

    def batch(self, index: Tensor | slice) -> tuple[Tensor, Tensor]:
        x = self.x[index]
        if isinstance(x, Stored):
            x = x.read()
        return (x.float() if x.is_floating_point() else x.float().div_(255)), self.y[index]

    def first(self, count: int | None, sample_seed: int | None = None) -> tuple["Images", Tensor]:
        """The first `count` images, or a seeded sample of that size, with their places in the set."""
        if count is not None and not 1 <= count <= len(self):
            raise UserError(f"images: {count}; accepted: 1 to {len(self)}, the size of {self.name!r}")
        if sample_seed is not None and not 0 <= sample_seed < 2**31:
            raise UserError(f"sample_seed: {sample_seed}; accepted: 0 to {2**31 - 1}")
        order = torch.arange(len(self))
        if sample_seed is not None:
            order = torch.randperm(len(self), generator=torch.Generator().manual_seed(sample_seed))
        index = order[:count].sort().values
        return self.subset(index.to(self.x.device)), index

    def digest(self, most: int | None = None) -> str:
        """Of labels and images, or of `most` images evenly spread; of stored ones what their store says of them."""
        hashed = hashlib.sha256(self.y.cpu().numpy().tobytes())
        some = slice(None, None, max(1, len(self) // most) if most else 1)
        if isinstance(self.x, Stored):
            hashed.update(self.x[some].signature())
        else:
            hashed.update(f"{self.x.dtype} {self.shape}".encode())
            hashed.update(self.x[some].cpu().contiguous().numpy().tobytes())
        return hashed.hexdigest()[:16]

    def kept(self, limit: int | None = None) -> "Images":
        """Read into memory, if that takes `limit` bytes at most, by default IN_MEMORY."""
        if isinstance(self.x, Tensor) or self.x.nbytes > (IN_MEMORY if limit is None else limit):
            return self
        return replace(self, x=self.x.read(note=f"read {self.name}"))


def _check_pixels(name: str, x: Tensor) -> None:
    if x.is_floating_point():
        if not bool(((x >= 0) & (x <= 1)).all()):
            raise UserError(
                f"data {name!r}: float images from {float(x.min()):.3g} to {float(x.max()):.3g}; "
                "accepted: floats in [0, 1] or uint8"
            )
    elif x.dtype != torch.uint8:
        raise UserError(f"data {name!r}: images of type {x.dtype}; accepted: uint8, or floats in [0, 1]")


def hold_out(images: Images, seed: int) -> tuple[Images, Images]:
    """(train, held-out): 1,024 images chosen by seed, or 10% of a set of fewer than 10,240."""
    if len(images) < 2:
        raise UserError(f"data {images.name!r}: {len(images)} training image; accepted: 2 or more")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    held = max(1, min(1024, len(images) // 10))
    return images.subset(order[held:].sort().values), images.subset(order[:held].sort().values)
