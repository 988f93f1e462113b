"""What the command line asks for: artefacts by name at a scale, with the places of sets and weights."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from robustvit.crew import Crew
from robustvit.device import one_thread
from robustvit.errors import UserError
from robustvit.papers import ARTEFACTS, find_artefacts
from robustvit.papers.engine import reproduce, train_all
from robustvit.papers.estimate import estimate
from robustvit.papers.given import ready
from robustvit.papers.grid import Grid
from robustvit.papers.needs import check_names, check_needs, givens
from robustvit.papers.page import write_page
from robustvit.papers.result import Result
from robustvit.papers.scale import Scale
from robustvit.papers.scales import SCALES, get_scale

PUBLISHED = Path("results")  # where results go unless told, but for those of a scale that proves nothing
RESULTS = {"tiny": Path("runs/reproduced")}


def make_grid(scale: str, places: Sequence[str], cache: Path | None, device: str | None) -> Grid:
    """Weights that others published become checkpoints now, before anything is trained."""
    found, paths = get_scale(scale), _paths(places)
    check_names(paths, found, ARTEFACTS.values())
    folder = (cache or Path("runs/grid")) / scale
    published = {each.name: each for artefact in ARTEFACTS.values() for each in givens(artefact)}
    paths |= {name: str(ready(published[name], Path(paths[name]), folder / "given")) for name in published.keys() & paths}
    return Grid(found, folder, paths, device)


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
            check_needs(artefact, grid)
        except UserError as error:
            yield str(error)
    yield from estimate(artefacts, grid, _checked(seeds), jobs).lines()


def run(pattern: str, grid: Grid, results: Path | None, seeds: int | None = None, crew: Crew | None = None) -> Iterator[Result]:
    """One after the other; what is trained or judged already is not done again.

    A crew of several trains the models of all artefacts first: the more there are, the fewer of it are idle.
    """
    artefacts, out = find_artefacts(pattern), results or RESULTS.get(grid.scale.name, PUBLISHED)
    for artefact in artefacts:
        check_needs(artefact, grid)
        _check_held(artefact.full_name, grid.scale, _checked(seeds), out)
    with one_thread() if grid.scale.one_thread else nullcontext(), crew or Crew() as crew:
        if crew.jobs > 1 and len(artefacts) > 1:
            train_all(artefacts, grid, seeds, crew)
        for artefact in artefacts:
            yield reproduce(artefact, grid, out, seeds, crew)


def page(results: Path | None, scale: str | None) -> Path:
    """Of the folder that is said, or the scale's; without either of what is published, if anything is."""
    if results is None and scale is None:
        results = PUBLISHED if any(PUBLISHED.glob("*/*.json")) else RESULTS["tiny"]
    return write_page(results or RESULTS.get(scale or "", PUBLISHED), list(ARTEFACTS))


def _checked(seeds: int | None) -> int | None:
    if seeds is not None and seeds < 1:
        raise UserError(f"--seeds: {seeds}; accepted: 1 or more")
    return seeds


def _check_held(name: str, scale: Scale, seeds: int | None, results: Path) -> None:
    """A result must not be lost to one that says less: of a smaller scale, or of fewer seeds."""
    path = results / f"{name}.json"
    if not path.exists():
        return
    held, order = Result.load(path), list(SCALES)
    if order.index(held.scale) > order.index(scale.name):
        raise UserError(f"out: {path} is of scale {held.scale}, which says more than {scale.name}; pass another --out")
    if held.scale == scale.name and len(held.seeds) > (seeds or scale.seeds):
        raise UserError(
            f"--seeds: {seeds or scale.seeds}, but {path} has {len(held.seeds)}; accepted: as many or more, or another --out"
        )


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
