"""fit(): the training loop.

Every step's randomness and data follow from (seed, step), so a run can stop anywhere and go on bit for bit.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor

from robustvit.compiling import Trial
from robustvit.config import Recipe
from robustvit.data import Images, hold_out
from robustvit.data.augment import Luck, augmented
from robustvit.data.loading import Feed, open_feed
from robustvit.device import find_device
from robustvit.errors import UserError
from robustvit.evaluation.fits import check_fits
from robustvit.evaluation.judge import judge
from robustvit.models import build, fingerprint, resolved
from robustvit.progress import progress
from robustvit.training import checkpoint
from robustvit.training.calendar import Calendar, step_seed
from robustvit.training.checkpoint import Restored, State
from robustvit.training.ema import averaged
from robustvit.training.folder import RunFolder, open_run
from robustvit.training.interruption import Interruption
from robustvit.training.learner import Batch, Learner, check_learns
from robustvit.training.optimizer import make_optimizer, set_lr
from robustvit.training.remarks import remarks
from robustvit.training.schedule import Phase, Progress
from robustvit.training.trackers import Trackers, check_trackers

DIGESTED = 4096  # training images whose pixels tell a set from another


def fit(recipe: Recipe, out: str | Path, device: str | None = None, save_every: int = 500, track: Sequence[str] = ()) -> Path:
    """Train by the recipe, into the folder `out`; if it holds this run already, go on where it stopped.

    The state is saved at the end of each epoch and, in long ones, every `save_every` steps. `track` names trackers that show
    what is logged meanwhile.
    """
    check_trackers(track)
    accelerator = Accelerator(cpu=find_device(device).type == "cpu")
    with ExitStack() as exits:
        run, restored = _start(recipe, Path(out), accelerator, track, exits)
        exits.enter_context(run.trackers)
        _train(run, restored, save_every)
        run.finish()
    return run.folder.path


def _train(run: "_Run", restored: Restored | None, save_every: int) -> None:
    """Every step that is left, phase by phase."""
    recipe, calendar, state, size = run.recipe, run.calendar, run.state, run.recipe.batch_size
    shown = progress(calendar.total * size, recipe.name, done=state.step * size, shown=run.accelerator.is_main_process)
    with shown as advance, Interruption(run.accelerator.num_processes == 1) as interruption:
        advance(0, f"{len(run.train):,} images, {run.accelerator.device.type}")
        for index, phase in enumerate(recipe.phases):
            if state.step >= calendar.end(index):
                continue
            run.learner.begin(phase, restored.optimizer if restored and state.phase == index else None)
            state.phase = index
            for step in range(state.step, calendar.end(index)):
                now = calendar.progress(index, step)
                lr = recipe.optim.lr * recipe.optim.schedule(now)
                set_lr(run.learner.optimizer, lr)
                run.step(phase, now, step)
                state.step = step + 1
                epoch, within = divmod(state.step, calendar.steps_per_epoch)
                stop = interruption.asked  # once: a signal may come at any moment, and must not be heeded by half
                if within == 0 or within % save_every == 0 or stop:
                    eps = phase.at(now).eps
                    run.log({"lr": lr} if eps is None else {"lr": lr, "eps": eps})
                    if within == 0 and (epoch % recipe.select_every == 0 or state.step == calendar.total):
                        run.select(epoch)
                    if within == 0:
                        run.keep(epoch)
                    run.save()
                advance(size, run.note)
                if stop and state.step < calendar.total:
                    raise KeyboardInterrupt


def _start(
    recipe: Recipe, out: Path, accelerator: Accelerator, track: Sequence[str], exits: ExitStack
) -> tuple["_Run", Restored | None]:
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
    for threat in recipe.threats:
        threat.check_fits(train.shape)
    check_fits(model, held_out)
    check_learns(model, held_out.batch(slice(1))[0].cpu().expand(2, *held_out.shape))
    calendar = Calendar(recipe, len(real), len(train) - len(real))
    for phase in recipe.phases:
        phase.check_strength(recipe.data.augment)
        phase.select_parameters(model)
        make_optimizer(recipe.optim, model)
    learner = Learner(recipe, accelerator, model)
    state = State(recipe.hash(), real.digest(DIGESTED))
    folder = open_run(out, recipe) if accelerator.is_main_process else RunFolder(out)
    if accelerator.is_main_process:
        exits.enter_context(folder.alone())
        for remark in remarks(recipe):
            print(f"note: {remark}", file=sys.stderr)
    accelerator.wait_for_everyone()
    restored = checkpoint.load_state(folder.state) if folder.state.exists() else None
    if restored:
        restored.check(folder.state, state, model)
        model.load_state_dict(restored.model)
        if learner.ema:
            learner.ema.load(restored.ema)
        state = restored.state
    if accelerator.is_main_process:
        if restored:
            epoch = state.step // calendar.steps_per_epoch
            done = state.step == calendar.total
            print(f"note: {'trained already' if done else f'goes on after epoch {epoch}, step {state.step}'}", file=sys.stderr)
        folder.begin(recipe, state.log_lines)
    parts = calendar.parts(state.step, accelerator.process_index, accelerator.num_processes)
    feed = open_feed(train, spec, parts, recipe.seed)
    trackers = Trackers(track if accelerator.is_main_process else (), folder, recipe, state.step)
    trial = Trial(recipe.compile, accelerator)
    return _Run(recipe, accelerator, folder, calendar, train, feed, held_out, learner, state, trial, trackers), restored


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
    learner: Learner
    state: State
    trial: Trial
    trackers: Trackers
    note: str = ""

    def step(self, phase: Phase, now: Progress, step: int) -> None:
        """One optimiser step on this process's share of a global batch, in `accumulate` micro-batches."""
        if mode := self.trial.verdict(self.calendar.total - step):
            self.learner.compile(mode)
        torch.manual_seed(step_seed(self.recipe.seed, step, self.accelerator.process_index))
        parts = self._share(self.calendar.batch(step)).chunk(self.recipe.accumulate)
        batches = self._augmented(parts, phase.augment(now), step)
        self.learner.step(batches, len(parts), phase.at(now), phase.weight_gamma(now), step)

    def _augmented(self, parts: Iterable[Tensor], strength: float, step: int) -> Iterator[Batch]:
        """Micro-batches of images given by their places, each augmented by its own luck."""
        epoch, classes = step // self.calendar.steps_per_epoch, self.recipe.model.num_classes
        for part in parts:
            luck = Luck.of(part, self.recipe.seed, epoch)
            yield augmented(*self.feed(part), self.recipe.data.augment, luck, classes, strength)

    def select(self, epoch: int) -> None:
        """Keep the weights as best if they are more accurate on the held-out images, under the recipe's attack."""
        share = self._share(torch.arange(len(self.held_out)))
        correct = 0
        with self._averaged():
            if len(share):
                correct = int(judge(self.learner.model, self.held_out.subset(share), self.recipe.select).correct.sum())
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
            with self._averaged():
                self._export(self.folder.epoch(epoch))

    def log(self, scheduled: dict[str, float]) -> None:
        self.learner.meter.check_finite(self.learner.model, self.state.step, self.folder.state.parent)
        self._record({**scheduled, **self.learner.meter.means()})

    def save(self) -> None:
        if self.accelerator.is_main_process:
            average = self.learner.ema.average if self.learner.ema else {}
            checkpoint.save_state(self.folder.state, self.state, self.learner.model, average, self.learner.optimizer)

    def finish(self) -> None:
        if not self.folder.last.exists():
            with self._averaged():
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
            model = self.learner.model
            meta = {"step": self.state.step, "held_out_accuracy": self.state.best, "recipe": self.recipe.hash()}
            meta["fingerprint"] = fingerprint(model)  # by which outcomes are known to be of this model
            meta["classes"] = self.train.classes  # by which sets are known to mean the same by their labels
            checkpoint.save_weights(path, resolved(self.recipe.model, model), model.state_dict(), meta)

    def _averaged(self) -> AbstractContextManager[None]:
        return averaged(self.learner.model, self.learner.ema)
