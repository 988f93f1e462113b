"""How a model is asked while it is attacked: plainly, by CUDA graphs, or compiled where that pays or the user insists."""

import sys
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from robustvit.attacks import Attack, Queries
from robustvit.attacks.losses import margin
from robustvit.compiling import COMPILE, PAYS_FROM, Compile, Compiled
from robustvit.errors import unknown
from robustvit.evaluation.suites import Suite


@dataclass
class Speed:
    """A faster form of the model, if it has one, and the seconds that compiling it took so far; CUDA graphs or none."""

    mode: Compile
    model: nn.Module | None = None
    graphs: bool = True
    seconds: float = 0.0

    def sped_up(self, ask: Queries) -> Queries:
        return replace(ask, fast=self.model, graphs=self.graphs)

    def warm(self, ask: Queries, attack: Attack | None, x: Tensor, y: Tensor) -> None:
        """Ask once in every arithmetic of the attack, so that its own seconds are not the compiler's."""
        if self.model is None or attack is None:
            return
        started = time.monotonic()
        for precision in {getattr(stage, "precision", None) or ask.precision for stage in attack.stages}:
            fast = Queries(ask.model, precision=precision, fast=self.model)
            fast(x)
            fast.gradient(x, margin, y)
        _wait(x)
        self.seconds += time.monotonic() - started


def choose(mode: Compile, ask: Queries, x: Tensor, y: Tensor, suite: Suite, classes: int, images: int) -> Speed:
    """`auto` compiles on a GPU alone, and only what lasts long by the time that one batch takes; it says what it chose.

    Who says `never` himself gets the plain form of everything, without CUDA graphs too.
    """
    if mode not in COMPILE:
        raise unknown("compile", mode, COMPILE)
    graphs = mode != "never"
    if mode == "auto":
        mode = "never"
        if x.is_cuda:
            calls = images * sum(attack.cost(classes) for attack in suite if attack)
            seconds = calls * _pace(ask, x, y)
            if pays := seconds > PAYS_FROM:
                mode = "default"
            why = "which compiling shortens" if pays else "too little to compile for; --compile default insists"
            print(f"compile: {mode}, {seconds / 60:.0f} min at most, {why}", file=sys.stderr)
    return Speed(mode, None if mode == "never" else Compiled(_module(ask), mode, sizes=True), graphs)


def _module(ask: Queries) -> nn.Module:
    assert isinstance(ask.model, nn.Module)
    return ask.model


def _pace(ask: Queries, x: Tensor, y: Tensor) -> float:
    """Seconds that an image takes forward or backward."""
    for _ in range(2):
        _wait(x)
        started = time.monotonic()
        ask.gradient(x, margin, y)
        _wait(x)
    return (time.monotonic() - started) / (2 * len(x))


def _wait(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize()
