"""What the command line asks for: artefacts by name at a scale, with the places of sets and weights."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from robustvit.crew import Crew
from robustvit.device import one_thread
from robustvit.errors import UserError
from robustvit.papers import ARTEFACTS, find_artefacts
from robustvit.papers.engine import check_sets, reproduce, train_all
from robustvit.papers.estimate import estimate
from robustvit.papers.grid import Grid
from robustvit.papers.page import write_page
from robustvit.papers.result import Result
from robustvit.papers.scales import SCALES, get_scale

RESULTS = {"tiny": Path("runs/reproduced")}  # where a scale's results go unless told; else to results/


def make_grid(scale: str, places: Sequence[str], cache: Path | None, device: str | None) -> Grid:
    return Grid(get_scale(scale), (cache or Path("runs/grid")) / scale, _paths(places), device)


def listing() -> Iterator[str]:
    width = max(map(len, ARTEFACTS))
    for name, artefact in ARTEFACTS.items():
        yield f"{name:<{width}}  {artefact.title}"


def plan(pattern: str, grid: Grid, seeds: int | None = None, jobs: int = 1) -> Iterator[str]:
    """What would be done, and what it costs."""
    artefacts = find_artefacts(pattern)
    yield f"{', '.join(artefact.full_name for artefact in artefacts)}"
    yield f"scale {grid.scale.name}: {grid.scale.about}; on {grid.scale.hardware}"
    for artefact in artefacts:
        try:
            check_sets(artefact, grid)
        except UserError as error:
            yield str(error)
    yield from estimate(artefacts, grid, seeds, jobs).lines()


def run(pattern: str, grid: Grid, results: Path | None, seeds: int | None = None, crew: Crew | None = None) -> Iterator[Result]:
    """One after the other; what is trained or judged already is not done again.

    A crew of several trains the models of all artefacts first: the more there are, the fewer of it are idle.
    """
    artefacts, out = find_artefacts(pattern), results or RESULTS.get(grid.scale.name, Path("results"))
    for artefact in artefacts:
        check_sets(artefact, grid)
        _check_scale(artefact.full_name, grid, out)
    with one_thread() if grid.scale.one_thread else nullcontext(), crew or Crew() as crew:
        if crew.jobs > 1 and len(artefacts) > 1:
            train_all(artefacts, grid, seeds, crew)
        for artefact in artefacts:
            yield reproduce(artefact, grid, out, seeds, crew)


def page(results: Path | None, scale: str) -> Path:
    return write_page(results or RESULTS.get(scale, Path("results")), list(ARTEFACTS))


def _check_scale(name: str, grid: Grid, results: Path) -> None:
    """A result must not be lost to one that says less."""
    path = results / f"{name}.json"
    if path.exists():
        held, order = Result.load(path).scale, list(SCALES)
        if order.index(held) > order.index(grid.scale.name):
            raise UserError(f"out: {path} is of scale {held}, which says more than {grid.scale.name}; pass another --out")


def _paths(places: Sequence[str]) -> dict[str, str]:
    paths = {}
    for place in places:
        name, equals, path = place.partition("=")
        if not equals:
            raise UserError(f"{place!r}: accepted: NAME=PATH, as in cifar10=cifar10.npz")
        if not Path(path).exists():
            raise UserError(f"{name}: no file or folder {path!r}")
        paths[name] = path
    return paths
