"""The one error a user causes and can mend: the command line prints its text and no traceback."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

SHOWN = 12  # names that an error lists


class UserError(ValueError):
    """Says which field is wrong, what it holds and what is accepted."""


@contextmanager
def concerning(name: str) -> Iterator[None]:
    """What a user did wrong is said of this model: of many only one may be concerned."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{name}: {error}") from error


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is in no registry, with the nearest one that is; of many names the most similar are shown."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f": did you mean {near[0]!r}? " if near else ". "
    if len(names) <= SHOWN:
        return UserError(f"unknown {kind} {name!r}{hint}Known: {', '.join(names) or 'none'}")
    similar = sorted(names, key=lambda other: -difflib.SequenceMatcher(None, str(name), other).ratio())[:SHOWN]
    return UserError(f"unknown {kind} {name!r}{hint}Known: {', '.join(similar)}, … ({len(names)} in all)")
