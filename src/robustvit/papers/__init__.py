"""The papers' tables and figures by name. A new one is a few lines of plain data in its paper's module."""

from fnmatch import fnmatch

from robustvit.errors import UserError, unknown
from robustvit.papers import light_recipe
from robustvit.papers.artefact import Artefact

ARTEFACTS: dict[str, Artefact] = {**light_recipe.ARTEFACTS}


def find_artefacts(pattern: str) -> list[Artefact]:
    """One by its name, or all that match, as in `light-recipe/table-*`."""
    found = [artefact for name, artefact in ARTEFACTS.items() if fnmatch(name, pattern)]
    if found:
        return found
    if "*" in pattern:
        raise UserError(f"artefact: {pattern!r} matches none; accepted: a name of `robustvit reproduce --list`, or part of one")
    raise unknown("artefact", pattern, ARTEFACTS)
