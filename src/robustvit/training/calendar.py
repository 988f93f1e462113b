"""Which images, which randomness and which point of a schedule a step has: all follow from (recipe, step)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from robustvit.config import Recipe
from robustvit.errors import UserError
from robustvit.training.schedule import Progress


@dataclass(frozen=True, slots=True)
class Calendar:
    """The steps of a run over so many training images."""

    recipe: Recipe
    images: int

    def __post_init__(self) -> None:
        if self.images < self.recipe.batch_size:
            raise UserError(
                f"batch_size: {self.recipe.batch_size}; accepted: at most {self.images}, "
                "the training images that are left after holding some out"
            )

    @property
    def steps_per_epoch(self) -> int:
        return self.images // self.recipe.batch_size

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
        generator = torch.Generator().manual_seed(step_seed(self.recipe.seed, epoch))
        order = torch.randperm(self.images, generator=generator)
        return order[place * self.recipe.batch_size : (place + 1) * self.recipe.batch_size]


def step_seed(seed: int, step: int, rank: int = 0) -> int:
    return ((seed + 1) * 1_000_003 + step) * 4_099 + rank
