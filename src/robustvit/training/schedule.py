"""Time: how far a run is, what follows from it, and the phases a run is made of."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from torch import nn

from robustvit.data.augment import Augmentation
from robustvit.errors import UserError, unknown
from robustvit.objectives import AWP, Objective
from robustvit.objectives.awp import perturbable


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
    """1, always."""

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


@dataclass(frozen=True, slots=True)
class Steps(Schedule):
    """`warmup` epochs from `start` to 1, then `factor` times less at each of the epochs `at`."""

    at: tuple[float, ...] = (30, 60, 90)
    factor: float = 0.1
    warmup: float = 0
    start: float = 0.01

    def __post_init__(self) -> None:
        _check_not_negative("steps", factor=self.factor, warmup=self.warmup, start=self.start)
        if list(self.at) != sorted(set(self.at)) or min(self.at, default=1) <= 0:
            raise UserError(f"steps.at: {list(self.at)}; accepted: rising epochs above 0")

    def __call__(self, progress: Progress) -> float:
        if progress.epoch < self.warmup:
            return self.start + (1 - self.start) * progress.epoch / self.warmup
        return self.factor ** sum(progress.epoch >= epoch for epoch in self.at)


def _check_not_negative(schedule: str, **fields: float) -> None:
    for name, value in fields.items():
        if not 0 <= value < math.inf:
            raise UserError(f"{schedule}.{name}: {value}; accepted: a finite number, 0 or more")


SCHEDULES: dict[str, type[Schedule]] = {"constant": Constant, "linear": Linear, "cosine": Cosine, "steps": Steps}


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of training: an objective, for so long, on these parameters, against a scheduled share of eps and
    on images augmented at a scheduled share of the strength.

    `trainable` names parts of the model, separated by commas: a part is one or more whole components of a parameter's dotted
    name, with wildcards, as in `head` or `blocks.1?, norm, head`. All else is frozen.
    """

    objective: Objective
    epochs: int
    trainable: str = "*"
    eps: Schedule = field(default_factory=Constant)
    augment: Schedule = field(default_factory=Constant)
    awp: AWP | None = None

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise UserError(f"phase.epochs: {self.epochs}; accepted: 1 or more")

    def at(self, progress: Progress) -> Objective:
        """The objective as it stands now."""
        return self.objective.scaled(self.eps(progress))

    def weight_gamma(self, progress: Progress) -> float:
        """How far weights are moved adversarially now, as a share of their norm."""
        return self.awp.gamma if self.awp and progress.epoch >= self.awp.start_epoch else 0.0

    def check_strength(self, augmentations: Sequence[Augmentation]) -> None:
        """Is there anything that a schedule of the strength changes?"""
        if self.augment != Constant() and not any(each.scaled(0.5) != each for each in augmentations):
            raise UserError(
                f"phase.augment: {self.augment}, but nothing in data.augment has a strength; accepted with rand_augment, "
                "colour_jitter, erasing or mixing there (data.transform keeps its own strength)"
            )

    def select_parameters(self, model: nn.Module) -> None:
        """Make the parameters that `trainable` names trainable, and the others not."""
        names = [name for name, _ in model.named_parameters()]
        chosen: set[str] = set()
        for pattern in self.trainable.split(","):
            matching = {name for name in names if _is_part(pattern.strip(), name)}
            if not matching:
                raise unknown("part in phase.trainable", pattern.strip(), {_first_part(name) for name in names})
            chosen |= matching
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in chosen)
        if self.awp and not perturbable(model):
            raise UserError(
                f"phase.awp: {self.trainable!r} trains no weight of more than one dimension, so there is none to perturb"
            )


def train_mode(model: nn.Module) -> None:
    """Train mode for what is trained; a part whose parameters are all frozen stays in eval mode.

    A frozen part so remains the function that it is when judged: its running statistics stand still and nothing drops out.
    """
    parameters = list(model.parameters())
    if parameters and not any(p.requires_grad for p in parameters):
        model.eval()
        return
    model.training = True
    for child in model.children():
        train_mode(child)


def _first_part(name: str) -> str:
    return name.removeprefix("backbone.").split(".")[0]


def _is_part(pattern: str, name: str) -> bool:
    return fnmatchcase(f".{name}.", f"*.{pattern}.*")
