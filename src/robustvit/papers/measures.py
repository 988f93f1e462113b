"""Measures: what a column asks of a model, by name. A number, and what each image gave where images were asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from robustvit.attacks import APGD, FGSM, Attack, Restarts, Square, WorstOf, autoattack
from robustvit.data import DataSpec
from robustvit.errors import UserError, concerning
from robustvit.evaluation import evaluate
from robustvit.models import load_model
from robustvit.models.flops import cost
from robustvit.papers.scale import Scale
from robustvit.threat import Threat


@dataclass(frozen=True, slots=True)
class Measured:
    """`value` as the paper prints it (percent, millions, G); `correct` says of each image whether it counts."""

    value: float
    correct: np.ndarray | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A model by what `load_model` takes, the images to judge it on and where its outcomes are kept."""

    model: str
    data: DataSpec
    outcomes: Path
    scale: Scale
    device: str | None

    def accuracy(self, attack: Attack | None) -> Measured:
        """Verified like any evaluation, and found again on disk the next time."""
        checks = isinstance(attack, WorstOf)
        images = self.scale.images
        (outcome,) = evaluate(self.model, self.data, [attack], self.outcomes, images, device=self.device, checks=checks)
        warnings = tuple(warning["name"] for warning in outcome.provenance["warnings"])
        return Measured(100 * outcome.accuracy, outcome.correct, warnings)


@dataclass(frozen=True, slots=True)
class Question:
    """What a column asks of a model; `threat` is the paper's."""

    name: str
    asked: Asked
    threat: Threat | None

    def answer(self) -> Measured:
        """At the scale of the question."""
        if self.name in COSTS:
            return Measured(COSTS[self.name](self.asked))
        if self.name == "clean":
            return self.asked.accuracy(None)
        if self.threat is None:
            raise UserError(f"column {self.name!r}: no threat; accepted: a Threat, since it is an accuracy under attack")
        scale = self.asked.scale
        return self.asked.accuracy(ATTACKS[self.name](scale.threat(self.threat), scale))


def measure_all(questions: Sequence[Question]) -> list[Measured]:
    """Of one model, in turn: its folder is no place for two evaluations at a time."""
    with concerning(questions[0].asked.outcomes.name):
        return [question.answer() for question in questions]


def _fgsm(threat: Threat, scale: Scale) -> Attack:
    return FGSM(threat, seed=0)


def _apgd_ce(threat: Threat, scale: Scale) -> Attack:
    return Restarts(APGD(threat, steps=scale.iterations, seed=0), scale.restarts)


def whole_autoattack(threat: Threat, scale: Scale) -> Attack:
    """AutoAttack; where the scale cuts it short, under another name, since it is then not AutoAttack."""
    whole = autoattack(threat)
    if (scale.iterations, scale.queries) == (100, 5000):
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


def _parameters(asked: Asked) -> float:
    return sum(p.numel() for p in load_model(asked.model).parameters()) / 1e6


def _gflops(asked: Asked) -> float:
    """Multiply–adds, attention among them, as fvcore counts for the paper."""
    model = load_model(asked.model)
    size = model.input_size or asked.data.fitted(model.input_size, model.crop).load("test").shape
    return cost(model, (size[0], size[1], size[2])).with_attention / 1e9


ATTACKS: dict[str, Callable[[Threat, Scale], Attack]] = {
    "fgsm": _fgsm,
    "apgd_ce": _apgd_ce,
    "autoattack": whole_autoattack,
}
COSTS: dict[str, Callable[[Asked], float]] = {"parameters": _parameters, "gflops": _gflops}
MEASURES = ("clean", *ATTACKS, *COSTS)
LOOK = "look"  # the column is read from the artefact's analysis
