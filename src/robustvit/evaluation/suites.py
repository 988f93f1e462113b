"""Suites: which attacks make up an evaluation."""

import inspect
from collections.abc import Callable
from typing import Any

from robustvit.attacks import FGSM, PGD, Attack, Restarts
from robustvit.attacks.ensemble import Version
from robustvit.attacks.ensemble import autoattack as autoattack_of
from robustvit.errors import UserError, unknown
from robustvit.precision import Precision
from robustvit.threat import Threat

Suite = list[Attack | None]  # None: the clean images


def quick(threat: Threat, steps: int = 50, restarts: int = 1, seed: int = 0) -> Suite:
    """Clean accuracy, FGSM and PGD."""
    return [None, FGSM(threat, seed=seed), _pgd(threat, steps, restarts, seed)]


def sweep(threat: Threat, steps: int = 50, restarts: int = 1, seed: int = 0) -> Suite:
    """Clean accuracy, FGSM, and PGD from a quarter of eps to four times it: it must fall to 0 in the end."""
    factors = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
    reachable = [threat.scaled(f) for f in factors if threat.norm != "linf" or threat.eps * f <= 1]
    return [None, FGSM(threat, seed=seed), *(_pgd(t, steps, restarts, seed) for t in reachable)]


def autoattack(threat: Threat, version: Version = "standard", precision: Precision = "fp32", seed: int = 0) -> Suite:
    """Clean accuracy and AutoAttack (standard, plus or rand)."""
    return [None, autoattack_of(threat, version, seed, precision)]


def _pgd(threat: Threat, steps: int, restarts: int, seed: int) -> Attack:
    attack = PGD(threat, steps=steps, seed=seed)
    return Restarts(attack, restarts) if restarts > 1 else attack


def build_suite(name: str, threat: Threat, options: dict[str, Any]) -> Suite:
    """The suite of that name; an option that it does not have is an error, not ignored."""
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    accepted = [option for option in inspect.signature(SUITES[name]).parameters if option != "threat"]
    for option in options:
        if option not in accepted:
            raise UserError(f"--{option}: means nothing to suite {name!r}; accepted: {', '.join('--' + o for o in accepted)}")
    return SUITES[name](threat, **options)


SUITES: dict[str, Callable[..., Suite]] = {"quick": quick, "sweep": sweep, "autoattack": autoattack}
