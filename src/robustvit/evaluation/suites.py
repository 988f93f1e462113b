"""Suites: which attacks make up an evaluation."""

from collections.abc import Callable

from robustvit.attacks import FGSM, PGD, Attack, Restarts
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


def _pgd(threat: Threat, steps: int, restarts: int, seed: int) -> Attack:
    attack = PGD(threat, steps=steps, seed=seed)
    return Restarts(attack, restarts) if restarts > 1 else attack


SUITES: dict[str, Callable[..., Suite]] = {"quick": quick, "sweep": sweep}
