"""Signs that a model hides its gradient instead of resisting: a robustness number with one of them is suspect.

After Athalye et al. (2018), Carlini et al. (2019) and the flags of AutoAttack (Croce & Hein, 2020). The thresholds lie between what
healthy models (undefended, adversarially trained, linear, of two classes) and made defences were measured to do.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robustvit.attacks import PGD, Attack, Model, Queries, attackable
from robustvit.attacks.losses import cross_entropy, margin
from robustvit.threat import Threat

IMAGES = 64
FEW = 2  # a single image is never evidence of how an attack fares

# Of the largest logit. Kernels that sum in changing order stay below 1e-5 of it.
ROUNDING = 1e-4
# A blind image's gradient promises less than this share of its margin for moving every pixel through its whole range; an
# adversarially trained model's promises twice the margin, others more.
BLIND = 1e-2
# Cross-entropy's gradient over the margin's is about 1 − p_y: 1e-20 is a lead of 46 logits. Undefended models trained for long
# reach 33 (1e-14), where it still points somewhere; at 104 it is exactly zero.
STARVED = 1e-20
# Share of the images that may show a sign of masking by accident. Rising losses rise for 9 in 10 images or more, jagged ones for
# half.
MAY_BE_BLIND = 0.1
MAY_BE_FLAT = 0.25
MAY_RESIST = 0.05
# Of the radius at which every image can turn grey: below, the loss rises no more than its rounding.
TOO_SMALL = 1e-4
# The reference's threshold: black-box gains up to 0.2% of all images are chance.
CHANCE = 0.002


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A named warning: what was measured, and what to do next."""

    name: str
    message: str
    advice: str


def probe(model: Model, x: Tensor, y: Tensor, threat: Threat, seed: int = 0) -> list[Suspicion]:
    """Look for masked gradients on (up to 64) images that the model gets right, for some 175 passes an image.

    Probabilities instead of logits starve every later check, so that they end the search.
    """
    x, y = x[:IMAGES], y[:IMAGES]
    if not len(x):
        return []
    with attackable(model):
        ask = Queries.of(model).exactly()
        found = list(_outputs(ask, x))
        if not any(suspicion.name == "softmax-output" for suspicion in found):
            found += [*_gradients(ask, x, y), *_climbs(ask, x, y, threat, seed), *_large_eps(ask, x, y, threat)]
        return found


def of_stages(stages: Sequence[Mapping[str, Any]], n: int) -> list[Suspicion]:
    """Did Square break what the gradient attacks had left? `stages` as they ran on the `n` images of an evaluation."""
    squares = [i for i, stage in enumerate(stages) if stage["name"].startswith("square")]
    if not squares or squares[0] == 0:
        return []
    first = squares[0]
    broken, entered = (sum(stages[i][key] for i in squares) for key in ("broken", "entered"))
    later = sum(stage["broken"] for i, stage in enumerate(stages) if i > first and i not in squares)
    # Where gradient attacks follow (version plus) they might have found the same images: Square must beat them.
    if broken < FEW or broken <= CHANCE * n or broken <= later:
        return []
    before = ", ".join(stage["name"] for stage in stages[:first])
    return [
        Suspicion(
            "black-box-beats-white-box",
            f"Square broke {broken} of the {entered} images that {before} had left ({broken / n:.1%} of all {n}; "
            f"up to {max(FEW - 1, int(CHANCE * n))} would be chance)",
            "the gradient attacks miss examples that exist: run `--suite autoattack --version plus`, Square with more queries "
            "and other seeds, and an attack on a copy of the model without the step that hides its gradient",
        )
    ]


