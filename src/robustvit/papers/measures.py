"""Measures: what a column asks of a model, by name. A number, what each image gave, and what exactly was asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from robustvit.attacks import APGD, FGSM, Attack, Restarts, Square, WorstOf, autoattack
from robustvit.errors import UserError, concerning
from robustvit.evaluation import evaluate
from robustvit.models import load_model
from robustvit.models.flops import cost
from robustvit.papers.scale import Scale
from robustvit.papers.sets import Judged, Size
from robustvit.threat import Threat

WHOLE = (100, 5, 5000)  # iterations, restarts and queries of AutoAttack and of the paper's APGD-CE


@dataclass(frozen=True, slots=True)
class Measured:
    """`value` as the paper prints it (percent, millions, G); `correct` says of each image whether it counts.

    `data` says which images were asked: name, digest and number; `attack` what the attack calls itself.
    """

    value: float
    correct: np.ndarray | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    attack: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A model by what `load_model` takes, the images to judge it on and where outcomes are kept; `size` is for estimates."""

    model: str
    judged: Judged
    outcomes: Path
    scale: Scale
    device: str | None
    size: Size

    def images(self, measure: str) -> int | None:
        """How many are judged under a measure's attack; None: all."""
        return self.scale.attacked if measure == "autoattack" else self.scale.images

    def accuracy(self, attack: Attack | None, images: int | None) -> Measured:
        """Verified like any evaluation, and found again on disk the next time."""
        data, seed, checks = self.judged.data, self.judged.sample_seed if images else None, isinstance(attack, WorstOf)
        (outcome,) = evaluate(self.model, data, [attack], self.outcomes, images, seed, device=self.device, checks=checks)
        about = outcome.provenance["data"]
        told = {"name": about["name"], "digest": about["digest"], "sample_seed": about["sample_seed"], "n": outcome.n}
        warnings = tuple(warning["name"] for warning in outcome.provenance["warnings"])
        return Measured(100 * outcome.accuracy, outcome.correct, told, attack.name if attack else None, warnings)


@dataclass(frozen=True, slots=True)
class Question:
    """What a column asks of a model, against the scale's own `threat`."""

    name: str
    asked: Asked
    threat: Threat | None

    def answer(self) -> Measured:
        if self.name in COSTS:
            return Measured(COSTS[self.name](self.asked))
        images = self.asked.images(self.name)
        if self.name == "clean":
            return self.asked.accuracy(None, images)
        if self.threat is None:
            raise UserError(f"column {self.name!r}: no threat; accepted: a Threat, since it is an accuracy under attack")
        return self.asked.accuracy(ATTACKS[self.name](self.threat, self.asked.scale), images)


def measure_all(questions: Sequence[Question]) -> list[Measured]:
    """Of one model, in turn: its folder is no place for two evaluations at a time."""
    with concerning(questions[0].asked.outcomes.name):
        return [question.answer() for question in questions]


def _fgsm(threat: Threat, scale: Scale) -> Attack:
    return FGSM(threat, seed=0)


def _apgd_ce(threat: Threat, scale: Scale) -> Attack:
    return Restarts(APGD(threat, steps=scale.iterations, seed=0), scale.restarts)


def whole_autoattack(threat: Threat, scale: Scale) -> WorstOf:
    """AutoAttack; where the scale cuts it short, under another name, since it is then not AutoAttack."""
    whole = autoattack(threat, precision=scale.precision)
    if (scale.iterations, scale.queries) == (WHOLE[0], WHOLE[2]):
        return whole
    stages = tuple(_shortened(stage, scale) for stage in whole.attacks)
    return replace(whole, attacks=stages, title=f"autoattack-cut-to-{scale.iterations}-{scale.queries}")


def _shortened(stage: Attack, scale: Scale) -> Attack:
    if isinstance(stage, Restarts):
        return replace(stage, inner=_shortened(stage.inner, scale), count=scale.restarts)
    if isinstance(stage, Square):
        return replace(stage, queries=scale.queries)
    changes: dict[str, int] = {"steps": scale.iterations}
    return replace(stage, **changes)  # type: ignore[type-var]


def cut_short(measure: str | None, scale: Scale) -> str | None:
    """What is left of an attack that the scale cuts; None where it is whole, so that its name may stand without a word."""
    iterations, restarts, queries = WHOLE
    if measure == "autoattack" and (scale.iterations, scale.queries) != (iterations, queries):
        return f"{scale.iterations} iterations and {scale.queries} queries, of {iterations} and {queries}"
    if measure == "apgd_ce" and (scale.iterations, scale.restarts) != (iterations, restarts):
        return f"{scale.iterations} iterations and {scale.restarts} restarts, of {iterations} and {restarts}"
    return None


def _parameters(asked: Asked) -> float:
    return sum(p.numel() for p in load_model(asked.model).parameters()) / 1e6


def _gflops(asked: Asked) -> float:
    """Multiply–adds, attention among them, as fvcore counts for the paper."""
    model = load_model(asked.model)
    size = model.input_size or asked.judged.data.fitted(model.input_size, model.crop).load("test").shape
    return cost(model, (size[0], size[1], size[2])).with_attention / 1e9


ATTACKS: dict[str, Callable[[Threat, Scale], Attack]] = {
    "fgsm": _fgsm,
    "apgd_ce": _apgd_ce,
    "autoattack": whole_autoattack,
}
COSTS: dict[str, Callable[[Asked], float]] = {"parameters": _parameters, "gflops": _gflops}
MEASURES = ("clean", *ATTACKS, *COSTS)
LOOK = "look"  # the column is read from the artefact's analysis
