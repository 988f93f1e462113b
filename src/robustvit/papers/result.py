"""Result: the paper's numbers beside ours, how ours came about, and whether the paper's orderings held."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from robustvit import storage
from robustvit.config import Recipe, from_data
from robustvit.errors import UserError, unknown


@dataclass(frozen=True, slots=True)
class Entry:
    """One number: the paper's, and ours of each seed; `n` images where images were asked."""

    paper: float | None
    ours: tuple[float, ...] = ()
    n: int | None = None

    @property
    def mean(self) -> float | None:
        return sum(self.ours) / len(self.ours) if self.ours else None


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table; of each of its models what it is, on which images it was judged, and the hashes of its recipes and
    weights by seed; or why it was left out.
    """

    label: str
    entries: tuple[Entry, ...]
    models: dict[str, Any] = field(default_factory=dict)
    left_out: str | None = None


@dataclass(frozen=True, slots=True)
class Ordering:
    claim: str
    verdict: str
    why: str


@dataclass(frozen=True, slots=True)
class Table:
    """What an analysis found of a seed's models; the first row names the columns."""

    title: str
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Result:
    """`recipes` are those of all models by their hashes, each but the first as what it has other than the first.

    `stands` says which models and sets stand for the paper's, `analysis` what was looked at, how and on which images.
    """

    artefact: str
    title: str
    scale: str
    about: str
    seeds: tuple[int, ...]
    columns: tuple[dict[str, Any], ...]
    lines: tuple[Line, ...]
    orderings: tuple[Ordering, ...]
    verdict: dict[str, str]
    notes: tuple[str, ...]
    provenance: dict[str, Any]
    stands: dict[str, dict[str, str]] = field(default_factory=dict)
    recipes: dict[str, dict[str, Any]] = field(default_factory=dict)
    analysis: dict[str, Any] | None = None
    found: tuple[str, ...] = ()  # what an analysis says, a line a model
    tables: tuple[Table, ...] = ()  # of an analysis, one a seed
    figures: tuple[str, ...] = ()  # file names beside this one

    def path(self, results: Path) -> Path:
        return results / f"{self.artefact}.json"

    def folder(self, results: Path) -> Path:
        """Of what an analysis found."""
        return results / self.artefact

    def recipe(self, hashed: str) -> Recipe:
        """The recipe of a hash that a line names."""
        if hashed not in self.recipes:
            raise unknown("recipe of this result", hashed, self.recipes)
        first = next(iter(self.recipes.values()))
        recipe: Recipe = from_data(Recipe, first | self.recipes[hashed])
        return recipe

    def save(self, results: Path) -> Path:
        # NaN is no JSON, and no result either.
        text = json.dumps(asdict(self), indent=1, allow_nan=False, ensure_ascii=False)
        storage.replace_file(self.path(results), (text + "\n").encode)
        return self.path(results)

    @staticmethod
    def load(path: Path) -> "Result":
        try:
            data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            lines = [
                Line(**{**line, "entries": tuple(Entry(**{**e, "ours": tuple(e["ours"])}) for e in line["entries"])})
                for line in data.pop("lines")
            ]
            orderings = [Ordering(**ordering) for ordering in data.pop("orderings")]
            tables = [Table(table["title"], tuple(map(tuple, table["rows"]))) for table in data.pop("tables")]
            rest: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
            return Result(**rest, lines=tuple(lines), orderings=tuple(orderings), tables=tuple(tables))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: not a readable result: {error}") from None

    def __str__(self) -> str:
        seeds = f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''}"
        head = f"{self.artefact}: {self.title}\nscale {self.scale} ({self.about}), {seeds}; each cell: paper | ours"
        table = [["", *(column["name"] for column in self.columns)]]
        table += [[line.label, *map(shown, line.entries)] for line in self.lines]
        cut = {f"{column['name']}: {column['cut_short']}" for column in self.columns if column["cut_short"]}
        left = [f"left out: {line.label}: {line.left_out}" for line in self.lines if line.left_out]
        orderings = [f"{ordering.verdict}: {ordering.claim} ({ordering.why})" for ordering in self.orderings]
        verdict = f"verdict: {self.verdict['text']} ({self.verdict['why']})"
        return "\n".join([head, *_aligned(table), *sorted(cut), *self.measured, *left, *self.found, *orderings, verdict])

    @property
    def measured(self) -> list[str]:
        """What the numbers are of: what stands for the paper's models and sets, how many images, which attacks."""
        said = []
        for what, pairs in self.stands.items():
            said += [f"{what}: " + ", ".join(f"{ours} for {papers}" for papers, ours in pairs.items())] if pairs else []
        models = [model for line in self.lines for model in line.models.values()]
        judged = sorted({f"{images['name']}, n = {images['n']}" for model in models for images in model["judged"]})
        attacks = sorted({f"{c['attack']} within {_within(c['threat'])}" for c in self.columns if c["attack"]})
        said += [f"judged on {'; '.join(judged)}"] if judged else []
        return said + ([f"attacks: {', '.join(attacks)}"] if attacks else [])


def _within(threat: dict[str, Any]) -> str:
    return f"{threat['norm']} {threat['eps']:.4g}"


def shown(entry: Entry) -> str:
    """`paper | ours`, with the range over seeds."""
    return f"{number(entry.paper)} | {ours(entry)}"


def ours(entry: Entry) -> str:
    spread = f" ({number(min(entry.ours))} to {number(max(entry.ours))})" if len(entry.ours) > 1 else ""
    return number(entry.mean) + spread


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if abs(value) < 1000 else f"{value:,.0f}"


def _aligned(table: list[list[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
