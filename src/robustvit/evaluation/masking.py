"""Signs that a model hides its gradient instead of resisting: a robustness number with one of them is suspect.

After Athalye et al. (2018), Carlini et al. (2019) and the flags of AutoAttack (Croce & Hein, 2020). The thresholds lie between
what healthy models (undefended, adversarially trained, linear, of two classes) and made defences were measured to do.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from robustvit.attacks import PGD, Attack, Model, Queries, attackable
from robustvit.attacks.losses import NEEDS, cross_entropy, margin
from robustvit.evaluation.judge import ROUNDING
from robustvit.threat import Threat

IMAGES = 64
FEW = 2  # one image is never evidence of how an attack fares

# Of its margin, what an image's gradient promises for moving every pixel through its whole range. Adversarially trained models
# were seen to promise 2 and more, others 4 and more.
BLIND = 1e-2
# Of the margin's gradient, what is left of cross-entropy's: about 1 − p_y, so this is a lead of 46 logits. Undefended models
# trained for long came to 33, where it still points somewhere; at 104 it is exactly zero.
STARVED = 1e-20
# Shares of the images that may show a sign by accident. On healthy models none was blind or starved, at most 1 in 9 had a loss
# that did not rise, and none resisted at the radius of grey; hidden gradients make a loss rise for about half.
MAY_BE_BLIND, MAY_BE_FLAT, MAY_RESIST = 0.1, 0.25, 0.05
# Of the radius of grey: below it a loss may rise by no more than its rounding.
TOO_SMALL = 1e-4
# The reference's threshold: what Square gains up to 0.2% of all images is chance.
CHANCE = 0.002


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A named warning: what was measured, and what to do next."""

    name: str
    message: str
    advice: str


def probe(model: Model, x: Tensor, y: Tensor, threat: Threat, seed: int = 0) -> list[Suspicion]:
    """Look for masked gradients on images that the model gets right, the first 64 of them, for at most 175 passes each.

    Probabilities instead of logits would mislead the later checks, so that they end the search.
    """
    x, y = x[:IMAGES], y[:IMAGES]
    if not len(x):
        return []
    with attackable(model):
        ask = Queries.of(model).exactly()
        found = [*_precision(ask.model, x), *_outputs(ask, x)]
        if not any(suspicion.name == "softmax-output" for suspicion in found):
            found += [*_gradients(ask, x, y), *_climbs(ask, x, y, threat, seed), *_large_eps(ask, x, y, threat)]
        return found


def of_stages(stages: Sequence[Mapping[str, Any]], n: int) -> list[Suspicion]:
    """Did Square break what gradient attacks had left? `stages`, in the order they ran, with `name`, `entered`, `broken`."""
    squares = [i for i, stage in enumerate(stages) if stage["name"].startswith("square")]
    if not squares or squares[0] == 0:
        return []
    first = squares[0]
    broken = sum(stages[i]["broken"] for i in squares)
    later = sum(stage["broken"] for i, stage in enumerate(stages) if i > first and i not in squares)
    # Where gradient attacks follow (version plus) they might have found the same images: Square must beat them.
    if broken < FEW or broken <= CHANCE * n or broken <= later:
        return []
    left, before = stages[first]["entered"], ", ".join(stage["name"] for stage in stages[:first])
    return [
        Suspicion(
            "black-box-beats-white-box",
            f"Square broke {broken} of the {left} images that {before} had left ({broken / n:.1%} of all {n}; up to "
            f"{max(FEW - 1, int(CHANCE * n))} would be chance)",
            "the gradient attacks miss examples that exist: run `--suite autoattack --version plus`, Square with more queries "
            "and other seeds, and an attack on a copy of the model without the step that hides its gradient",
        )
    ]


def of_classes(attack: Attack, classes: int) -> list[Suspicion]:
    """Losses that compare several classes have none to compare where there are few."""
    named = {loss for stage in attack.stages for loss in _losses(stage)}
    instead = {loss: NEEDS[loss][1] for loss in sorted(named & NEEDS.keys()) if classes < NEEDS[loss][0]}
    if not instead:
        return []
    said = ", ".join(f"{loss} as {other}" for loss, other in instead.items())
    return [
        Suspicion(
            "few-classes",
            f"the model has {classes} classes, too few for some of the attack's losses: it ran {said}",
            "nothing, if you know that it is not the same attack as on many classes",
        )
    ]


