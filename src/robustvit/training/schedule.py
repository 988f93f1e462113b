"""Time: how far a run is, what follows from it, and the phases a run is made of."""

import math
from dataclasses import dataclass, field
from fnmatch import fnmatch

from torch import nn

from robustvit.errors import UserError
from robustvit.objectives import Objective


@dataclass(frozen=True, slots=True)
class Progress:
    """Where in a phase a step stands: `epoch` counts in fractions."""

    step: int
    epoch: float
    total_epochs: int


class Schedule:
    """Base of the schedules: small dataclasses that turn Progress into a factor of the set value."""

    def __call__(self, progress: Progress) -> float:
        raise NotImplementedError(f"{type(self).__name__} does not implement __call__()")


@dataclass(frozen=True, slots=True)
class Constant(Schedule):
    def __call__(self, progress: Progress) -> float:
        return 1.0


@dataclass(frozen=True, slots=True)
class Linear(Schedule):
    """From 0 to 1 over the first `epochs`, a little more at every step: the ε warm-up."""

    epochs: float = 10

    def __post_init__(self) -> None:
        _check_not_negative("linear", epochs=self.epochs)

    def __call__(self, progress: Progress) -> float:
        return min(1.0, progress.epoch / self.epochs) if self.epochs else 1.0


@dataclass(frozen=True, slots=True)
class Cosine(Schedule):
    """`warmup` epochs from `start` to 1, half a cosine down to `floor`, `cooldown` epochs there.

    The phase's epochs are all of it. The peak is reached: the cosine begins where the warm-up ends.
    """

    warmup: float = 0
    cooldown: float = 0
    start: float = 0.01
    floor: float = 0.0

    def __post_init__(self) -> None:
        _check_not_negative("cosine", warmup=self.warmup, cooldown=self.cooldown, start=self.start, floor=self.floor)

    def __call__(self, progress: Progress) -> float:
        if progress.epoch < self.warmup:
            return self.start + (1 - self.start) * progress.epoch / self.warmup
        length = progress.total_epochs - self.cooldown - self.warmup
        part = min(1.0, (progress.epoch - self.warmup) / length) if length > 0 else 1.0
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * part)) / 2


def _check_not_negative(schedule: str, **fields: float) -> None:
    for name, value in fields.items():
        if not 0 <= value < math.inf:
            raise UserError(f"{schedule}.{name}: {value}; accepted: a finite number, 0 or more")


SCHEDULES: dict[str, type[Schedule]] = {"constant": Constant, "linear": Linear, "cosine": Cosine}


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of training: an objective, for so long, on these parameters, against a scheduled share of eps."""

    objective: Objective
    epochs: int
    trainable: str = "*"
    eps: Schedule = field(default_factory=Constant)

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise UserError(f"phase.epochs: {self.epochs}; accepted: 1 or more")

    def at(self, progress: Progress) -> Objective:
        """The objective as it stands now."""
        return self.objective.scaled(self.eps(progress))

    def select_parameters(self, model: nn.Module) -> None:
        """Make the parameters whose name matches `trainable` trainable, and the others not."""
        names = [name for name, _ in model.named_parameters()]
        if not any(fnmatch(name, self.trainable) for name in names):
            raise UserError(f"phase.trainable: {self.trainable!r} matches no parameter; they are named like {names[0]!r}")
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(fnmatch(name, self.trainable))
