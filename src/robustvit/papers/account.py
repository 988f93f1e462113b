"""account(): what was measured, said so that each number can be made again: models, recipes, images, attacks, command."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from robustvit.analysis import Finding
from robustvit.config import Recipe, to_data
from robustvit.device import find_device
from robustvit.models import fingerprint, load_model
from robustvit.papers.artefact import Column, Row, Source, judged_on
from robustvit.papers.grid import Training
from robustvit.papers.job import Job
from robustvit.papers.measures import Measured, cut_short
from robustvit.papers.needs import givens, left_out, names_used
from robustvit.papers.result import Entry, Line, Result, Table
from robustvit.report.sections import sections
from robustvit.versions import versions

Cells = Mapping[tuple[str, str], Sequence[Measured]]


def account(job: Job, cells: Cells, findings: Sequence[Finding], jobs: int, seconds: float) -> Result:
    """The result but for its verdicts, which are the engine's."""
    artefact, scale = job.artefact, job.grid.scale
    return Result(
        artefact.full_name,
        artefact.title,
        scale.name,
        scale.about,
        job.seeds,
        tuple(_column(job, column, cells) for column in artefact.columns),
        tuple(_line(job, row, cells) for row in artefact.rows),
        (),
        {},
        artefact.notes,
        {
            "command": command(job, jobs),
            "seconds": round(seconds, 1),
            "warnings": sorted({warning for cell in cells.values() for each in cell for warning in each.warnings}),
            "versions": versions(find_device(job.grid.device)),
        },
        _stands(job),
        _recipes(job),
        _analysis(findings),
        tuple(line for finding in findings[:1] for line in finding.data["summary"]),
        tuple(_tables(findings)),
    )


def command(job: Job, jobs: int) -> str:
    """With every option that decides the result; where a file lies on this machine decides nothing."""
    grid, given = job.grid, {each.name for each in givens(job.artefact)}
    parts = [f"robustvit reproduce {job.artefact.full_name} --scale {grid.scale.name}"]
    parts += [f"--{'given' if name in given else 'data'} {name}=PATH" for name in names_used(job.artefact, grid)]
    parts += [f"--seeds {len(job.seeds)}"] + ([f"--jobs {jobs}"] if jobs > 1 else [])
    return " ".join(parts + ([f"--device {grid.device}"] if grid.device else []))


def _column(job: Job, column: Column, cells: Cells) -> dict[str, Any]:
    scale = job.grid.scale
    cut = cut_short(column.by or column.ask, scale)
    name = f"{column.name}, cut short" if cut else column.name
    ours = column.threat and scale.threat(column.threat)
    attacks = {each.attack for (_, of), cell in cells.items() if of == column.name for each in cell if each.attack}
    return {
        "name": f"{name} [{column.unit}]" if column.unit else name,
        "ask": column.ask,
        "of": column.of,
        "attack": next(iter(attacks), None) if ours else None,
        "cut_short": cut,
        "threat": to_data(ours.scaled(column.factor)) if ours else None,
        "threat_of_paper": to_data(column.threat.scaled(column.factor)) if column.threat else None,
    }


def _line(job: Job, row: Row, cells: Cells) -> Line:
    entries = []
    for column, paper in zip(job.artefact.columns, row.paper, strict=True):
        measured = cells.get((row.label, column.name), ())
        n = next((each.data["n"] for each in measured if "n" in each.data), None)
        entries.append(Entry(paper, tuple(round(each.value, 4) for each in measured), n))
    reason = left_out(row, job.grid)
    models = {} if reason else {name: _model(job, row, name, source, cells) for name, source in row.models.items()}
    return Line(row.label, tuple(entries), models, reason)


def _model(job: Job, row: Row, name: str, source: Source, cells: Cells) -> dict[str, Any]:
    """What a model is, what it was judged on, and where it comes from: its recipes, from the first on, and weights by seed."""
    chains = {seed: job.grid.chain(source, seed) for seed in job.seeds_of(source)}
    of_model = [column.name for column in job.artefact.columns if column.of == name]
    judged = [dict(each.data) for column in of_model for each in cells.get((row.label, column), ())[:1] if each.data]
    return {
        "is": _net(chains[0][-1].recipe) if chains[0] else job.model(source, 0),
        "judged": [each for number, each in enumerate(judged) if each not in judged[:number]],
        "seeds": {
            str(seed): {
                "recipes": [_plain(training).hash() for training in chain],
                "fingerprint": fingerprint(load_model(job.model(source, seed))),
            }
            for seed, chain in chains.items()
        },
    }


def _net(recipe: Recipe) -> str:
    told = ", ".join(f"{name}={value}" for name, value in recipe.model.args.items())
    return f"{recipe.model.name}({told})" if told else recipe.model.name


def _stands(job: Job) -> dict[str, dict[str, str]]:
    """The scale's models and sets by the paper's, where they differ."""
    scale, models, sets = job.grid.scale, {}, {}
    for source in (source for row in job.rows() for source in row.models.values()):
        papers = judged_on(source)
        found = scale.set_of(papers.data)
        if found.spec is not None:
            sets[papers.data.source] = f"{found.name} ({found.classes} classes, {found.side}×{found.side})"
        if papers.model.name in scale.models:
            models[papers.model.name] = _net(scale.stand_in(papers, 0, job.grid.paths))
    return {"models": models, "images": sets}


def _plain(training: Training) -> Recipe:
    """Without the folder that it started from, which is this machine's."""
    return replace(training.recipe, model=replace(training.recipe.model, init=None))


def _recipes(job: Job) -> dict[str, dict[str, Any]]:
    """Every recipe once, by its hash: the first whole, the others by what they have other than the first."""
    found: dict[str, dict[str, Any]] = {}
    for training in (training for chain in job.chains() for training in chain):
        recipe = _plain(training)
        data = to_data(recipe, identity=True)
        if data["data"]["generated"]:
            data["data"]["generated"]["path"] = "PATH"  # it must have one, and where that is decides nothing
        found.setdefault(recipe.hash(), {"name": recipe.name, **data})
    first = next(iter(found.values()), {})
    changes = [{name: value for name, value in data.items() if first[name] != value} for data in found.values()]
    return dict(zip(found, [first, *changes[1:]], strict=True)) if found else {}


def _analysis(findings: Sequence[Finding]) -> dict[str, Any] | None:
    if not findings:
        return None
    about = findings[0].provenance
    return {"name": findings[0].name, "parameters": about["parameters"], "images": about["data"]}


def _tables(findings: Sequence[Finding]) -> list[Table]:
    found = []
    for seed, finding in enumerate(findings):
        (section,) = sections([finding])
        if section.table:
            found.append(Table(f"{section.title} (seed {seed})", tuple(map(tuple, section.table))))
    return found