def _losses(attack: Attack) -> list[str]:
    inner = getattr(attack, "inner", None)
    return _losses(inner) if inner else [getattr(attack, "loss", "")]


def of_answers(same: bool, n: int) -> list[Suspicion]:
    """Does the model answer after the attack as it did before, to the same random draws?"""
    if same:
        return []
    return [
        Suspicion(
            "changing-output",
            f"the answers for the first {n} images are others after the attack than before: the model keeps a state, or draws "
            "random numbers that torch's seed does not reach",
            "verdicts hold for the state that the model was in: make it a function of its input, and evaluate again",
        )
    ]


def _precision(model: Model, x: Tensor) -> Iterator[Suspicion]:
    """Verdicts are asked for in float32, but a model may round by itself."""
    with torch.no_grad():
        kind = str(model(x[:1]).dtype).removeprefix("torch.")
    if kind not in ("float32", "float64"):
        yield Suspicion(
            "low-precision-output",
            f"the model answers in {kind}, whatever it is asked in: its weights or an autocast of its own round to that",
            "verdicts hold for the model as it rounds on this device: take its autocast off, or call `.float()` on it, and "
            "evaluate again",
        )


def _outputs(ask: Queries, x: Tensor) -> Iterator[Suspicion]:
    logits, again = ask(x), ask(x)
    if bool((logits >= 0).all()) and bool(((logits.sum(1) - 1).abs() < 1e-4).all()):
        yield Suspicion(
            "softmax-output",
            f"the outputs are probabilities: none is negative and each row sums to 1 (n = {len(x)})",
            "return logits: take the softmax off the model and evaluate again; attacks starve on its flat ends, and the other "
            "checks were left out because of it",
        )
    change = float((logits - again).abs().max() / logits.abs().max().clamp(min=1e-30))
    if change > ROUNDING:
        flips = int((logits.argmax(1) != again.argmax(1)).sum())
        yield Suspicion(
            "randomised-output",
            f"two passes over the same {len(x)} images differ by up to {change:.2g} of the largest logit, {flips} "
            "predictions with them",
            "average over the randomness: `--suite autoattack --version rand`; if it is dropout, put the model in eval mode",
        )
        return
    mixing = float((ask(x[:1]) - logits[:1]).abs().max() / logits[:1].abs().max().clamp(min=1e-30))
    if mixing > ROUNDING:
        yield Suspicion(
            "batch-dependent-output",
            f"the answer for an image asked alone differs from that among {len(x)} by {mixing:.2g} of its largest logit",
            "verdicts hold for the batches that were asked alone: give BatchNorm running statistics "
            "(track_running_stats=True), or evaluate with `--batch-size 1`",
        )


def _gradients(ask: Queries, x: Tensor, y: Tensor) -> Iterator[Suspicion]:
    """The margin has a gradient wherever the model has one; cross-entropy loses it where the softmax rounds to 0 and 1."""
    of_margin = ask.gradient(x, margin, y)
    size, starved_size = (_l1(grad) for grad in (of_margin.grad, ask.gradient(x, cross_entropy, y).grad))
    blind = size <= BLIND * of_margin.loss.abs()
    starved = ~blind & (starved_size <= STARVED * size)
    if int(blind.sum()) > MAY_BE_BLIND * len(x):
        yield Suspicion(
            "zero-gradients",
            f"{int(blind.sum())} of {len(x)} images have no input gradient to follow, even of the margin "
            f"({int((size == 0).sum())} exactly zero): something in the model is not differentiable",
            "trust no gradient attack here: run Square (in `--suite autoattack`) with more queries, transfer examples from a "
            "model without that step, or give the step the backward pass of the identity (BPDA) and attack again",
        )
    if int(starved.sum()) > MAY_BE_BLIND * len(x):
        yield Suspicion(
            "vanishing-gradients",
            f"for {int(starved.sum())} of {len(x)} images the gradient of cross-entropy is below {STARVED:g} of the margin's "
            f"({int((starved_size == 0).sum())} exactly zero): the logits are so large that the softmax rounds",
            "trust no attack on cross-entropy: take the margin or DLR (`--suite autoattack`; PGD with loss=margin), or "
            "scale the logits down (LogitScaling)",
        )


