"""APGD: projected gradient ascent with momentum that chooses its own step size."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from robustvit import noise
from robustvit.attacks.base import CLASSES, Attack
from robustvit.attacks.losses import LOSSES, TARGETED_LOSSES, loss_named
from robustvit.attacks.query import Model, Queries
from robustvit.attacks.targets import likeliest_others
from robustvit.attacks.window import Rows, Window
from robustvit.errors import UserError, unknown
from robustvit.threat import Threat

MOMENTUM = 0.75
NAMES = {"cross_entropy": "ce", "targeted_dlr": "t"}


@dataclass(frozen=True, slots=True)
class APGD(Attack):
    """Auto-PGD (Croce & Hein, 2020, algorithm 1); in ℓ1 with sparse steps and a falling eps (Croce & Hein, 2021).

    With a targeted loss it runs once for each of the `targets` likeliest other classes. Rises are counted from the
    start's loss; the authors' code compares the first with 0. The projection is exact in ℓ2 too.
    """

    threat: Threat
    steps: int = 100
    loss: str = "cross_entropy"
    targets: int = 9
    rho: float = 0.75
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.loss not in LOSSES | TARGETED_LOSSES or self.loss == "kl":
            raise unknown("apgd.loss", self.loss, [name for name in LOSSES | TARGETED_LOSSES if name != "kl"])
        for name in ("steps", "targets"):
            if getattr(self, name) < 1:
                raise UserError(f"apgd.{name}: {getattr(self, name)}; accepted: 1 or more")
        if not 0 < self.rho < 1:
            raise UserError(f"apgd.rho: {self.rho}; accepted: between 0 and 1")

    @property
    def name(self) -> str:
        return self.named(f"apgd-{NAMES.get(self.loss, self.loss)}", "loss", "targets")

    def cost(self, classes: int = CLASSES) -> int:
        # Each stage asks at its start too; and once more at the end where answers are random.
        run = 2 * (self.steps + (3 if self.threat.norm == "l1" else 1)) + 1
        return 1 + run * min(self.targets, classes - 1) if self.loss in TARGETED_LOSSES else run

    def perturb(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        ask = Queries.of(model)
        window = Window(ask, x, y)
        climb = _climb_l1 if self.threat.norm == "l1" else _climb
        others = likeliest_others(ask(x), y, self.targets) if self.loss in TARGETED_LOSSES else None
        for _ in window.in_turn(1 if others is None else others.shape[1]):
            window.settle(climb(self, window, window.y if others is None else others[window.place, window.run]))
        return window.result


@dataclass
class _State(Rows):
    """Of each image that stands."""

    target: Tensor
    x_adv: Tensor
    previous: Tensor
    grad: Tensor
    best: Tensor
    best_grad: Tensor
    best_loss: Tensor
    loss: Tensor
    step: Tensor  # [B, 1, 1, 1]

    @staticmethod
    def start(x_adv: Tensor, target: Tensor, step: float) -> "_State":
        steps = torch.full((len(x_adv), *[1] * (x_adv.dim() - 1)), step, device=x_adv.device, dtype=x_adv.dtype)
        loss = torch.full((len(x_adv),), -torch.inf, device=x_adv.device)
        return _State(target, x_adv, x_adv, x_adv, x_adv, x_adv, loss, loss, steps)

    def look(self, attack: APGD, window: Window, claims: bool = True) -> Tensor | None:
        """Ask for loss and gradient at x_adv, let broken images leave, remember the best; -> the rows that stayed."""
        references = (self.target,) if attack.loss in LOSSES else (window.y, self.target)
        ascent = window.ask.gradient(self.x_adv, loss_named(attack.loss), *references)
        self.loss, self.grad = ascent.loss.to(self.loss.dtype), ascent.grad
        stay = window.claim(self.x_adv, ascent.logits) if claims else None
        self.keep(stay)
        better = self.loss > self.best_loss
        self.best_loss = torch.where(better, self.loss, self.best_loss)
        self.best = _where(better, self.x_adv, self.best)
        self.best_grad = _where(better, self.grad, self.best_grad)
        return stay

    def return_to_best(self, rows: Tensor) -> None:
        self.x_adv = _where(rows, self.best, self.x_adv)
        self.grad = _where(rows, self.best_grad, self.grad)


@dataclass
class _Checks(Rows):
    """What the last check of the step size saw, and the rises since."""

    rises: Tensor
    best_loss: Tensor
    reduced: Tensor


def _climb(attack: APGD, window: Window, target: Tensor) -> Tensor:
    """ℓ∞ and ℓ2 -> the best example of the rows that stand at the end."""
    threat, steps = attack.threat, attack.steps
    start = threat.sample(window.x, noise.uniform(window.x, attack.seed, window.run))
    state = _State.start(start, target, 2 * threat.eps)
    state.look(attack, window)
    checks = _Checks(torch.zeros_like(state.loss), state.best_loss, torch.ones_like(state.loss, dtype=torch.bool))
    interval = max(int(0.22 * steps), 1)
    since = 0
    for number in range(steps):
        if not len(window):
            break
        ahead = threat.project(state.x_adv + state.step * threat.steepest(state.grad), window.x)
        share = MOMENTUM if number else 1.0
        mixed = state.x_adv + share * (ahead - state.x_adv) + (1 - share) * (state.x_adv - state.previous)
        state.previous, state.x_adv = state.x_adv, threat.project(mixed, window.x)
        before = state.loss
        stay = state.look(attack, window)
        checks.keep(stay)
        checks.rises += state.loss > (before if stay is None else before[stay])
        since += 1
        if since == interval:
            stalled = ~checks.reduced & (checks.best_loss >= state.best_loss)
            checks.reduced = (checks.rises <= attack.rho * interval) | stalled
            checks.best_loss, checks.rises = state.best_loss, torch.zeros_like(checks.rises)
            state.step = torch.where(_wide(checks.reduced, state.step), state.step / 2, state.step)
            state.return_to_best(checks.reduced)
            interval, since = max(interval - max(int(0.03 * steps), 1), max(int(0.06 * steps), 1)), 0
    return state.best


@dataclass
class _Sparsity(Rows):
    share: Tensor  # of the pixels that a step moves
    changed: Tensor  # pixels that the best example changed, at the last check


def _climb_l1(attack: APGD, window: Window, target: Tensor) -> Tensor:
    """ℓ1: 3ε, 2ε and ε for 30, 30 and 40% of the steps; each stage starts at the last one's best, only the last may claim.

    As in the authors' code, the share of pixels that a stage's first steps move follows from its start; a fifth is for runs at
    one eps.
    """
    eps = attack.threat.eps
    lengths = [math.ceil(0.3 * attack.steps)] * 2
    lengths.append(attack.steps - sum(lengths))
    uniform = noise.uniform(window.x, attack.seed, window.run)
    x_adv = window.x + math.sqrt(2) * torch.erfinv(2 * uniform - 1)
    for factor, steps in zip((3, 2, 1), lengths, strict=True):
        threat = Threat("l1", factor * eps)
        x_adv = _climb_l1_stage(attack, window, threat, max(steps, 1), threat.project(x_adv, window.x), target, factor == 1)
    return x_adv


def _climb_l1_stage(
    attack: APGD, window: Window, threat: Threat, steps: int, start: Tensor, target: Tensor, claims: bool
) -> Tensor:
    state = _State.start(start, target, threat.eps)
    state.look(attack, window, claims)
    pixels = window.x[0].numel() if len(window) else 1
    changed = _changed(state.best, window.x)
    sparsity = _Sparsity(changed / pixels / 1.5, changed)
    interval = max(int(0.04 * steps), 1)
    for number in range(1, steps + 1):
        if not len(window):
            break
        ahead = state.x_adv + state.step * _sparse_step(state.grad, sparsity.share)
        state.x_adv = threat.project(ahead, window.x)
        sparsity.keep(state.look(attack, window, claims))
        if number % interval == 0 and len(window):
            changed = _changed(state.best, window.x)
            sparser = changed < 0.95 * sparsity.changed
            sparsity.share, sparsity.changed = changed / pixels / 1.5, changed
            # Sparser steps start large again; as sparse ones shrink, to a tenth at least.
            state.step = torch.where(_wide(sparser, state.step), threat.eps, state.step / 1.5).clamp(
                threat.eps / 10, threat.eps
            )
            state.return_to_best(sparser)
    return state.best


def _sparse_step(grad: Tensor, share: Tensor) -> Tensor:
    """The signs of the largest `share` of each gradient, of ℓ1 length 1."""
    size = grad.abs().flatten(1)
    rank = ((1 - share) * size.shape[1]).clamp(0, size.shape[1] - 1).long()
    least = size.sort(1).values.gather(1, rank[:, None])
    signs = grad.flatten(1).sign() * (size >= least)
    step = (signs / signs.abs().sum(1, keepdim=True).clamp(min=1)).view_as(grad)
    return torch.where(grad.isnan(), grad, step)


def _changed(x_adv: Tensor, x: Tensor) -> Tensor:
    return (x_adv != x).flatten(1).sum(1).to(x.dtype)


def _where(rows: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(_wide(rows, yes), yes, no)


def _wide(rows: Tensor, like: Tensor) -> Tensor:
    return rows.view(-1, *[1] * (like.dim() - 1))
