"""What the report shows of a finding: text, figures, a table and a table of pictures."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure as SVG text; `wide` ones take the page's whole width."""

    svg: str
    title: str = ""
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """The address of an <img> and what is said of it."""

    image: str
    alt: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Tables begin with the row of their columns' names; a row of pictures begins with a name."""

    title: str
    text: str
    figures: list[Drawing] = field(default_factory=list)
    table: list[list[str]] = field(default_factory=list)
    pictures: list[list[str | Picture]] = field(default_factory=list)
    provenance: str = ""


def label(row: dict[str, object]) -> str:
    """A model of a finding, with the epoch of a checkpoint."""
    return str(row["model"]) if row["epoch"] is None else f"{row['model']}, epoch {row['epoch']:g}"
