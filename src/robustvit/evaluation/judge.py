"""Verdicts: whatever an attack claims, only what is found here counts."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from robustvit import noise
from robustvit.attacks import Attack, Queries, attackable
from robustvit.attacks.base import check_judges
from robustvit.attacks.losses import margin
from robustvit.data import Images
from robustvit.errors import UserError
from robustvit.models import fingerprint
from robustvit.precision import exact

Answers = Sequence[Sequence[float]]  # what a model says of some images: three numbers each
ROUNDING = 1e-4  # of the largest logit: kernels that sum in changing order stay below 1e-5 of it
SAME_ANSWER = 1e-2  # of the largest: far above rounding, far below another function


@dataclass
class Verdicts:
    """What is known of a window's images: after each stage of the attack, more."""

    y: Tensor
    clean: Tensor  # the prediction for the image
    attacked: Tensor  # and for the adversarial one; the same where the image was wrong from the start
    broken_by: Tensor  # the stage that changed it, or -1
    examples: Tensor  # float32: what each stage made of the image last
    stages: list[dict[str, Any]] = field(default_factory=list)  # what each stage did and cost

    @property
    def correct(self) -> Tensor:
        """Robustly correct: right on the image and on what the attack made of it."""
        return (self.clean == self.y) & (self.attacked == self.y)

    def summary(self, examples: int) -> "Verdicts":
        """On the CPU, with the first few examples only: what is left of a window when the next one comes."""
        y, clean, attacked = self.y.cpu(), self.clean.cpu(), self.attacked.cpu()
        return Verdicts(y, clean, attacked, self.broken_by.cpu(), self.examples[:examples].cpu(), self.stages)


def judge(model: nn.Module, images: Images, attack: Attack | None, batch_size: int = 256) -> Verdicts:
    """All images at once, in micro-batches: for sets that fit the device, such as the held-out images of training."""
    with judging(model):
        ask = Queries(model, precision="fp32")
        ask.ledger.size = batch_size
        x, y = images.batch(slice(None))
        return attack_window(ask, x, y, attack)


def attack_window(
    ask: Queries,
    x: Tensor,
    y: Tensor,
    attack: Attack | None,
    known: Verdicts | None = None,
    seed: int = 0,
    saved: Callable[[Verdicts], None] = lambda verdicts: None,
) -> Verdicts:
    """Run the stages that are not known yet, each on what still stands; `saved` is told after each.

    `seed` matters to a stochastic model alone: what the attack sees of it follows from (seed, stage).
    """
    check_judges(attack)
    stages = attack.stages if attack else ()
    verdict = replace(ask.exactly(), draws=attack.draws if attack else 1)
    weights = _weights(ask)
    if known is None:
        clean = predict(verdict, x)
        known = Verdicts(y, clean, clean.clone(), torch.full_like(y, -1), x.clone())
        if _weights(ask) != weights:
            raise UserError(
                "model: asking it changed its weights or buffers; accepted: a model that keeps no count of its inputs"
            )
        saved(known)
    for number in range(len(known.stages), len(stages)):
        _stage(ask, verdict, stages[number], number, x, known, weights, seed + number + 1)
        saved(known)
    return known


def _stage(
    ask: Queries, verdict: Queries, attack: Attack, number: int, x: Tensor, known: Verdicts, weights: str | None, seed: int
) -> None:
    """Attack what stands and enter into `known` which images fell."""
    started, ledger = time.monotonic(), ask.ledger
    before = ledger.forward, ledger.backward
    rows = known.correct.nonzero().squeeze(1)
    broken = 0
    if len(rows):
        with seeded(seed):
            x_adv = attack(ask, x[rows], known.y[rows])
        verify(attack, x_adv, x[rows], rows)
        if _weights(ask) != weights:
            raise UserError(f"{attack.name}: changed the model's weights or buffers, so what it found is not about this model")
        known.examples[rows] = x_adv
        known.attacked[rows] = predict(verdict, x_adv, number + 1)
        fallen = rows[~known.correct[rows]]
        known.broken_by[fallen] = number
        broken = len(fallen)
    record = {"name": attack.name, "entered": len(rows), "broken": broken}
    calls = {"forward": ledger.forward - before[0], "backward": ledger.backward - before[1]}
    known.stages.append({**record, **calls, "seconds": time.monotonic() - started})


