"""WorstOf several attacks, and AutoAttack: the one that a robustness number is believed by."""

from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import torch
from torch import Tensor

from robustvit.attacks.apgd import APGD
from robustvit.attacks.base import CLASSES, Attack
from robustvit.attacks.fab import FAB
from robustvit.attacks.losses import hard_labels
from robustvit.attacks.query import Model, Queries
from robustvit.attacks.square import Square
from robustvit.attacks.wrappers import EOT, InPrecision, Restarts
from robustvit.errors import UserError, unknown
from robustvit.precision import PRECISIONS, Precision
from robustvit.threat import Threat

Version = Literal["standard", "plus", "rand"]
VERSIONS: tuple[str, ...] = get_args(Version)


@dataclass(frozen=True, slots=True)
class WorstOf(Attack):
    """Attacks of one threat in order, each on the images that still stand: per image the first example that fools the model."""

    attacks: tuple[Attack, ...]
    title: str = "worst-of"
    precision: Precision | None = None

    def __post_init__(self) -> None:
        if not self.attacks:
            raise UserError("worst_of.attacks: empty; accepted: one attack or more")
        if len({attack.threat for attack in self.attacks}) > 1:
            raise UserError(f"worst_of.attacks: threats {[a.threat for a in self.attacks]}; accepted: the same for all")
        if any(getattr(attack, "targeted", False) for attack in self.attacks):
            raise UserError("worst_of.attacks: one is targeted; accepted: attacks that fool the model about y")
        if self.precision not in (None, *PRECISIONS):
            raise UserError(f"worst_of.precision: {self.precision!r}; accepted: null, {', '.join(PRECISIONS)}")

    @property
    def name(self) -> str:
        return self.title if self.precision in (None, "fp32") else f"{self.title}-{self.precision}"

    @property
    def threat(self) -> Threat:  # type: ignore[override]
        return self.attacks[0].threat

    @property
    def seed(self) -> int | None:  # type: ignore[override]
        return self.attacks[0].seed

    @property
    def random(self) -> bool:
        return any(attack.random for attack in self.attacks)

    @property
    def unseeded(self) -> bool:
        return any(attack.unseeded for attack in self.attacks)

    def cost(self, classes: int = CLASSES) -> int:
        return sum(attack.cost(classes) + self.draws for attack in self.stages)

    @property
    def draws(self) -> int:
        return max(attack.draws for attack in self.attacks)

    @property
    def stages(self) -> tuple[Attack, ...]:
        if self.precision is None:
            return self.attacks
        return tuple(InPrecision(attack, _fit(attack, self.precision)) for attack in self.attacks)

    def scaled(self, factor: float) -> Self:
        return replace(self, attacks=tuple(attack.scaled(factor) for attack in self.attacks))

    def restarted(self, attempt: int) -> Self:
        return replace(self, attacks=tuple(attack.restarted(attempt) for attack in self.attacks))

    def perturb(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        ask = Queries.of(model)
        judge = replace(ask.exactly() if ask.approximate else ask, draws=max(ask.draws, self.draws))
        x_adv = x.clone()
        left = torch.arange(len(x), device=x.device)
        for attack in self.stages:
            found = attack.perturb(ask, x[left], y[left])
            x_adv[left] = found
            logits = judge(found)
            # A NaN logit leaves too: `Attack` finds it by the NaN that the attack made of the example.
            left = left[(logits.argmax(1) == hard_labels(y[left])) & logits.isfinite().all(1)]
            if not len(left):
                break
        return x_adv


def _fit(attack: Attack, precision: Precision) -> Precision:
    """In bf16 the steepest way up is followed in TF32, or points at the very edge of the ball would be lost; FAB and Square,
    which find few points that it has not found, take most of the time, and need no more than bf16.
    """
    return "tf32" if precision == "bf16" and not isinstance(attack, FAB | Square) else precision


def autoattack(threat: Threat, version: Version = "standard", seed: int = 0, precision: Precision = "fp32") -> WorstOf:
    """AutoAttack (Croce & Hein, 2020), its stages in the published order, each on what still stands.

    `rand` is for models whose output is random: gradients and predictions are averaged over 20 draws. In ℓ1, APGD-CE has five
    restarts and APGD-T five targets (Croce & Hein, 2021). A model of few classes gets fewer targets.
    """
    if version not in VERSIONS:
        raise unknown("autoattack.version", version, VERSIONS)
    if precision not in PRECISIONS:
        raise unknown("autoattack.precision", precision, PRECISIONS)
    sparse = threat.norm == "l1"
    ce = APGD(threat, seed=seed)
    dlr = APGD(threat, loss="dlr", seed=seed)
    targeted = APGD(threat, loss="targeted_dlr", targets=5 if sparse and version == "standard" else 9, seed=seed)
    fab_t, square = FAB(threat, targets=9, seed=seed), Square(threat, seed=seed)
    stages: dict[str, tuple[Attack, ...]] = {
        "standard": (Restarts(ce, 5) if sparse else ce, targeted, fab_t, square),
        "plus": (Restarts(ce, 5), Restarts(dlr, 5), FAB(threat, restarts=5, seed=seed), square, targeted, fab_t),
        "rand": (EOT(ce, 20), EOT(dlr, 20)),
    }
    return WorstOf(stages[version], f"autoattack-{version}", None if precision == "fp32" else precision)
