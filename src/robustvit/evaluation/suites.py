"""Suites: which attacks make up an evaluation."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import yaml

from robustvit.attacks import ATTACKS, FGSM, PGD, Attack, Restarts
from robustvit.attacks.ensemble import Version
from robustvit.attacks.ensemble import autoattack as autoattack_of
from robustvit.config import from_data, to_data
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


def _attacks_of(texts: Sequence[str], threat: Threat, options: dict[str, Any]) -> Suite:
    """Clean accuracy and attacks as a recipe has them, such as `{type: gama, steps: 50}`; threat and seed are filled in."""
    for option in options:
        if option != "seed":
            raise UserError(f"--{option}: means nothing to --attack; accepted: its own field, as in '{{type: pgd, steps: 50}}'")
    suite: Suite = [None]
    for text in texts:
        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError:
            raise UserError(f"--attack: {text!r} is not valid YAML") from None
        data = {"type": data} if isinstance(data, str) else data
        suite.append(from_data(Attack, _filled(data, threat, options.get("seed", 0)), "--attack"))
    return suite


def _filled(data: Any, threat: Threat, seed: int) -> Any:
    """With threat and seed where an attack of that type has them, and round the innermost attack of wrappers."""
    kind = ATTACKS.get(data["type"]) if isinstance(data, dict) and isinstance(data.get("type"), str) else None
    if kind is None:
        return data
    known = {"threat": to_data(threat), "seed": seed}
    fields = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    data = {name: value for name, value in known.items() if name in fields} | data
    if "inner" in data:
        data["inner"] = _filled(data["inner"], threat, seed)
    if isinstance(data.get("attacks"), list):
        data["attacks"] = [_filled(each, threat, seed) for each in data["attacks"]]
    return data


def _pgd(threat: Threat, steps: int, restarts: int, seed: int) -> Attack:
    if restarts < 1:
        raise UserError(f"--restarts: {restarts}; accepted: 1 or more")
    attack = PGD(threat, steps=steps, seed=seed)
    return Restarts(attack, restarts) if restarts > 1 else attack


def build_suite(name: str, threat: Threat, options: dict[str, Any], attacks: Sequence[str] = ()) -> Suite:
    """The suite of that name, or of `attacks` instead. Of options None are left out; one that means nothing is an error."""
    options = {option: value for option, value in options.items() if value is not None}
    if attacks:
        return _attacks_of(attacks, threat, options)
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    accepted = [option for option in inspect.signature(SUITES[name]).parameters if option != "threat"]
    for option in options:
        if option not in accepted:
            raise UserError(f"--{option}: means nothing to suite {name!r}; accepted: {', '.join('--' + o for o in accepted)}")
    return SUITES[name](threat, **options)


SUITES: dict[str, Callable[..., Suite]] = {"quick": quick, "sweep": sweep, "autoattack": autoattack}
