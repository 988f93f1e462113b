"""Faster forms of a model, each the same function: a frozen twin to attack, and torch.compile where it pays."""

import copy
import sys
import time
from typing import Literal, get_args

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from robustvit.attacks.base import forget
from robustvit.sizes import filled

Compile = Literal["auto", "never", "default", "reduce-overhead", "max-autotune-no-cudagraphs"]
COMPILE: tuple[str, ...] = get_args(Compile)

# Compiling takes a minute or two and saves a quarter of the time at least, so it pays for work of more than this, in seconds.
PAYS_FROM = 480.0


def frozen_twin(model: nn.Module) -> nn.Module:
    """A second module on the very same weights and buffers, whose parameters take no gradient.

    What is attacked and what learns are then two modules, neither of which ever changes between taking gradients and not: one
    compiled callable whose `requires_grad` was toggled has been seen to go on with the other's graph. Weights must from now on
    be changed in place, as optimisers, averages and `load_state_dict` do.
    """
    forget(model)  # what a module remembers of its weights is no leaf, and could not be copied
    shared: dict[int, object] = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()}
    shared |= {id(buffer): buffer.detach() for buffer in model.buffers()}
    return copy.deepcopy(model, shared)


class Compiled(nn.Module):
    """The same model, compiled; its answers are its own, not the memory of a graph that the next call fills again.

    With `sizes` it is compiled for all batch sizes at once, and batches are filled up to one of few; that shows nowhere.
    """

    def __init__(self, model: nn.Module, mode: Compile, sizes: bool = False) -> None:
        super().__init__()
        self.model, self.sizes = model, sizes
        self.fast = torch.compile(model, mode=mode)

    def forward(self, x: Tensor) -> Tensor:
        count = len(x)
        if self.sizes:
            if spare := max(filled(count), 2) - count:  # one image would be compiled for apart
                x = torch.cat([x, x[-1:].expand(spare, *x.shape[1:])])
            torch._dynamo.maybe_mark_dynamic(x, 0)
        logits: Tensor = self.fast(x)
        return logits[:count].clone()


class Trial:
    """Decides once whether a training is compiled. `auto` times its first steps on a GPU, uncompiled; a CPU's it leaves so.

    Compiling takes minutes, so a small job is done sooner without it.
    """

    WARM, TIMED = 5, 20  # steps

    def __init__(self, mode: Compile, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.mode: Compile | None = "never" if mode == "auto" and accelerator.device.type == "cpu" else mode
        self.steps, self.started = 0, 0.0

    def verdict(self, left: int) -> Compile | None:
        """Asked before each step, `left` of which are to come; answers once, with how to go on."""
        if self.mode != "auto":
            answer, self.mode = self.mode, None
            return answer
        self.steps += 1
        if self.steps == self.WARM + 1:
            self.started = self._now()
        if self.steps <= self.WARM + self.TIMED:
            return None
        # The mean of all processes, so that all decide alike.
        taken = torch.tensor((self._now() - self.started) / self.TIMED, device=self.accelerator.device)
        seconds = left * float(self.accelerator.reduce(taken, "mean"))
        self.mode = None
        pays = seconds > PAYS_FROM
        if self.accelerator.is_main_process:
            what = "which compiling shortens" if pays else "too little to compile for; compile=default insists"
            print(f"compile: {'default' if pays else 'never'}, about {seconds / 60:.0f} min left, {what}", file=sys.stderr)
        return "default" if pays else "never"

    def _now(self) -> float:
        if self.accelerator.device.type == "cuda":
            torch.cuda.synchronize()
        return time.monotonic()