def _climbs(ask: Queries, x: Tensor, y: Tensor, threat: Threat, seed: int) -> Iterator[Suspicion]:
    """PGD must get further with more steps, and in a larger ball. Beyond the radius of grey it need not."""
    norm, largest = threat.norm, _radius_of_grey(threat.norm, x)
    if threat.eps < TOO_SMALL * largest:
        return

    def reached(eps: float, steps: int = 10) -> Tensor:
        # One step as long as each of the 10: 2.5 eps at once would end in the corner that is a linear model's best.
        return _margins(ask, PGD(Threat(norm, eps), steps, 0.25, "eps", "margin", seed=seed), x, y)

    eps = min(threat.eps, largest)
    losses = {radius: reached(radius) for radius in (eps / 2, eps, 2 * eps) if radius <= largest}
    if flat := _flat(reached(eps, steps=1), losses[eps]):
        yield Suspicion(
            "loss-flat-in-steps",
            f"PGD at {norm} {eps:.3g}: from 1 to 10 steps {flat}",
            "the gradient does not lead uphill: compare with Square (in `--suite autoattack`), average gradients over small "
            "input noise, or attack a copy of the model without the step that hides them",
        )
    for low, high in pairwise(losses):
        if flat := _flat(losses[low], losses[high]):
            yield Suspicion(
                "loss-flat-in-eps",
                f"PGD-10 in {norm}: from eps {low:.3g} to {high:.3g} {flat}",
                "the larger ball holds all of the smaller: look at the whole curve (`--suite sweep`), which must fall to 0, "
                "and run attacks without gradients (Square in `--suite autoattack`, transfer)",
            )
            return


def _large_eps(ask: Queries, x: Tensor, y: Tensor, threat: Threat) -> Iterator[Suspicion]:
    """At a radius where every image can become plain grey, whatever is not of grey's class can be broken: does PGD do it?"""
    grey = ask(torch.full_like(x[:1], 0.5)).argmax(1)
    breakable = y != grey
    x, y = x[breakable], y[breakable]
    if not len(x):
        return
    radius = _radius_of_grey(threat.norm, x)
    # 50 steps of a twentieth of the radius, from the image: at this size a random start is an attack of its own.
    attack = PGD(Threat(threat.norm, radius), 50, 0.05, "eps", "margin", random_start=False)
    left = int((_margins(ask, attack, x, y) <= 0).sum())
    if left >= FEW and left > MAY_RESIST * len(x):
        yield Suspicion(
            "accuracy-at-large-eps",
            f"PGD-50 at {threat.norm} {radius:.3g} leaves {left} of {len(x)} images standing, though plain grey lies within "
            "that radius of each and the model takes it for another class",
            "the attack fails, the model does not resist: quote no gradient attack alone; run Square (in `--suite autoattack`) "
            "and transfer, and attack a copy of the model without the step that hides the gradient",
        )


def _flat(before: Tensor, after: Tensor) -> str:
    """Empty if the loss rose; else the figures. Paired, and only of images that still stood: past that, loss may saturate."""
    standing = before <= 0
    rise = (after - before)[standing]
    n, rose = len(rise), int((rise > 0).sum())
    if n - rose < FEW or n - rose <= MAY_BE_FLAT * n:
        return ""
    return f"the margin loss rose for only {rose} of the {n} images that still stood (mean change {float(rise.mean()):.3g})"


def _radius_of_grey(norm: str, x: Tensor) -> float:
    """The radius at which every image can turn plain grey, so that all of them can meet."""
    pixels = x[0].numel()
    return {"linf": 0.5, "l2": 0.5 * math.sqrt(pixels), "l1": 0.5 * pixels}[norm]


def _margins(ask: Queries, attack: Attack, x: Tensor, y: Tensor) -> Tensor:
    return margin(ask(attack(ask, x, y)), y)


def _l1(grad: Tensor) -> Tensor:
    return grad.abs().flatten(1).sum(1)
