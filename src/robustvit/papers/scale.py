"""Scale: what stands for a paper's data, models and budget. All else is the same code at each scale."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from robustvit.config import Optim, Recipe
from robustvit.data import DataSpec
from robustvit.models import ModelSpec
from robustvit.papers.sets import Set
from robustvit.precision import Precision
from robustvit.threat import Threat
from robustvit.training.schedule import Cosine, Linear, Phase, Schedule, Steps


@dataclass(frozen=True, slots=True)
class Net:
    """A model by timm's name and what its constructor takes."""

    name: str
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scale:
    """What stands for the paper's, by the paper's own; what a mapping lacks stands for itself.

    With `papers_own`, published and given weights are those of the paper, too; otherwise stand-ins are trained and given ones
    left out. `rates` are factors of the learning rate by optimiser. `images` are judged, `attacked` of them by AutoAttack and
    `climbed` of them by analyses of losses (None: all); `precision` is AutoAttack's, whose verdicts are exact in any.
    `iterations`, `restarts` and `queries` bound AutoAttack and APGD, `longest`, `points` and `starts` the analyses; `every` so
    many epochs a checkpoint is kept.

    The device does `flops` operations a second in training and `exact_flops` in judging, and needs `overhead` seconds a call of
    a model at least, `exact_overhead` in judging: guesses, for estimates alone.
    """

    name: str
    about: str
    hardware: str
    seeds: int
    sets: Mapping[str, Set]
    papers_own: bool = False
    one_thread: bool = False
    images: int | None = None
    attacked: int | None = None
    climbed: int | None = None
    models: Mapping[str, Net] = field(default_factory=dict)
    threats: Mapping[Threat, Threat] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    batch_size: int | None = None
    full_precision: bool = False
    precision: Precision = "fp32"
    iterations: int = 100
    restarts: int = 5
    queries: int = 5000
    longest: int = 500
    points: int = 32
    starts: int = 20
    every: int = 10
    flops: float = 1e14
    exact_flops: float = 4e13
    overhead: float = 0.01
    exact_overhead: float = 0.01

    def threat(self, papers: Threat) -> Threat:
        return self.threats.get(papers, papers)

    def steps(self, *papers: int) -> tuple[int, ...]:
        """Numbers of attack steps, none above the longest."""
        return tuple(sorted({min(steps, self.longest) for steps in papers}))

    def set_of(self, data: DataSpec) -> Set:
        return self.sets[data.source]

    def stand_in(self, recipe: Recipe, seed: int, paths: Mapping[str, str]) -> Recipe:
        """The recipe that stands for the paper's; `paths` say where sets lie."""
        epochs = self.epochs.get(recipe.epochs, recipe.epochs)
        pace = epochs / recipe.epochs
        stands = self.set_of(recipe.data)
        model = self._model(recipe, stands)
        net = model.name if model.name == recipe.model.name else f"{model.name} for {recipe.model.name}"
        return replace(
            recipe,
            name=f"{recipe.name}, {net} ({self.name}, seed {seed})",
            model=model,
            data=self.data(recipe.data, paths),
            phases=tuple(self._phase(phase, epochs, pace) for phase in recipe.phases),
            optim=self._optim(recipe.optim, pace),
            batch_size=min(recipe.batch_size, self.batch_size or recipe.batch_size),
            precision="fp32" if self.full_precision else recipe.precision,
            select=self._against(recipe.select),
            seed=seed,
            keep_every=self.every,
        )

    def _model(self, recipe: Recipe, stands: Set) -> ModelSpec:
        net = self.models.get(recipe.model.name, Net(recipe.model.name))
        model = replace(recipe.model, name=net.name, args=recipe.model.args | net.args, init=None)
        return model if stands.spec is None else replace(model, num_classes=stands.classes, channels=stands.channels)

    def data(self, data: DataSpec, paths: Mapping[str, str]) -> DataSpec:
        """The images that stand for the paper's."""
        return self.set_of(data).images(data, paths)

    def _phase(self, phase: Phase, epochs: int, pace: float) -> Phase:
        changed = replace(phase, eps=_paced(phase.eps, pace), augment=_paced(phase.augment, pace), epochs=epochs)
        return replace(changed, objective=self._against(changed.objective))

    def _optim(self, optim: Optim, pace: float) -> Optim:
        rate = optim.lr * self.rates.get(optim.type, 1.0)
        return replace(optim, lr=rate, schedule=_paced(optim.schedule, pace))

    def _against(self, value: Any) -> Any:
        """With every threat in it replaced."""
        if isinstance(value, Threat):
            return self.threat(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes = {f.name: self._against(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return replace(value, **changes)
        return tuple(map(self._against, value)) if isinstance(value, tuple) else value


def _paced(schedule: Schedule, pace: float) -> Schedule:
    """Warm-ups keep their share of the training."""
    if isinstance(schedule, Linear):
        return Linear(schedule.epochs * pace)
    if isinstance(schedule, Cosine):
        return replace(schedule, warmup=schedule.warmup * pace, cooldown=schedule.cooldown * pace)
    if isinstance(schedule, Steps):
        return replace(schedule, at=tuple(epoch * pace for epoch in schedule.at), warmup=schedule.warmup * pace)
    return schedule
