"""reproduce(): an artefact at a scale becomes a Result. One engine for all papers."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from robustvit.analysis import Finding, Subject
from robustvit.config import to_data
from robustvit.crew import Crew
from robustvit.data import DataSpec
from robustvit.device import find_device
from robustvit.errors import UserError
from robustvit.evaluation.run import versions
from robustvit.models import fingerprint, load_model
from robustvit.papers.artefact import Artefact, Cell, Claim, Look, Row, Source, judged_on
from robustvit.papers.estimate import training_work
from robustvit.papers.figures import draw
from robustvit.papers.grid import Grid, Training, waves
from robustvit.papers.measures import LOOK, Asked, Measured, Question, measure_all
from robustvit.papers.result import Entry, Line, Ordering, Result
from robustvit.papers.scale import Set
from robustvit.papers.verdict import Numbers, Verdict, judge, overall

Cells = Mapping[tuple[str, str], Numbers]  # by row and column


def reproduce(artefact: Artefact, grid: Grid, results: Path, seeds: int | None = None, crew: Crew | None = None) -> Result:
    """Train what is missing, ask what the columns ask, judge the claims, and write the result with its figures."""
    check_sets(artefact, grid)
    job, crew = _job(artefact, grid, seeds), crew or Crew()
    started = time.monotonic()
    train_all([artefact], grid, seeds, crew)
    cells = job.measured(crew) | job.looked()
    result = job.result(cells, time.monotonic() - started)
    result = replace(result, figures=draw(artefact, result, job.findings[:1], job.logs(), results))
    result.save(results)
    return result


def train_all(artefacts: Sequence[Artefact], grid: Grid, seeds: int | None, crew: Crew) -> None:
    """Every model that is missing, each once, and before those that start from it; the longest first, for an even end."""
    for wave in waves([chain for artefact in artefacts for chain in _job(artefact, grid, seeds).chains()]):
        missing = [training for training in wave if not training.done]
        if crew.jobs > 1:
            missing.sort(key=lambda training: -training_work(training, grid.scale).alone)
        crew.all(grid.train, missing, "models trained")


def check_sets(artefact: Artefact, grid: Grid) -> None:
    """All that is missing at once: which set, where to get it and what to pass."""
    missing = {found.name: found for found in needed_sets(artefact, grid) if found.where and found.name not in grid.paths}
    if missing:
        said = "; ".join(f"{name} ({found.where}): pass --data {name}=PATH" for name, found in sorted(missing.items()))
        raise UserError(f"{artefact.full_name} at scale {grid.scale.name}: missing data: {said}")


def needed_sets(artefact: Artefact, grid: Grid) -> list[Set]:
    names = {name for row in artefact.everything for source in row.models.values() for name in grid.sets(source)}
    return [found for found in {s.name: s for s in grid.scale.sets.values()}.values() if found.name in names]


def _job(artefact: Artefact, grid: Grid, seeds: int | None) -> "_Job":
    return _Job(artefact, grid, tuple(range(seeds or grid.scale.seeds)))


@dataclass
class _Job:
    artefact: Artefact
    grid: Grid
    seeds: tuple[int, ...]
    findings: list[Finding] = field(default_factory=list)  # of the look, a seed each
    warnings: set[str] = field(default_factory=set)

    def rows(self) -> list[Row]:
        """Those with something to do."""
        return [row for row in self.artefact.everything if self._left_out(row) is None]

    def _left_out(self, row: Row) -> str | None:
        for source in row.models.values():
            if given := self.grid.lacks(source):
                return f"weights that others trained ({given.where}): pass --given {given.name}=PATH"
            if images := self.grid.lacks_images(source):
                return f"generated images: pass --data {images}=PATH"
        return None

    def chains(self) -> list[tuple[Training, ...]]:
        """Of every model of the rows that are not left out."""
        return [self.grid.chain(source, seed) for row in self.rows() for source in row.models.values() for seed in self.seeds]

    def measured(self, crew: Crew) -> dict[tuple[str, str], Numbers]:
        """Cells by what was measured of their models, once a seed; all that concerns the folder of one model is one job."""
        cells = self._questions()
        folders: dict[Path, list[Question]] = {}
        for questions in cells.values():
            for question in questions:
                folders.setdefault(question.asked.outcomes, []).append(question)
        found = crew.all(measure_all, list(folders.values()), "models judged")
        self.warnings.update(warning for of_folder in found for measured in of_folder for warning in measured.warnings)
        # A folder's answers come in the order of its questions, which is that of the cells.
        answers = {folder: iter(of_folder) for folder, of_folder in zip(folders, found, strict=True)}
        return {cell: _numbers([next(answers[each.asked.outcomes]) for each in cells[cell]]) for cell in cells}

    def _questions(self) -> dict[tuple[str, str], list[Question]]:
        """Of each cell that is not the look's, one a seed."""
        cells = {}
        for row in self.artefact.rows:
            for column in self.artefact.columns:
                if column.ask != LOOK and column.of in row.models and self._left_out(row) is None:
                    source = row.models[column.of]
                    asked = [self._asked(source, seed) for seed in self._seeds(source)]
                    cells[row.label, column.name] = [Question(column.ask, each, column.threat) for each in asked]
        return cells

    def looked(self) -> dict[tuple[str, str], Numbers]:
        """What the analysis read from all rows' models, once a seed."""
        look = self.artefact.look
        if look is None:
            return {}
        rows = self.rows()
        if not rows:
            raise UserError(f"{self.artefact.full_name}: no model of it is there: {self._left_out(self.artefact.rows[0])}")
        self.findings = [self._find(look, rows, seed) for seed in self.seeds]
        cells = {}
        for column in self.artefact.columns:
            if column.ask == LOOK:
                values = [look.read(finding, column.name) for finding in self.findings]
                for label in {label for of_seed in values for label in of_seed}:
                    cells[label, column.name] = _numbers([_of_look(of_seed[label]) for of_seed in values])
        return cells

    def _find(self, look: Look, rows: Sequence[Row], seed: int) -> Finding:
        subjects = [subject for row in rows for subject in self._subjects(row, seed, look.epochs)]
        model = subjects[0].model
        spec = self._data(rows[0].models["model"]).fitted(model.input_size, model.crop)
        images, _ = spec.load("test").first(self.grid.scale.images)
        return look.make(self.grid.scale)(subjects, images)

    def _subjects(self, row: Row, seed: int, epochs: bool) -> list[Subject]:
        source, device = row.models["model"], find_device(self.grid.device)
        chain = self.grid.chain(source, seed)
        if not epochs or not chain:
            model = load_model(self._model(source, seed))
            return [Subject(row.label, model.to(device))]
        subjects = []
        for path in chain[-1].checkpoints():
            subjects.append(Subject(row.label, load_model(path).to(device), float(path.stem.partition("-")[2])))
        return subjects

    def _seeds(self, source: Source) -> tuple[int, ...]:
        """Weights of others are there once."""
        return self.seeds if self.grid.chain(source, 0) else self.seeds[:1]

    def _model(self, source: Source, seed: int) -> str:
        model = self.grid.model(source, seed)
        assert model is not None, source  # rows without are left out
        return model

    def _data(self, source: Source) -> DataSpec:
        data = self.grid.scale.data(judged_on(source).data, self.grid.paths)
        robustbench = self.artefact.images == "robustbench" and data.source == "imagenet" and data.classes is None
        return replace(data, subset="robustbench") if robustbench else data

    def _asked(self, source: Source, seed: int) -> Asked:
        model, scale = self._model(source, seed), self.grid.scale
        chain = self.grid.chain(source, seed)
        kept = chain[-1].folder if chain else self.grid.folder / f"judged-{Path(model).stem}"
        return Asked(model, self._data(source), kept, scale, self.grid.device)

    def logs(self) -> dict[str, Path]:
        """Folders of the first seed's runs, by row."""
        chains = {row.label: self.grid.chain(row.models["model"], 0) for row in self.rows() if "model" in row.models}
        return {label: chain[-1].folder for label, chain in chains.items() if chain}

    def result(self, cells: Cells, seconds: float) -> Result:
        artefact, scale = self.artefact, self.grid.scale
        orderings = tuple(Ordering(str(claim), *self._judged(claim, cells)) for claim in artefact.claims)
        verdict = overall([Verdict(ordering.verdict, ordering.why) for ordering in orderings])
        columns = [
            {
                "name": f"{column.name} [{column.unit}]" if column.unit else column.name,
                "ask": column.ask,
                "threat": to_data(scale.threat(column.threat)) if column.threat else None,
                "threat_of_paper": to_data(column.threat) if column.threat else None,
            }
            for column in artefact.columns
        ]
        found = tuple(line for finding in self.findings[:1] for line in finding.data["summary"])
        provenance = {
            "command": f"robustvit reproduce {artefact.full_name} --scale {scale.name}",
            "seconds": round(seconds, 1),
            "warnings": sorted(self.warnings),
            "versions": versions(find_device(self.grid.device)),
        }
        return Result(
            artefact.full_name,
            artefact.title,
            scale.name,
            scale.about,
            self.seeds,
            tuple(columns),
            tuple(self._line(row, cells) for row in artefact.rows),
            orderings,
            {"text": verdict.text, "why": verdict.why},
            artefact.notes,
            provenance,
            found,
        )

    def _judged(self, claim: Claim, cells: Cells) -> tuple[str, str]:
        larger, smaller = (cells.get((cell.row, cell.column)) for cell in (claim.larger, claim.smaller))
        verdict = judge(larger, smaller, training=self._source(claim.larger) != self._source(claim.smaller))
        return verdict.text, verdict.why

    def _source(self, cell: Cell) -> Source:
        return self.artefact.row(cell.row).models[self.artefact.column(cell.column).of]

    def _line(self, row: Row, cells: Cells) -> Line:
        entries = []
        for column, paper in zip(self.artefact.columns, row.paper, strict=True):
            numbers = cells.get((row.label, column.name), Numbers(()))
            n = len(numbers.images[0]) if numbers.images else None
            entries.append(Entry(paper, tuple(round(value, 4) for value in numbers.values), n))
        left_out = self._left_out(row)
        models = {} if left_out else {name: self._origin(source) for name, source in row.models.items()}
        return Line(row.label, tuple(entries), models, left_out)

    def _origin(self, source: Source) -> dict[str, Any]:
        """Where a model comes from: recipe hashes of its chain and its fingerprint, for each seed."""
        origins = {}
        for seed in self._seeds(source):
            chain = self.grid.chain(source, seed)
            recipes = [replace(run.recipe, model=replace(run.recipe.model, init=None)) for run in chain]
            model = self._model(source, seed)
            origins[str(seed)] = {
                "recipes": [f"{recipe.name} {recipe.hash()}" for recipe in recipes] or [model],
                "fingerprint": fingerprint(load_model(model)),
            }
        return origins


def _numbers(per_seed: Sequence[Measured]) -> Numbers:
    images = tuple(measured.correct for measured in per_seed if measured.correct is not None)
    return Numbers(tuple(measured.value for measured in per_seed), images)


def _of_look(value: Any) -> Measured:
    """A number, or one an image: shares in percent where images are right or wrong."""
    if not isinstance(value, np.ndarray):
        return Measured(float(value))
    return Measured(float(value.mean()) * (100 if value.dtype == bool else 1), value)
