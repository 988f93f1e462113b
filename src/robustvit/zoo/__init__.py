"""Models that this project trained itself: `zoo:NAME` wherever a model is asked for.

An entry is a run folder: the recipe, weights in half precision, and the outcomes that were measured on those very weights.
`card.json` sums it up. One tiny entry comes with the package; a clone's `zoo/` is looked through for larger ones.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustvit.errors import UserError, unknown

PREFIX = "zoo:"
PLACE = "ROBUSTVIT_ZOO"  # an environment variable: another folder of entries, looked at first


@dataclass(frozen=True, slots=True)
class Entry:
    folder: Path
    card: dict[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    def __str__(self) -> str:
        measured = ", ".join(f"{name} {o['accuracy']:.1%} of {o['n']}" for name, o in self.card["outcomes"].items())
        return f"{self.card['model']}, {self.card['parameters'] / 1e6:.2f}M parameters, on {self.card['data']}: {measured}"


def find(name: str) -> Path:
    """The folder of `zoo:NAME`."""
    known = {entry.name: entry.folder for entry in entries()}
    wanted = name.removeprefix(PREFIX)
    if wanted not in known:
        error = unknown("zoo model", wanted, known)
        raise UserError(f"{error}. {PLACE}=FOLDER names a place of more models")
    return known[wanted]


def entries() -> Iterator[Entry]:
    """All there are, each name once, from the first place that has it."""
    seen: set[str] = set()
    for place in _places():
        for card in sorted(place.glob("[!.]*/card.json")):
            if card.parent.name not in seen:
                seen.add(card.parent.name)
                yield Entry(card.parent, json.loads(card.read_text()))


def _places() -> Iterator[Path]:
    if given := os.environ.get(PLACE):
        if not Path(given).is_dir():
            raise UserError(f"{PLACE}: no folder {given!r}")
        yield Path(given)
    here = Path(__file__).parent
    clone = here.parents[2]
    if (clone / "pyproject.toml").is_file() and (clone / "zoo").is_dir():
        yield clone / "zoo"
    yield here
