"""What reproducing will cost, said before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from robustvit.models import ModelSpec
from robustvit.models.flops import cost_of
from robustvit.papers.artefact import Artefact
from robustvit.papers.grid import Grid, Training
from robustvit.papers.measures import ATTACKS, LOOK
from robustvit.papers.scale import Scale
from robustvit.threat import Threat

IMAGE = {"digits": 8}  # pixels a side, where a set does not say; 32 otherwise


@dataclass(frozen=True, slots=True)
class Estimate:
    """Trainings in their order with their hours, and the hours of judging; analyses are not counted."""

    trainings: tuple[tuple[Training, float], ...]
    judging: float

    @property
    def hours(self) -> float:
        return self.judging + sum(hours for training, hours in self.trainings if not training.done)

    def lines(self) -> list[str]:
        """Trainings of one recipe and model together."""
        groups: dict[str, list[tuple[Training, float]]] = {}
        for training, hours in self.trainings:
            groups.setdefault(f"{training.recipe.name.partition(' ')[0]}, {training.recipe.model.name}", []).append(
                (training, hours)
            )
        said = [f"{len(self.trainings)} trainings"]
        for name, group in groups.items():
            left = sum(hours for training, hours in group if not training.done)
            done = sum(training.done for training, _ in group)
            said.append(
                f"  {len(group):>3} × {name}: {f'{done} done, ' if done else ''}{_time(left) if left else 'nothing left'}"
            )
        return [*said, f"judging: {_time(self.judging)}; analyses are not counted", f"in all: {_time(self.hours)}"]


def estimate(artefacts: Sequence[Artefact], grid: Grid, seeds: int | None = None) -> Estimate:
    """By the operations that all this takes, at the rate that the scale guesses."""
    trainings: dict[str, tuple[Training, float]] = {}
    judging = 0.0
    for artefact in artefacts:
        for row in artefact.everything:
            for name, source in row.models.items():
                for seed in range(seeds or grid.scale.seeds):
                    chain = grid.chain(source, seed)
                    for training in chain:
                        trainings.setdefault(training.folder.name, (training, training_hours(training, grid.scale)))
                    asked = [column for column in artefact.columns if column.of == name and column.ask != LOOK]
                    if chain:
                        passes = sum(_passes(column.ask, column.threat, grid.scale) for column in asked)
                        judging += _hours(chain[-1], grid.scale, passes * (grid.scale.images or 5000))
    return Estimate(tuple(trainings.values()), judging)


def _passes(ask: str, threat: Threat | None, scale: Scale) -> int:
    return ATTACKS[ask](threat, scale).cost() if ask in ATTACKS and threat else 1


def training_hours(training: Training, scale: Scale) -> float:
    recipe = training.recipe
    images = next(found.training for found in scale.sets.values() if found.spec.source == recipe.data.source)
    if recipe.data.classes and recipe.data.classes[:3].isdigit():  # of a thousand
        images = images * int(recipe.data.classes.partition(" ")[0]) // 1000
    return _hours(training, scale, images * sum(phase.epochs * phase.objective.cost for phase in recipe.phases))


def _hours(training: Training, scale: Scale, passes: int) -> float:
    recipe = training.recipe
    side = recipe.data.size or IMAGE.get(recipe.data.source, 32)
    operations = 2 * passes * _multiply_adds(recipe.model.name, str(recipe.model.args), recipe.model, side)
    return max(operations / scale.flops, scale.overhead * passes / recipe.batch_size) / 3600


_KNOWN: dict[tuple[str, str, int], int] = {}


def _multiply_adds(name: str, args: str, spec: ModelSpec, side: int) -> int:
    key = (name, args, side)
    if key not in _KNOWN:
        _KNOWN[key] = cost_of(replace(spec, init=None), (spec.channels, side, side)).with_attention
    return _KNOWN[key]


def _time(hours: float) -> str:
    return f"about {hours:.1f} h" if hours >= 1 else f"about {60 * hours:.0f} min" if hours >= 1 / 60 else "less than a minute"