def _weights(ask: Queries) -> str | None:
    return fingerprint(ask.model) if isinstance(ask.model, nn.Module) else None


def verify(attack: Attack, x_adv: Tensor, x: Tensor, places: Tensor) -> None:
    """An example outside ball or box is the attack's bug: no number may come of it."""
    outside = (~attack.threat.contains(x_adv, x)).nonzero().squeeze(1)
    if len(outside):
        worst = int(outside[0])
        far = float(attack.threat.distance(x_adv, x)[worst])
        raise UserError(
            f"{attack.name}: {len(outside)} examples lie outside {attack.threat.norm} ≤ {attack.threat.eps:g} or the box "
            f"[0, 1]; image {int(places[worst])} is at distance {far:g}, its values from {float(x_adv[worst].min()):g} to "
            f"{float(x_adv[worst].max()):g}"
        )


def predict(ask: Queries, x: Tensor, seed: int = 0) -> Tensor:
    logits = logits_of(ask, x, seed)
    if not bool(logits.isfinite().all()):
        raise UserError("the model's logits hold NaN or infinite values; its predictions mean nothing")
    return logits.argmax(1)


def logits_of(ask: Queries, x: Tensor, seed: int = 0) -> Tensor:
    """For a verdict. Guarded once more: an attack may have left another mode or arithmetic behind.

    A random model's answer for an image follows from what else it is asked: so it is asked about each alone, with draws that
    are the image's own. Then neither windows nor processes show, and `verify` finds the same.
    """
    with exact(), attackable(ask.model):
        if not _is_random(ask, x):
            return ask(x)
        logits = []
        for image, key in zip(x.split(1), noise.keys(x, seed).tolist(), strict=True):
            with seeded(key):
                logits.append(ask(image))
        return torch.cat(logits)


def _is_random(ask: Queries, x: Tensor) -> bool:
    """Does it answer an image otherwise with another seed, beyond rounding?"""
    answers = []
    for seed in (0, 1):
        with seeded(seed):
            answers.append(ask(x[:1]))
    one, other = answers
    return bool((one - other).abs().amax() > ROUNDING * one.abs().amax())


@contextmanager
def judging(model: nn.Module) -> Iterator[None]:
    """Exact arithmetic, eval mode, frozen parameters."""
    with exact(), attackable(model):
        yield


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """A stochastic model's own randomness, made repeatable; the caller's random state returns."""
    # Of the GPUs only the one in use: forking the state of all warns where there are several.
    with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_available() else []):
        torch.manual_seed(seed)
        yield


def answers(ask: Queries, x: Tensor, y: Tensor) -> Answers:
    """Of each image the true class's logit, the length of all logits and that of the margin's gradient.

    Weights alone do not tell a module with a defence round it from one without, or with another gradient.
    """
    with seeded(0):
        ascent = ask.gradient(x, margin, y)
    logits, grad = ascent.logits, ascent.grad.flatten(1)
    said: Answers = torch.stack([logits.gather(1, y[:, None]).squeeze(1), logits.norm(dim=1), grad.norm(dim=1)], 1).tolist()
    return said


def alike(before: Answers, now: Answers) -> bool:
    """Are they one function's, up to what another device may round differently?"""
    one, other = torch.tensor(before), torch.tensor(now)
    if one.shape != other.shape or not other.numel():
        return one.shape == other.shape
    return bool(((one - other).abs() <= SAME_ANSWER * other.abs().amax(0)).all())
