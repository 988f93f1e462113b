"""Real and generated images in one training set, and how many of each a batch has (Wang et al., 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from robustvit.data.images import Images
from robustvit.data.mapped import map_images
from robustvit.data.stored import Store, Stored
from robustvit.errors import UserError
from robustvit.progress import Advance


@dataclass(frozen=True, slots=True)
class Generated:
    """Generated images (`.npz` or a folder of them) and their share of each batch: 0.8 is generated : real = 8 : 2."""

    path: str = field(metadata={"identity": False})
    share: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UserError(f"data.generated.share: {self.share}; accepted: above 0, to 1 (no real images at all)")

    def join(self, real: Images) -> Images:
        """The real images and, after them, the generated ones."""
        store, y = map_images(self.path)
        generated = Images("generated", Stored.whole(store), y, real.classes)
        if generated.shape != real.shape:
            raise UserError(
                f"data.generated.path: {self.path!r} holds images of shape {generated.shape} (channels, height, width); "
                f"accepted with {real.name!r}: {real.shape}"
            )
        if isinstance(real.x, Tensor) and real.x.dtype != torch.uint8:
            raise UserError(f"data.generated: {real.name!r} holds floats; accepted beside generated images: uint8")
        both = Stored.whole(Joined((real.x, generated.x)))
        return Images(f"{real.name}+generated", both, torch.cat([real.y, y]), real.classes)


@dataclass(frozen=True, slots=True)
class Joined(Store):
    """Sets of images of one shape, one after the other."""

    parts: tuple[Tensor | Stored, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        _, channels, height, width = self.parts[0].shape
        return (channels, height, width)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def read(self, places: Sequence[int], advance: Advance) -> Tensor:
        x = torch.empty((len(places), *self.shape), dtype=torch.uint8)
        wanted, begin = torch.tensor(places, dtype=torch.int64), 0
        for part in self.parts:
            rows = ((wanted >= begin) & (wanted < begin + len(part))).nonzero().squeeze(1)
            chosen = part[wanted[rows] - begin]
            x[rows] = chosen.read() if isinstance(chosen, Stored) else chosen
            advance(len(rows), "")
            begin += len(part)
        return x


def mixed_batch(order: Tensor, number: int, size: int, share: float, generated: int, generator: torch.Generator) -> Tensor:
    """Places of an epoch's batch of this number in joined sets.

    The real images come in the epoch's `order`, which begins anew where the epoch needs more than it has; generated ones are
    drawn with replacement; and all are shuffled.
    """
    real = round(size * (1 - share))
    mine = order[torch.arange(number * real, (number + 1) * real) % len(order)]
    drawn = len(order) + torch.randint(generated, (size - real,), generator=generator)
    return torch.cat([mine, drawn])[torch.randperm(size, generator=generator)]
