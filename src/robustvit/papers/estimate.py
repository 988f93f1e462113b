"""What reproducing will cost, said before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapreplace

from robustvit.models import ModelSpec
from robustvit.models.flops import cost_of
from robustvit.papers.artefact import Artefact
from robustvit.papers.grid import Grid, Training, waves
from robustvit.papers.measures import ATTACKS, LOOK
from robustvit.papers.scale import Scale
from robustvit.threat import Threat

IMAGE = {"digits": 8}  # pixels a side, where a set does not say; 32 otherwise


@dataclass(frozen=True, slots=True)
class Work:
    """Hours that the device computes for a job, and hours that the job's calls take however little each computes."""

    computing: float
    calling: float

    @property
    def alone(self) -> float:
        return max(self.computing, self.calling)


def together(works: Sequence[Work], jobs: int) -> float:
    """Hours of so many jobs at a time."""
    # Beside each other only the calls overlap: the device computes for one at a time. So it takes as long as all computing
    # in a row, or as the fullest of the queues in which each job takes what it takes alone; whichever is longer.
    queues = [0.0] * jobs
    for hours in sorted((work.alone for work in works), reverse=True):
        heapreplace(queues, queues[0] + hours)
    return max(sum(work.computing for work in works), max(queues))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Trainings in their order with their hours alone; hours of what is left to train and of judging, by so many `jobs` at
    a time. Analyses are not counted.
    """

    trainings: tuple[tuple[Training, float], ...]
    training: float
    judging: float
    jobs: int

    @property
    def hours(self) -> float:
        return self.training + self.judging

    def lines(self) -> list[str]:
        """Trainings of one recipe and model together."""
        groups: dict[str, list[tuple[Training, float]]] = {}
        for training, hours in self.trainings:
            groups.setdefault(f"{training.recipe.name.partition(' ')[0]}, {training.recipe.model.name}", []).append(
                (training, hours)
            )
        beside = self.jobs > 1
        said = [f"{len(self.trainings)} trainings{', by their times one after the other' if beside else ''}"]
        for name, group in groups.items():
            left = sum(hours for training, hours in group if not training.done)
            done = sum(training.done for training, _ in group)
            said.append(
                f"  {len(group):>3} × {name}: {f'{done} done, ' if done else ''}{_time(left) if left else 'nothing left'}"
            )
        if beside:
            said.append(f"training, {self.jobs} at a time: {_time(self.training) if self.training else 'nothing left'}")
        return [*said, f"judging: {_time(self.judging)}; analyses are not counted", f"in all: {_time(self.hours)}"]


def estimate(artefacts: Sequence[Artefact], grid: Grid, seeds: int | None = None, jobs: int = 1) -> Estimate:
    """By the operations that all this takes, at the rate that the scale guesses."""
    chains, judging = [], 0.0
    for artefact in artefacts:
        judged: list[Work] = []
        for row in artefact.everything:
            for name, source in row.models.items():
                asked = [column for column in artefact.columns if column.of == name and column.ask != LOOK]
                passes = sum(_passes(column.ask, column.threat, grid.scale) for column in asked)
                of_seeds = [chain for seed in range(seeds or grid.scale.seeds) if (chain := grid.chain(source, seed))]
                judged += [_work(chain[-1], grid.scale, passes * (grid.scale.images or 5000)) for chain in of_seeds]
                chains += of_seeds
        judging += together(judged, jobs)
    found = [[(training, training_work(training, grid.scale)) for training in wave] for wave in waves(chains)]
    left = sum(together([work for training, work in wave if not training.done], jobs) for wave in found)
    return Estimate(tuple((training, work.alone) for wave in found for training, work in wave), left, judging, jobs)


def _passes(ask: str, threat: Threat | None, scale: Scale) -> int:
    return ATTACKS[ask](threat, scale).cost() if ask in ATTACKS and threat else 1


def training_work(training: Training, scale: Scale) -> Work:
    recipe = training.recipe
    images = next(found.training for found in scale.sets.values() if found.spec.source == recipe.data.source)
    if recipe.data.classes and recipe.data.classes[:3].isdigit():  # of a thousand
        images = images * int(recipe.data.classes.partition(" ")[0]) // 1000
    return _work(training, scale, images * sum(phase.epochs * phase.objective.cost for phase in recipe.phases))


def _work(training: Training, scale: Scale, passes: int) -> Work:
    recipe = training.recipe
    side = recipe.data.size or IMAGE.get(recipe.data.source, 32)
    operations = 2 * passes * _multiply_adds(recipe.model.name, str(recipe.model.args), recipe.model, side)
    return Work(operations / scale.flops / 3600, scale.overhead * passes / recipe.batch_size / 3600)


_KNOWN: dict[tuple[str, str, int], int] = {}


def _multiply_adds(name: str, args: str, spec: ModelSpec, side: int) -> int:
    key = (name, args, side)
    if key not in _KNOWN:
        _KNOWN[key] = cost_of(replace(spec, init=None), (spec.channels, side, side)).with_attention
    return _KNOWN[key]


def _time(hours: float) -> str:
    return f"about {hours:.1f} h" if hours >= 1 else f"about {60 * hours:.0f} min" if hours >= 1 / 60 else "less than a minute"
