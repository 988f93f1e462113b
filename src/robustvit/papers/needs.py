"""What an artefact needs that the user must give, said all at once and before anything starts."""

from collections.abc import Iterable, Iterator

from robustvit.data.folders import LIST_HOME, robustbench_list
from robustvit.errors import UserError, unknown
from robustvit.papers.artefact import Artefact, Given, Row, Source, Trained, judged_on
from robustvit.papers.grid import Grid
from robustvit.papers.scale import Scale
from robustvit.papers.sets import GENERATED

ROBUSTBENCH = "robustbench"  # the list of ImageNet's 5,000 images, in RobustBench's package or under this name for --data


def left_out(row: Row, grid: Grid) -> str | None:
    """Why a row cannot be made; the others can."""
    return next((reason for source in row.models.values() if (reason := grid.lacks(source))), None)


def check_needs(artefact: Artefact, grid: Grid) -> None:
    """Every set that is missing, where to get it and what to pass; and whether generated images are of the right set."""
    missing = dict(_missing(artefact, grid))
    if missing:
        said = "; ".join(f"{name} ({where}): pass --data {name}=PATH" for name, where in sorted(missing.items()))
        raise UserError(f"{artefact.full_name} at scale {grid.scale.name}: missing data: {said}")
    for source in _sources(artefact):
        if GENERATED in grid.paths and (found := grid.mixed_into(source)):
            found.check_generated(grid.paths[GENERATED])


def _missing(artefact: Artefact, grid: Grid) -> Iterator[tuple[str, str]]:
    for source in _sources(artefact):
        yield from ((found.name, found.where) for found in grid.sets(source) if found.where and found.name not in grid.paths)
        papers = judged_on(source).data
        listed = artefact.images == ROBUSTBENCH and papers.source == "imagenet" and papers.classes is None
        if listed and grid.scale.set_of(papers).spec is None and ROBUSTBENCH not in grid.paths:
            try:
                robustbench_list()
            except UserError:
                yield ROBUSTBENCH, LIST_HOME


def check_names(places: Iterable[str], scale: Scale, artefacts: Iterable[Artefact]) -> None:
    """A name that means nothing is a slip, and what it was to give would be missed much later."""
    given = {each.name for artefact in artefacts for each in givens(artefact)}
    sets = {found.name for found in scale.sets.values() if found.where} | {GENERATED}
    known = sets | given | {ROBUSTBENCH} if scale.papers_own else sets
    for name in places:
        if name in given - known:
            raise UserError(f"{name}: weights that others trained are judged at scale paper alone, not {scale.name}")
        if name not in known:
            raise unknown("name in --data or --given", name, known)


def givens(artefact: Artefact) -> Iterator[Given]:
    """Other people's checkpoints that it can use."""
    for source in _sources(artefact):
        if isinstance(source, Given):
            yield source
        if isinstance(source, Trained) and source.start:
            yield source.start


def names_used(artefact: Artefact, grid: Grid) -> list[str]:
    """Of the places that are given, those that it reads."""
    names = {found.name for source in _sources(artefact) for found in grid.sets(source)}
    names |= {each.name for each in givens(artefact)}
    if any(grid.mixed_into(source) for source in _sources(artefact)):
        names.add(GENERATED)
    if artefact.images == ROBUSTBENCH:
        names.add(ROBUSTBENCH)
    return sorted(names & set(grid.paths))


def _sources(artefact: Artefact) -> list[Source]:
    return [source for row in artefact.everything for source in row.models.values()]
