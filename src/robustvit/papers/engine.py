"""reproduce(): an artefact at a scale becomes a Result. One engine for all papers."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from robustvit.analysis import Finding
from robustvit.crew import Crew
from robustvit.papers.account import Cells, account
from robustvit.papers.artefact import Artefact, Cell, Claim, Limit, Look, Source
from robustvit.papers.figures import draw
from robustvit.papers.grid import Grid, waves
from robustvit.papers.job import Job, Place
from robustvit.papers.looking import look_at, save_small
from robustvit.papers.measures import LOOK, Measured, measure_all
from robustvit.papers.needs import check_needs
from robustvit.papers.result import Ordering, Result
from robustvit.papers.verdict import Numbers, Verdict, judge, overall, within
from robustvit.papers.work import training_work


def reproduce(artefact: Artefact, grid: Grid, results: Path, seeds: int | None = None, crew: Crew | None = None) -> Result:
    """Train what is missing, ask what the columns ask, judge the claims, and write the result with its figures."""
    check_needs(artefact, grid)
    job, crew = Job(artefact, grid, seeds), crew or Crew()
    started = time.monotonic()
    train_all([artefact], grid, seeds, crew)
    measured = _measured(job, crew)
    findings = look_at([job.inquiries(artefact.look, seed) for seed in job.seeds], crew) if artefact.look and job.rows() else []
    cells = measured | _looked(job, findings)
    result = _with_verdicts(job, account(job, cells, findings, crew.jobs, time.monotonic() - started), cells)
    result = replace(result, figures=draw(artefact, result, findings[:1], job.logs(), results))
    result.path(results).unlink(missing_ok=True)  # a result that is there has its findings beside it
    shutil.rmtree(result.folder(results), ignore_errors=True)
    for seed, finding in enumerate(findings):
        save_small(finding, result.folder(results) / f"seed-{seed}")
    result.save(results)
    return result


def train_all(artefacts: Sequence[Artefact], grid: Grid, seeds: int | None, crew: Crew) -> None:
    """Every model that is missing, each once, and before those that start from it; the longest first, for an even end."""
    for wave in waves([chain for artefact in artefacts for chain in Job(artefact, grid, seeds).chains()]):
        missing = [training for training in wave if not training.done]
        if crew.jobs > 1:
            missing.sort(key=lambda training: -training_work(training, grid.scale).alone)
        crew.all(grid.train, missing, "models trained")


def _measured(job: Job, crew: Crew) -> dict[Place, list[Measured]]:
    """Cells by what was measured of their models, once a seed; all that concerns the folder of one model is one job."""
    cells, folders = job.questions(), job.folders()
    found = crew.all(measure_all, list(folders.values()), "models judged")
    # A folder's answers come in the order of its questions, which is that of the cells.
    answers = {folder: iter(of_folder) for folder, of_folder in zip(folders, found, strict=True)}
    return {cell: [next(answers[each.asked.outcomes]) for each in cells[cell]] for cell in cells}


def _looked(job: Job, findings: Sequence[Finding]) -> dict[Place, list[Measured]]:
    """Cells by what was read from the analysis, once a seed."""
    look, cells = job.artefact.look, {}
    for column in (column for column in job.artefact.columns if column.ask == LOOK and look and findings):
        assert look is not None
        values = [(finding, look.read(finding, column.name)) for finding in findings]
        for row in job.rows():
            # Weights of others are in every seed's finding, and one value all the same.
            own = values[: len(job.seeds_of(row.models["model"]))]
            there = [(finding, of_seed[row.label]) for finding, of_seed in own if row.label in of_seed]
            if found := [_of_look(look, row.label, *each) for each in there]:
                cells[row.label, column.name] = found
    return cells


def _of_look(look: Look, label: str, finding: Finding, value: Any) -> Measured:
    """A number, or one an image: shares in percent where images are right or wrong."""
    about, attack = finding.provenance["data"], finding.data.get("attack")
    n = look.first or next(
        (row["n"] for row in finding.data["models"] if row["model"] == label and "n" in row), about["images"]
    )
    data = {"name": about["name"], "digest": about["digest"], "n": n}
    if not isinstance(value, np.ndarray):
        return Measured(float(value), None, data, attack)
    return Measured(float(value.mean()) * (100 if value.dtype == bool else 1), value, data, attack)


def _with_verdicts(job: Job, result: Result, cells: Cells) -> Result:
    numbers = {place: _numbers(of_seeds) for place, of_seeds in cells.items()}
    claims = job.artefact.claims
    verdicts = [_judged(job.artefact, claim, numbers) for claim in claims]
    orderings = tuple(Ordering(str(each), verdict.text, verdict.why) for each, verdict in zip(claims, verdicts, strict=True))
    return replace(result, orderings=orderings, verdict=asdict(overall(verdicts)))


def _judged(artefact: Artefact, claim: Claim | Limit, numbers: Mapping[Place, Numbers]) -> Verdict:
    def of(cell: Cell) -> Numbers | None:
        return numbers.get((cell.row, cell.column))

    def source(cell: Cell) -> Source | None:
        return artefact.row(cell.row).models.get(artefact.column(cell.column).of)

    if isinstance(claim, Limit):
        return within(of(claim.cell), claim.at_least, claim.at_most)
    return judge(of(claim.larger), of(claim.smaller), training=source(claim.larger) != source(claim.smaller))


def _numbers(per_seed: Sequence[Measured]) -> Numbers:
    images = tuple(measured.correct for measured in per_seed if measured.correct is not None)
    return Numbers(tuple(measured.value for measured in per_seed), images)