def _outputs(ask: Queries, x: Tensor) -> Iterator[Suspicion]:
    logits, again = ask(x), ask(x)
    if bool((logits >= 0).all()) and bool(((logits.sum(1) - 1).abs() < 1e-4).all()):
        yield Suspicion(
            "softmax-output",
            f"the outputs are probabilities: none is negative and each row sums to 1 (n = {len(x)})",
            "return logits: take the softmax off the model; attacks starve on its flat ends, and the other checks of the "
            "gradient wait for logits too",
        )
    change = float((logits - again).abs().max() / logits.abs().max().clamp(min=1e-30))
    if change > ROUNDING:
        flips = int((logits.argmax(1) != again.argmax(1)).sum())
        yield Suspicion(
            "randomised-output",
            f"two passes over the same {len(x)} images differ by up to {change:.2g} of the largest logit, and {flips} "
            f"predictions with them",
            "average over the randomness: `--suite autoattack --version rand`; if it is dropout, put the model in eval mode",
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
    """PGD must get further with more steps and in a larger ball. All with the same start and, in eps, the same steps."""
    largest = _reaches_grey(threat, x)
    if threat.eps < TOO_SMALL * largest.eps:
        return

    def reached(eps: float, steps: int = 10) -> Tensor:
        # The same step for 1 as for 10, or one would already end at the corner that is a linear model's best.
        attack = PGD(Threat(threat.norm, eps), steps, step=0.25, step_unit="eps", loss="margin", seed=seed)
        return _margins(ask, attack, x, y)

    eps = min(threat.eps, largest.eps)
    whole = reached(eps)
    if flat := _flat(reached(eps, steps=1), whole):
        yield Suspicion(
            "loss-flat-in-steps",
            f"PGD at {threat.norm} {eps:.3g}: from 1 to 10 steps {flat}",
            "the gradient points nowhere useful: compare with Square (in `--suite autoattack`), average gradients over "
            "small input noise, or attack a copy of the model without the step that hides it",
        )
    half, double = reached(eps / 2), reached(min(2 * eps, largest.eps)) if 2 * eps <= largest.eps else None
    pairs = [(eps / 2, eps, half, whole)] + ([(eps, 2 * eps, whole, double)] if double is not None else [])
    for low, high, before, after in pairs:
        if flat := _flat(before, after):
            yield Suspicion(
                "loss-flat-in-eps",
                f"PGD-10 in {threat.norm}: from eps {low:.3g} to {high:.3g} {flat}",
                "a larger ball holds every example of the smaller: look at the whole curve (`--suite sweep`), which must fall "
                "to 0, and run attacks without gradients (Square, transfer)",
            )
            return


def _large_eps(ask: Queries, x: Tensor, y: Tensor, threat: Threat) -> Iterator[Suspicion]:
    """At a radius where every image can become plain grey, whatever is not of grey's class can be broken: does PGD do it?"""
    grey = ask(torch.full_like(x[:1], 0.5)).argmax(1)
    breakable = y != grey
    x, y = x[breakable], y[breakable]
    if not len(x):
        return
    largest = _reaches_grey(threat, x)
    # 50 steps of a twentieth of the radius; no random start, which at this size is an attack of its own.
    attack = PGD(largest, 50, step=0.05, step_unit="eps", loss="margin", random_start=False)
    left = int((_margins(ask, attack, x, y) <= 0).sum())
    if left >= FEW and left > MAY_RESIST * len(x):
        yield Suspicion(
            "accuracy-at-large-eps",
            f"PGD-50 at {largest.norm} {largest.eps:.3g} leaves {left} of {len(x)} images standing, though plain grey lies "
            "within that radius of each and fools the model",
            "the attack fails, not the model resists: quote no gradient attack; run Square and transfer attacks, and attack "
            "a copy of the model without the step that hides the gradient",
        )


def _flat(before: Tensor, after: Tensor) -> str:
    """Empty if the loss rose; else the figures. Paired, and only of images that still stood: past that, loss may saturate."""
    standing = before <= 0
    rise = (after - before)[standing]
    n, rose = len(rise), int((rise > 0).sum())
    if n - rose < FEW or n - rose <= MAY_BE_FLAT * n:
        return ""
    return f"the margin loss rose for only {rose} of the {n} images that still stood (mean change {float(rise.mean()):.3g})"


def _reaches_grey(threat: Threat, x: Tensor) -> Threat:
    pixels = x[0].numel()
    return Threat(threat.norm, {"linf": 0.5, "l2": 0.5 * math.sqrt(pixels), "l1": 0.5 * pixels}[threat.norm])


def _margins(ask: Queries, attack: Attack, x: Tensor, y: Tensor) -> Tensor:
    return margin(ask(attack(ask, x, y)), y)


def _l1(grad: Tensor) -> Tensor:
    return grad.abs().flatten(1).sum(1)
