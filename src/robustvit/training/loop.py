"""fit(): the training loop.

Every step's randomness and data follow from (seed, step), so a run can stop anywhere and go on bit for bit.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import Tensor, nn
from torch.optim import Optimizer

from robustvit.config import Recipe
from robustvit.data import Images, hold_out
from robustvit.data.augment import Luck, augmented
from robustvit.data.loading import Feed, open_feed
from robustvit.device import find_device
from robustvit.errors import UserError
from robustvit.evaluation.judge import check_fits, judge
from robustvit.models import Classifier, build, fingerprint, resolved
from robustvit.objectives import Objective
from robustvit.objectives.awp import perturbed_weights
from robustvit.progress import progress
from robustvit.training import checkpoint
from robustvit.training.calendar import Calendar, step_seed
from robustvit.training.checkpoint import Restored, State
from robustvit.training.ema import Ema, averaged
from robustvit.training.folder import RunFolder, open_run
from robustvit.training.meter import Meter
from robustvit.training.optimizer import make_optimizer, set_lr
from robustvit.training.schedule import Phase, Progress, train_mode
from robustvit.training.trackers import Trackers, check_trackers

DIGESTED = 4096  # training images whose pixels tell a set from another
Batch = tuple[Tensor, Tensor, Tensor]  # x, x_adv, y


def fit(recipe: Recipe, out: str | Path, device: str | None = None, save_every: int = 500, track: Sequence[str] = ()) -> Path:
    """Train by the recipe, into the folder `out`; if it holds this run already, go on where it stopped.

    The state is saved at the end of each epoch and, in long ones, every `save_every` steps. `track` names trackers that show
    what is logged meanwhile.
    """
    check_trackers(track)
    accelerator = Accelerator(cpu=find_device(device).type == "cpu")
    run, restored = _start(recipe, Path(out), accelerator, track)
    calendar, state, size = run.calendar, run.state, recipe.batch_size
    shown = accelerator.is_main_process
    with run.trackers, progress(calendar.total * size, recipe.name, done=state.step * size, shown=shown) as advance:
        for index, phase in enumerate(recipe.phases):
            if state.step >= calendar.end(index):
                continue
            phase.select_parameters(run.model)
            optimizer = make_optimizer(recipe.optim, run.model)
            if restored and state.phase == index:
                restored.load_optimizer(optimizer)
            state.phase = index
            wrapped, optimizer = accelerator.prepare(run.model, optimizer)
            for step in range(state.step, calendar.end(index)):
                now = calendar.progress(index, step)
                lr = recipe.optim.lr * recipe.optim.schedule(now)
                set_lr(optimizer, lr)
                run.step(wrapped, optimizer, phase, now, step)
                state.step = step + 1
                advance(size, run.note)
                epoch, within = divmod(state.step, calendar.steps_per_epoch)
                if within == 0 or within % save_every == 0:
                    run.log({"lr": lr, "eps": phase.eps(now)})
                    if within == 0 and (epoch % recipe.select_every == 0 or state.step == calendar.total):
                        run.select(epoch)
                    if within == 0:
                        run.keep(epoch)
                    run.save(optimizer)
    run.finish()
    return run.folder.path


def _start(recipe: Recipe, out: Path, accelerator: Accelerator, track: Sequence[str]) -> tuple["_Run", Restored | None]:
    """Build everything once, so that a recipe that cannot work fails before the folder is touched."""
    if recipe.batch_size % (recipe.accumulate * accelerator.num_processes):
        raise UserError(
            f"batch_size: {recipe.batch_size} does not divide into accumulate {recipe.accumulate} × "
            f"{accelerator.num_processes} processes"
        )
    torch.manual_seed(recipe.seed)
    model = build(recipe.model)
    spec = recipe.data.fitted(model.input_size, model.crop)
    real, held_out = hold_out(spec.load("train"), recipe.seed)
    train, held_out = spec.mixed(real).to(accelerator.device), held_out.kept().to(accelerator.device)
    check_fits(model, train)
    calendar = Calendar(recipe, len(real), len(train) - len(real))
    for phase in recipe.phases:
        phase.select_parameters(model)
        make_optimizer(recipe.optim, model)
    model.to(accelerator.device)
    ema = Ema(model, recipe.ema) if recipe.ema else None

    state = State(recipe.hash(), real.digest(DIGESTED))
    folder = open_run(out, recipe) if accelerator.is_main_process else RunFolder(out)
    accelerator.wait_for_everyone()
    restored = checkpoint.load_state(folder.state) if folder.state.exists() else None
    if restored:
        restored.check(folder.state, state, model)
        model.load_state_dict(restored.model)
        if ema:
            ema.load(restored.ema)
        state = restored.state
    if accelerator.is_main_process:
        folder.begin(recipe, state.log_lines)
    meter = Meter(accelerator)
    parts = calendar.parts(state.step, accelerator.process_index, accelerator.num_processes)
    feed = open_feed(train, spec, parts, recipe.seed)
    trackers = Trackers(track if accelerator.is_main_process else (), folder, recipe, state.step)
    return _Run(recipe, accelerator, folder, calendar, train, feed, held_out, model, ema, state, meter, trackers), restored


@dataclass
class _Run:
    """The parts of a run that its steps share."""

    recipe: Recipe
    accelerator: Accelerator
    folder: RunFolder
    calendar: Calendar
    train: Images
    feed: Feed
    held_out: Images
    model: Classifier
    ema: Ema | None
    state: State
    meter: Meter
    trackers: Trackers
    note: str = ""

    def step(self, wrapped: nn.Module, optimizer: Optimizer, phase: Phase, now: Progress, step: int) -> None:
        """One optimiser step on this process's share of a global batch, in `accumulate` micro-batches."""
        torch.manual_seed(step_seed(self.recipe.seed, step, self.accelerator.process_index))
        parts = self._share(self.calendar.batch(step)).chunk(self.recipe.accumulate)
        train_mode(wrapped)
        objective, gamma = phase.at(now), phase.weight_gamma(now)
        batches: Iterable[Batch] = self._attacked(self._augmented(parts, phase.augment(now), step), objective)
        if gamma:  # the perturbation needs all micro-batches before the first loss; otherwise one at a time is held
            batches = list(batches)
        with self._moved_weights(objective, batches, gamma) if gamma else nullcontext():
            for number, (x, x_adv, y) in enumerate(batches, 1):
                # Processes exchange gradients once a step, with the last part.
                with nullcontext() if number == len(parts) else self.accelerator.no_sync(wrapped):
                    with self._autocast():
                        loss = objective.loss(wrapped, x, x_adv, y)
                    self.accelerator.backward(loss.value / len(parts))
                self.meter.add(loss, len(x), step)
        if self.recipe.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        optimizer.step()
        optimizer.zero_grad()
        self._share_buffers()
        if self.ema:
            self.ema.update(self.model)

    def _share_buffers(self) -> None:
        """Running statistics are those of the first process everywhere: it saves them, and all attack and judge with them."""
        if self.accelerator.num_processes > 1:
            broadcast([buffer for buffer in self.model.buffers() if buffer.numel()])

    def _augmented(self, parts: Iterable[Tensor], strength: float, step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Micro-batches of images given by their places, each augmented by its own luck."""
        epoch, classes = step // self.calendar.steps_per_epoch, self.recipe.model.num_classes
        for part in parts:
            luck = Luck.of(part, self.recipe.seed, epoch)
            yield augmented(*self.feed(part), self.recipe.data.augment, luck, classes, strength)

    def _attacked(self, batches: Iterable[tuple[Tensor, Tensor]], objective: Objective) -> Iterator[Batch]:
        """Micro-batches with their adversarial images, each made when it is asked for."""
        for x, y in batches:
            with self._autocast():
                x_adv = objective.attack(self.model, x, y)
            yield x, x_adv, y

    def _moved_weights(self, objective: Objective, batches: Iterable[Batch], gamma: float) -> AbstractContextManager[None]:
        """Weights perturbed against the loss of the whole global batch, so that neither micro-batches nor processes show."""

        def share(x: Tensor, x_adv: Tensor, y: Tensor) -> Tensor:
            with self._autocast():
                return objective.loss(self.model, x, x_adv, y).value / self.recipe.accumulate

        losses = (partial(share, *batch) for batch in batches)
        return perturbed_weights(self.model, gamma, losses, lambda gradient: self.accelerator.reduce(gradient, "mean"))

    def select(self, epoch: int) -> None:
        """Keep the weights as best if they are more accurate on the held-out images, under the recipe's attack."""
        share = self._share(torch.arange(len(self.held_out)))
        correct = 0
        with averaged(self.model, self.ema):
            if len(share):
                correct = int(judge(self.model, self.held_out.subset(share), self.recipe.select).correct.sum())
            counted = self.accelerator.reduce(torch.tensor([correct], device=self.accelerator.device), "sum")
            score = int(counted) / len(self.held_out)
            self._record({"held_out_accuracy": score, "held_out_images": len(self.held_out)})
            self.note = f"epoch {epoch}/{self.recipe.epochs}, held-out accuracy {score:.1%}"
            if score > self.state.best:
                self.state.best = score
                self._export(self.folder.best)

    def keep(self, epoch: int) -> None:
        """The weights of this epoch, if the recipe asks for them."""
        if self.recipe.keep_every and epoch % self.recipe.keep_every == 0:
            with averaged(self.model, self.ema):
                self._export(self.folder.epoch(epoch))

    def log(self, scheduled: dict[str, float]) -> None:
        self.meter.check_finite(self.model, self.state.step, self.folder.state.parent)
        self._record({**scheduled, **self.meter.means()})

    def save(self, optimizer: Optimizer) -> None:
        if self.accelerator.is_main_process:
            average = self.ema.average if self.ema else {}
            checkpoint.save_state(self.folder.state, self.state, self.model, average, optimizer)

    def finish(self) -> None:
        if not self.folder.last.exists():
            with averaged(self.model, self.ema):
                self._export(self.folder.last)
        self.accelerator.wait_for_everyone()

    def _share(self, index: Tensor) -> Tensor:
        """This process's part of images given by their places."""
        return index[self.accelerator.process_index :: self.accelerator.num_processes].to(self.train.x.device)

    def _record(self, record: dict[str, float]) -> None:
        self.state.log_lines += 1
        if self.accelerator.is_main_process:
            epoch = self.state.step / self.calendar.steps_per_epoch
            record = {"step": self.state.step, "epoch": epoch, **record}
            self.folder.log(record)
            self.trackers.log(record)

    def _export(self, path: Path) -> None:
        if self.accelerator.is_main_process:
            meta = {"step": self.state.step, "held_out_accuracy": self.state.best, "recipe": self.recipe.hash()}
            meta["fingerprint"] = fingerprint(self.model)  # by which outcomes are known to be of this model
            checkpoint.save_weights(path, resolved(self.recipe.model, self.model), self.model.state_dict(), meta)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.accelerator.device.type, torch.bfloat16, enabled=self.recipe.precision == "bf16")
