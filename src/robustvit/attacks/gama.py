"""GAMA-PGD: ascent on the margin of probabilities, relaxed at first by the distance from the start's."""

from dataclasses import dataclass

import torch
from torch import Tensor

from robustvit import noise
from robustvit.attacks.base import CLASSES, Attack
from robustvit.attacks.losses import gama
from robustvit.attacks.query import Model, Queries
from robustvit.attacks.window import Rows, Window
from robustvit.errors import UserError
from robustvit.threat import Threat


@dataclass(frozen=True, slots=True)
class GAMA(Attack):
    """Guided adversarial margin attack (Sriramanan et al., 2020, algorithm 1).

    The relaxation's weight falls linearly from `weight` to 0 over the first quarter of the steps; the step is 2ε, a tenth of it
    after 60% and a hundredth after 85%. ℓ∞ starts at a corner, ε·sign of noise; ℓ2 and ℓ1 on the surface of the ball.
    """

    threat: Threat
    steps: int = 100
    weight: float = 50.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise UserError(f"gama.steps: {self.steps}; accepted: 1 or more")
        if not 0 <= self.weight < float("inf"):
            raise UserError(f"gama.weight: {self.weight}; accepted: a finite number, 0 or more")

    def cost(self, classes: int = CLASSES) -> int:
        return 2 * self.steps + 3  # asked about the last once more where answers are random

    def perturb(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        window = Window(Queries.of(model), x, y)
        uniform = noise.uniform(x, self.seed)
        # The ends of the interval, where `sample` puts ±ε.
        state = _State(self.threat.sample(x, (uniform > 0.5).to(x.dtype) if self.threat.norm == "linf" else uniform), x)
        logits = window.ask(state.x_adv)
        state.start = logits.softmax(1)
        state.keep(window.claim(state.x_adv, logits))
        for number in range(self.steps):
            if not len(window):
                break
            weight = torch.full_like(state.start[:, 0], self.weight * max(0.0, 1 - 4 * number / self.steps))
            ascent = window.ask.gradient(state.x_adv, gama, window.y, state.start, weight)
            step = self._step_size(number) * self.threat.steepest(ascent.grad, state.x_adv)
            stay = window.claim(state.x_adv, ascent.logits)
            if stay is not None:
                step = step[stay]
            state.keep(stay)
            state.x_adv = self.threat.project(state.x_adv + step, window.x)
        if len(window):
            state.keep(window.claim(state.x_adv, window.ask(state.x_adv)))
        window.settle(state.x_adv)
        return window.result

    def _step_size(self, number: int) -> float:
        tenths = (number >= 0.6 * self.steps) + (number >= 0.85 * self.steps)
        return 2 * self.threat.eps * 0.1**tenths


@dataclass
class _State(Rows):
    x_adv: Tensor
    start: Tensor  # probabilities at the start
