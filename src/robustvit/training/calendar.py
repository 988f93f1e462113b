"""Which images, which randomness and which point of a schedule a step has: all follow from (recipe, step)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from robustvit.config import Recipe
from robustvit.data.mixing import mixed_batch
from robustvit.errors import UserError
from robustvit.training.schedule import Progress

MIXING = 4_098  # the randomness of drawing generated images is that of a process number that no process has


@dataclass(frozen=True, slots=True)
class Calendar:
    """The steps of a run over so many real training images, and generated ones whose places are after theirs.

    An epoch is as many whole batches as the real images fill; with generated images among them, ⌈real/B⌉ batches.
    """

    recipe: Recipe
    images: int
    generated: int = 0

    def __post_init__(self) -> None:
        if self.images < self.recipe.batch_size and not self.generated:
            raise UserError(
                f"batch_size: {self.recipe.batch_size}; accepted: at most {self.images}, "
                "the training images that are left after holding some out"
            )

    @property
    def steps_per_epoch(self) -> int:
        whole, rest = divmod(self.images, self.recipe.batch_size)
        return whole + bool(self.generated and rest)

    @property
    def total(self) -> int:
        return self.end(len(self.recipe.phases) - 1)

    def end(self, phase: int) -> int:
        """The first step after a phase."""
        return self.steps_per_epoch * sum(p.epochs for p in self.recipe.phases[: phase + 1])

    def progress(self, phase: int, step: int) -> Progress:
        begin = self.end(phase - 1) if phase else 0
        return Progress(step, (step - begin) / self.steps_per_epoch, self.recipe.phases[phase].epochs)

    def batch(self, step: int) -> Tensor:
        """A global batch; each epoch has its own order, and the few images it leaves out are other ones each time."""
        epoch, place = divmod(step, self.steps_per_epoch)
        size, order = self.recipe.batch_size, _order(self.images, step_seed(self.recipe.seed, epoch))
        if self.generated and self.recipe.data.generated:
            generator = torch.Generator().manual_seed(step_seed(self.recipe.seed, step, MIXING))
            return mixed_batch(order, place, size, self.recipe.data.generated.share, self.generated, generator)
        return order[place * size : (place + 1) * size]

    def parts(self, begin: int, rank: int, processes: int) -> Iterator[tuple[int, Tensor]]:
        """From a step to the end: the epoch and places of each of a process's micro-batches."""
        for step in range(begin, self.total):
            for part in self.batch(step)[rank::processes].chunk(self.recipe.accumulate):
                yield step // self.steps_per_epoch, part


@lru_cache(maxsize=2)  # workers read ahead into the next epoch; an order of millions of images takes its time
def _order(images: int, seed: int) -> Tensor:
    return torch.randperm(images, generator=torch.Generator().manual_seed(seed))


def step_seed(seed: int, step: int, rank: int = 0) -> int:
    return ((seed + 1) * 1_000_003 + step) * 4_099 + rank
