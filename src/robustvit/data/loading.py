"""Training batches: from memory directly; of stored images by loader workers, which read ahead and change no pixel.

An image's random transform is seeded by (run seed, epoch, the image's place) in whatever process it runs, so that a resumed
run, or one with other workers, sees the same images.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from robustvit.data.files import Encoded
from robustvit.data.images import Images
from robustvit.data.spec import DataSpec
from robustvit.data.stored import Stored
from robustvit.data.transform import Transform, make_transform, seeded
from robustvit.errors import UserError

Feed = Callable[[Tensor], tuple[Tensor, Tensor]]  # places to images and labels
Part = tuple[int, Tensor]  # the epoch and places of a micro-batch


def open_feed(images: Images, spec: DataSpec, parts: Iterable[Part], seed: int) -> Feed:
    """Gives the images of a micro-batch; it must then be asked for the `parts` in their order."""
    if isinstance(images.x, Tensor):
        return images.batch
    return Ahead(images, images.x, spec, parts, seed)


class Ahead:
    """Micro-batches that loader workers have read, or are reading, when they are asked for."""

    def __init__(self, images: Images, stored: Stored, spec: DataSpec, parts: Iterable[Part], seed: int) -> None:
        self.y, self.device = images.y, stored.device
        self.workers = count_workers(spec.workers)
        transform = make_transform(spec.transform, stored.store.shape) if spec.transform is not None else None
        self.loader = DataLoader(
            _Reading(stored.to("cpu"), transform, seed),
            sampler=parts,
            batch_size=None,  # a part is read by one worker as it is
            num_workers=self.workers,
            collate_fn=_unchanged,
            pin_memory=torch.device(self.device).type == "cuda",
            generator=torch.Generator(),  # or it would draw from the run's own
        )
        self.ahead: Iterator[Tensor | UserError] | None = None

    def __call__(self, part: Tensor) -> tuple[Tensor, Tensor]:
        if self.ahead is None:
            self.ahead = iter(self.loader)  # starts the workers
        try:
            x = next(self.ahead)
        except RuntimeError as error:
            if "DataLoader worker (pid" not in str(error):
                raise
            raise UserError(
                f"data.workers: one of {self.workers} ended ({error}); memory, or shared memory (/dev/shm), may be too small. "
                "Try fewer, or 0 to read in this process"
            ) from None
        if isinstance(x, UserError):
            raise x
        assert len(x) == len(part)
        return x.to(self.device, non_blocking=True).float().div_(255), self.y[part]


@dataclass(frozen=True)
class _Reading(Dataset):
    """What a worker does with a part."""

    stored: Stored
    transform: Transform | None
    seed: int

    def __getitem__(self, part: Part) -> Tensor | UserError:
        epoch, places = part
        try:
            return self._transformed(epoch, places) if self.transform else self.stored[places].read()
        except UserError as error:
            return error  # raised in a worker, it would come with that worker's traceback

    def _transformed(self, epoch: int, places: Tensor) -> Tensor:
        store, transform = self.stored.store, self.transform
        assert isinstance(store, Encoded)  # DataSpec accepts a transform with no other
        assert transform is not None
        rows = []
        for place, original in zip(places.tolist(), self.stored.places[places].tolist(), strict=True):
            with seeded(self.seed, epoch, place):
                rows.append(transform(store.original(original)))
        return torch.stack(rows)


def count_workers(wish: int | None) -> int:
    """Without a wish, this process's share of the machine's cores."""
    return max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))) if wish is None else wish


def _unchanged(item: Any) -> Any:
    return item
