"""The one error a user causes and can mend: the command line prints its text and no traceback."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Says which field is wrong, what it holds and what is accepted."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is in no registry, with the nearest one that is."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")
    return UserError(f"unknown {kind} {name!r}: {hint}Known: {shown}")
