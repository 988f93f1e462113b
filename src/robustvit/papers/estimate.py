"""What reproducing will cost, said before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass

from robustvit.papers.artefact import Artefact
from robustvit.papers.grid import Grid, Training, waves
from robustvit.papers.job import Job
from robustvit.papers.work import judging_work, looking_work, together, training_work


@dataclass(frozen=True, slots=True)
class Estimate:
    """Trainings in their order with their hours alone; hours of what is left to train, of judging and of analyses, by so many
    `jobs` at a time.
    """

    trainings: tuple[tuple[Training, float], ...]
    training: float
    judging: float
    looking: float
    jobs: int

    @property
    def hours(self) -> float:
        return self.training + self.judging + self.looking

    def lines(self) -> list[str]:
        """Trainings of one recipe and model together."""
        groups: dict[str, list[tuple[Training, float]]] = {}
        for training, hours in self.trainings:
            name = training.recipe.name.rpartition(" (")[0]  # without scale and seed
            groups.setdefault(name, []).append((training, hours))
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
        said.append(f"judging: {_time(self.judging)}" + (f"; analyses: {_time(self.looking)}" if self.looking else ""))
        return [*said, f"in all: {_time(self.hours)}"]


def estimate(artefacts: Sequence[Artefact], grid: Grid, seeds: int | None = None, jobs: int = 1) -> Estimate:
    """By the operations that all this takes, at the rate that the scale guesses."""
    chains, judging, looking = [], 0.0, 0.0
    for artefact in artefacts:
        job = Job(artefact, grid, seeds)
        chains += job.chains()
        judging += together([judging_work(of_folder) for of_folder in job.folders().values()], jobs)
        if artefact.look:
            asked = [inquiry for seed in job.seeds for inquiry in job.inquiries(artefact.look, seed)]
            looking += together([looking_work(inquiry, grid.scale) for inquiry in asked], jobs)
    found = [[(training, training_work(training, grid.scale)) for training in wave] for wave in waves(chains)]
    left = sum(together([work for training, work in wave if not training.done], jobs) for wave in found)
    return Estimate(tuple((training, work.alone) for wave in found for training, work in wave), left, judging, looking, jobs)


def _time(hours: float) -> str:
    return f"about {hours:.1f} h" if hours >= 1 else f"about {60 * hours:.0f} min" if hours >= 1 / 60 else "less than a minute"
