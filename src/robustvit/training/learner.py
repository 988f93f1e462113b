"""One training step: attack, loss, gradient, optimiser, average. What is learned is the objective's, how fast is ours."""

import copy
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import Tensor, nn
from torch.optim import Optimizer

from robustvit.compiling import Compile, Compiled, frozen_twin
from robustvit.config import Recipe
from robustvit.errors import UserError
from robustvit.models import Classifier
from robustvit.objectives import Objective
from robustvit.objectives.awp import perturbed_weights
from robustvit.precision import arithmetic
from robustvit.training.ema import Ema
from robustvit.training.meter import Meter
from robustvit.training.optimizer import make_optimizer
from robustvit.training.schedule import Phase, train_mode

Batch = tuple[Tensor, Tensor]  # x, y
Attacked = tuple[Tensor, Tensor, Tensor]  # x, x_adv, y


class Learner:
    """A model and all that a step changes; it knows nothing of sets, epochs or folders.

    `model` is never compiled, so that verdicts are asked of it. `attacked` has its weights, frozen; `learning` is what losses
    are asked of, through which processes exchange gradients.
    """

    optimizer: Optimizer
    wrapped: nn.Module
    twin: nn.Module
    attacked: nn.Module
    learning: nn.Module

    def __init__(self, recipe: Recipe, accelerator: Accelerator, model: Classifier) -> None:
        self.recipe, self.accelerator = recipe, accelerator
        self.model = model.to(accelerator.device)
        self.ema = Ema(self.model, recipe.ema) if recipe.ema else None
        self.meter = Meter(accelerator)
        self.compiled: Compile = "never"
        if recipe.recompute:
            recompute_activations(self.model)

    def begin(self, phase: Phase, held: dict[str, Any] | None = None) -> None:
        """Choose what learns, and by which optimiser, until the next phase; `held` is an optimiser's state to go on from."""
        phase.select_parameters(self.model)
        optimizer = make_optimizer(self.recipe.optim, self.model)
        if held:
            optimizer.load_state_dict(held)
        self.wrapped, self.optimizer = self.accelerator.prepare(self.model, optimizer)
        self.twin = frozen_twin(self.model).eval()  # only now: preparing may lay the weights elsewhere
        self.compile(self.compiled)

    def compile(self, mode: Compile) -> None:
        """Attack and loss are compiled apart: one follows gradients to images alone, the other to weights."""
        self.compiled = mode
        if mode != "never":
            self.attacked, self.learning = Compiled(self.twin, mode), Compiled(self.wrapped, mode)
        else:
            self.attacked, self.learning = self.twin, self.wrapped

    def step(self, batches: Iterable[Batch], count: int, objective: Objective, gamma: float, step: int) -> None:
        """One optimiser step on `count` micro-batches; with `gamma`, at weights that are perturbed by so much."""
        train_mode(self.wrapped)
        with arithmetic("tf32" if self.recipe.precision == "tf32" else "fp32"):
            attacked: Iterable[Attacked] = self._attack(batches, objective)
            if gamma:  # the perturbation needs all micro-batches before the first loss; otherwise one at a time is held
                attacked = list(attacked)
            with self._moved_weights(objective, attacked, gamma) if gamma else nullcontext():
                for number, (x, x_adv, y) in enumerate(attacked, 1):
                    # Processes exchange gradients once a step, with the last part.
                    with nullcontext() if number == count else self.accelerator.no_sync(self.wrapped):
                        with self.autocast():
                            loss = objective.loss(self.learning, x, x_adv, y)
                        self.accelerator.backward(loss.value / count)
                    self.meter.add(loss, len(x), step)
            if self.recipe.clip:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
            self.optimizer.step()
        self.optimizer.zero_grad()
        self._share_buffers()
        if self.ema:
            self.ema.update(self.model)

    def _attack(self, batches: Iterable[Batch], objective: Objective) -> Iterator[Attacked]:
        """Micro-batches with their adversarial images, each made when it is asked for."""
        if objective.in_train_mode:
            for twin, module in zip(self.twin.modules(), self.model.modules(), strict=True):
                twin.training = module.training
        for x, y in batches:
            with self.autocast():
                x_adv = objective.attack(self.attacked, x, y)
            yield x, x_adv, y

    def _moved_weights(self, objective: Objective, batches: Iterable[Attacked], gamma: float) -> AbstractContextManager[None]:
        """Weights perturbed against the loss of the whole global batch, so that neither micro-batches nor processes show."""

        def share(x: Tensor, x_adv: Tensor, y: Tensor) -> Tensor:
            with self.autocast():
                return objective.loss(self.model, x, x_adv, y).value / self.recipe.accumulate

        losses = (partial(share, *batch) for batch in batches)
        return perturbed_weights(self.model, gamma, losses, lambda gradient: self.accelerator.reduce(gradient, "mean"))

    def _share_buffers(self) -> None:
        """Running statistics are those of the first process everywhere: it saves them, and all attack and judge with them."""
        if self.accelerator.num_processes > 1:
            broadcast([buffer for buffer in self.model.buffers() if buffer.numel()])

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.accelerator.device.type, torch.bfloat16, enabled=self.recipe.precision == "bf16")


def check_learns(model: Classifier, x: Tensor) -> None:
    """Does the model answer in train mode, too? Asked of a copy, before a run's folder is made."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            copy.deepcopy(model).train()(x)
        except Exception as error:  # models fail in many ways
            name = type(model.backbone).__name__
            raise UserError(f"model: {name} fails in train mode on images of shape {tuple(x.shape[1:])}: {error}") from error


def recompute_activations(model: Classifier) -> None:
    """Let each block compute its activations again in the backward pass, not keep them: less memory, a third more work."""
    backbone: Any = model.backbone
    try:
        backbone.set_grad_checkpointing(True)
    except (AttributeError, AssertionError):
        raise UserError(
            f"recompute: True, but {type(backbone).__name__} cannot compute its activations again; accepted: False"
        ) from None
