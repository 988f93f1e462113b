"""What `robustvit list` prints: of each registry the entries, with the first line of their docstring and their fields."""

import dataclasses
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from typing import Any

from robustvit.errors import UserError


def _matching(known: Iterable[str], pattern: str) -> list[str]:
    names = [name for name in known if fnmatch(name, pattern)]
    if not names:
        raise UserError(f"pattern: {pattern!r} matches no name here; accepted: a name, or part of one with *, as in 'vit*'")
    return names


def _described(registry: dict[str, Any], pattern: str) -> Iterable[str]:
    names = _matching(registry, pattern)
    width = max(map(len, names))
    for name in names:
        line = (registry[name].__doc__ or "").strip().splitlines()[0]
        yield f"{name:<{width}}  {line.partition('  robustvit ')[0]}"  # the command differs in the name alone
        if dataclasses.is_dataclass(registry[name]):
            yield f"{'':<{width}}  {_fields(registry[name])}"


def _fields(kind: Any) -> str:
    """As a recipe has them, with what they are unless set."""
    told = []
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            told.append(f"{field.name}={field.default if field.default is not None else 'null'}")
        else:
            told.append(field.name if field.default_factory is dataclasses.MISSING else f"{field.name}=…")
    return ", ".join(told) or "no fields"


def recipes(pattern: str) -> Iterable[str]:
    from robustvit.recipes import RECIPES

    return _described(RECIPES, pattern)


def models(pattern: str) -> Iterable[str]:
    import timm

    import robustvit.models  # noqa: F401  (registers our own)

    return _matching(timm.list_models(), pattern)


def attacks(pattern: str) -> Iterable[str]:
    from robustvit.attacks import ATTACKS

    return _described(ATTACKS, pattern)


def data(pattern: str) -> Iterable[str]:
    from robustvit.data import SOURCES

    return _described(SOURCES, pattern)


def augmentations(pattern: str) -> Iterable[str]:
    from robustvit.data.augment import AUGMENTATIONS

    return _described(AUGMENTATIONS, pattern)


def objectives(pattern: str) -> Iterable[str]:
    from robustvit.objectives import OBJECTIVES

    return _described(OBJECTIVES, pattern)


def schedules(pattern: str) -> Iterable[str]:
    from robustvit.training.schedule import SCHEDULES

    return _described(SCHEDULES, pattern)


def analyses(pattern: str) -> Iterable[str]:
    from robustvit.analysis import ANALYSES

    return _described(ANALYSES, pattern)


def zoo(pattern: str) -> Iterable[str]:
    from robustvit.zoo import entries

    described = {entry.name: str(entry) for entry in entries()}
    names = _matching(described, pattern)
    return [f"{name:<{max(map(len, names))}}  {described[name]}" for name in names]


LISTS: dict[str, Callable[[str], Iterable[str]]] = {
    "recipes": recipes,
    "models": models,
    "attacks": attacks,
    "data": data,
    "augmentations": augmentations,
    "objectives": objectives,
    "schedules": schedules,
    "analyses": analyses,
    "zoo": zoo,
}
