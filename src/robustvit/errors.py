"""The one error a user causes and can mend: the command line prints its text and no traceback."""

import difflib
from collections.abc import Iterable

SHOWN = 12  # names that an error lists


class UserError(ValueError):
    """Says which field is wrong, what it holds and what is accepted."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is in no registry, with the nearest one that is; of many names the most similar are shown."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    if len(names) <= SHOWN:
        return UserError(f"unknown {kind} {name!r}: {hint}Known: {', '.join(names)}")
    similar = sorted(names, key=lambda other: -difflib.SequenceMatcher(None, str(name), other).ratio())[:SHOWN]
    return UserError(f"unknown {kind} {name!r}: {hint}Known: {', '.join(similar)}, … ({len(names)} in all)")
