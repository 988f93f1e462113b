"""Artefact: a table or figure of a paper as plain data. What the paper says stands beside how ours is made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from robustvit.analysis import Analysis, Finding
from robustvit.config import Recipe
from robustvit.models import ModelSpec
from robustvit.threat import Threat

if TYPE_CHECKING:
    from robustvit.papers.scale import Scale


@dataclass(frozen=True, slots=True)
class Given:
    """Other people's checkpoint: judged only if a user has it, and on the paper's own images, as `like` says which.

    The weights are of `model`; `renamed` are regular expressions for what they call its parts, and what we call them.
    """

    name: str
    where: str
    like: Recipe
    model: ModelSpec
    renamed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Trained:
    """A model of the paper's recipes, each starting from what the one before made; `start` comes before the first."""

    recipes: tuple[Recipe, ...]
    start: Given | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """A model by timm's name, with its published weights; below the paper's scale one that `like` trains stands for it."""

    timm: str
    like: Recipe


Source = Trained | Published | Given


def trained(*recipes: Recipe, start: Given | None = None) -> Trained:
    return Trained(recipes, start)


def judged_on(source: Source) -> Recipe:
    """The recipe whose test images a model is judged on."""
    return source.recipes[-1] if isinstance(source, Trained) else source.like


@dataclass(frozen=True, slots=True)
class Column:
    """A number of each row: `ask` is one of MEASURES, or what the artefact's look reads.

    It is under `factor` times the threat; a look says `by` which of the measures' attacks, if it uses one. `of` says which of a
    row's models is asked, where it has several; `unit` is shown after the name.
    """

    name: str
    ask: str
    threat: Threat | None = None
    of: str = "model"
    unit: str = "%"
    factor: float = 1.0
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: the paper's values by column (None: collapsed, or not reported) and its models by name.

    Where it has no model for a column, neither the paper nor we have a value.
    """

    label: str
    paper: tuple[float | None, ...]
    models: Mapping[str, Source]


def row(label: str, paper: tuple[float | None, ...], model: Source | None = None, **models: Source) -> Row:
    """A row with one model, or several by name."""
    return Row(label, paper, ({"model": model} if model else {}) | models)


@dataclass(frozen=True, slots=True)
class Cell:
    row: str
    column: str

    def __str__(self) -> str:
        return f"{self.row} [{self.column}]"


@dataclass(frozen=True, slots=True)
class Claim:
    """The paper's ordering of two numbers: the first is the larger one."""

    larger: Cell
    smaller: Cell

    def __str__(self) -> str:
        one, other = self.larger, self.smaller
        if one.column == other.column:
            return f"{one.column}: {one.row} above {other.row}"
        return f"{one.row}: {one.column} above {other.column}" if one.row == other.row else f"{one} above {other}"


@dataclass(frozen=True, slots=True)
class Limit:
    """What the paper says of one number: that it is at least, or at most, so large. How large is our reading of its words."""

    cell: Cell
    at_least: float = -inf
    at_most: float = inf

    def __str__(self) -> str:
        return f"{self.cell} " + (f"at least {self.at_least:g}" if self.at_least > -inf else f"at most {self.at_most:g}")


def ordered(column: str, *rows: str) -> tuple[Claim, ...]:
    """In a column each of the rows is above the next."""
    return tuple(Claim(Cell(a, column), Cell(b, column)) for a, b in pairwise(rows))


def best(column: str, winner: str, *others: str) -> tuple[Claim, ...]:
    """In a column one row is above all the others."""
    return tuple(Claim(Cell(winner, column), Cell(other, column)) for other in others)


def above(row: str, others: Sequence[str], *columns: str) -> tuple[Claim, ...]:
    """A row is above others in each of the columns."""
    return tuple(claim for column in columns for claim in best(column, row, *others))


def falling(row: str, *columns: str) -> tuple[Claim, ...]:
    """In a row each of the columns is above the next."""
    return tuple(Claim(Cell(row, a), Cell(row, b)) for a, b in pairwise(columns))


@dataclass(frozen=True, slots=True)
class Look:
    """An analysis of all rows' models at once, for columns whose `ask` is "look".

    `make` builds it at a scale, for so many of its `images`; `read` finds a row's values by column in what it found: numbers,
    or per-image ones as an array, which are then their own evidence, of all images or the `first` so many. `others` are models
    that take part without a row. With `epochs` the models are looked at through their training. `draw` makes the figure, by
    default all that a report shows.
    """

    make: Callable[["Scale"], Analysis]
    read: Callable[[Finding, str], Mapping[str, Any]] = lambda finding, column: {}
    others: tuple[Row, ...] = ()
    epochs: bool = False
    images: Callable[["Scale"], int | None] = lambda scale: scale.images
    draw: Callable[[Finding], str] | None = None
    first: int | None = None


Images = Literal["robustbench", "all"]


@dataclass(frozen=True, slots=True)
class Artefact:
    """`name` is that of the command line, `notes` what a reader must know, misprints included.

    `images` are ImageNet's, at the paper's scale: RobustBench's 5,000, or all. `curves` draws the training logs.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    claims: tuple[Claim | Limit, ...] = ()
    notes: tuple[str, ...] = ()
    look: Look | None = None
    images: Images = "robustbench"
    curves: bool = False
    paper: str = field(default="")

    @property
    def full_name(self) -> str:
        return f"{self.paper}/{self.name}"

    @property
    def everything(self) -> tuple[Row, ...]:
        """The rows, and those whose models only take part."""
        return self.rows + (self.look.others if self.look else ())

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def row(self, label: str) -> Row:
        return next(row for row in self.rows if row.label == label)


def registry(paper: str, *artefacts: Artefact) -> dict[str, Artefact]:
    """Artefacts of a paper by their full names."""
    named = [replace(artefact, paper=paper) for artefact in artefacts]
    assert len({artefact.name for artefact in named}) == len(named)
    return {artefact.full_name: artefact for artefact in named}
