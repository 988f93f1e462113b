"""Images that are not in memory: a store holds them, and `Stored` stands for some of them until they are read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robustvit.progress import Advance, progress, unseen

SAMPLED = 256  # images whose pixels tell a set from another


class Store:
    """Base of what holds images outside of memory, and gives them as uint8 pixels of one shape."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of each."""
        raise NotImplementedError(f"{type(self).__name__} does not implement shape")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not implement __len__()")

    def read(self, places: Sequence[int], advance: Advance) -> Tensor:
        """The images at these places, uint8 [N, C, H, W] on the CPU; `advance` is told of each that is done."""
        raise NotImplementedError(f"{type(self).__name__} does not implement read()")

    def signature(self, places: Sequence[int]) -> bytes:
        """Tells these images from others without reading all: by default the pixels of some, evenly spread."""
        some = places[:: max(1, len(places) // SAMPLED)]
        return self.read(some, unseen).numpy().tobytes()


@dataclass(frozen=True, slots=True)
class Stored:
    """Images of a store by their places there; stands for a uint8 tensor [N, C, H, W] on a device.

    Indexing selects images and reads none.
    """

    store: Store
    places: Tensor
    device: torch.device | str = "cpu"

    @staticmethod
    def whole(store: Store) -> "Stored":
        return Stored(store, torch.arange(len(store)))

    def __len__(self) -> int:
        return len(self.places)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (len(self), *self.store.shape)

    @property
    def nbytes(self) -> int:
        channels, height, width = self.store.shape
        return len(self) * channels * height * width

    def __getitem__(self, index: Tensor | slice) -> "Stored":
        return replace(self, places=self.places[index.cpu() if isinstance(index, Tensor) else index])

    def to(self, device: torch.device | str) -> "Stored":
        return replace(self, device=device)

    def signature(self) -> bytes:
        return self.store.signature(self.places.tolist())

    def read(self, note: str | None = None) -> Tensor:
        """All of them; with a `note`, under a progress bar of that name."""
        with progress(len(self), note or "read", shown=note is not None) as advance:
            return self.store.read(self.places.tolist(), advance).to(self.device)
