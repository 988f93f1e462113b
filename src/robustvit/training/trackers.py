"""Trackers: the lines of metrics.jsonl shown elsewhere as they are written, through Accelerate. The file stays the truth."""

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from accelerate.tracking import GeneralTracker, MLflowTracker, TensorBoardTracker, TrackioTracker, WandBTracker

from robustvit import storage
from robustvit.config import Recipe, flat, to_data
from robustvit.errors import UserError, unknown
from robustvit.training.folder import RunFolder

PROJECT = "robustvit"


@dataclass(frozen=True, slots=True)
class Kind:
    """How a tracker opens a run, and what it then calls it.

    `open` takes the recipe's name, the folder, what the tracker calls the run already (None: it is new) and the step.
    """

    open: Callable[[str, Path, str | None, int], GeneralTracker]
    identity: Callable[[Any], str]


TRACKERS: dict[str, Kind] = {
    # What a killed run logged after its checkpoint is logged again; purge_step hides the first version.
    "tensorboard": Kind(
        lambda name, folder, identity, step: TensorBoardTracker("tensorboard", folder, purge_step=step + 1),
        lambda writer: "tensorboard",
    ),
    "wandb": Kind(
        lambda name, folder, identity, step: WandBTracker(PROJECT, name=name, dir=str(folder), id=identity, resume="allow"),
        lambda run: run.id,
    ),
    "mlflow": Kind(
        lambda name, folder, identity, step: MLflowTracker(PROJECT, run_name=name, run_id=identity),
        lambda run: run.info.run_id,
    ),
    "trackio": Kind(
        lambda name, folder, identity, step: TrackioTracker(
            PROJECT, name=identity or f"{name}-{uuid4().hex[:6]}", resume="allow"
        ),
        lambda run: run.name,
    ),
}


def check_trackers(names: Sequence[str]) -> None:
    """Refuse what cannot be opened, before a run costs anything."""
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
        spec = find_spec(name)
        if spec is None or spec.origin is None:  # without an origin it is only a folder of that name, as W&B leaves one
            raise UserError(f"track: {name} is not installed; pip install {name}, or leave --track {name} out")


class Trackers:
    """The open trackers of a run; it goes on in them where it was, as their names for it are kept in tracking.json.

    One that fails while the run goes on is left out with a warning: a training of days shall not end with its display.
    """

    def __init__(self, names: Sequence[str], folder: RunFolder, recipe: Recipe, step: int) -> None:
        self.folder = folder
        self.open: dict[str, GeneralTracker] = {}
        if not names:
            return
        identities: dict[str, str] = json.loads(folder.tracking.read_text()) if folder.tracking.exists() else {}
        for name in dict.fromkeys(names):
            known = identities.get(name)
            try:
                tracker = TRACKERS[name].open(recipe.name, folder.path, known, step)
                tracker.start()
                if known is None:
                    tracker.store_init_configuration(flat(to_data(recipe)))
            except Exception as error:  # each tracker has its own kinds; all mean that it will show nothing
                self.finish()
                raise UserError(f"track: {name} could not be started: {error}") from error
            self.open[name] = tracker
            identities[name] = TRACKERS[name].identity(tracker.tracker)
            storage.replace_file(folder.tracking, json.dumps(identities, indent=2).encode)
            if known is None:  # one that joins later sees the run from its beginning
                self._guarded(name, self._send, name, folder.records())

    def log(self, record: dict[str, Any]) -> None:
        for name in list(self.open):
            self._guarded(name, self._send, name, [record])

    def finish(self) -> None:
        for name, tracker in list(self.open.items()):
            self._guarded(name, tracker.finish)
        self.open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.finish()

    def _send(self, name: str, records: list[dict[str, Any]]) -> None:
        for record in records:
            self.open[name].log({key: value for key, value in record.items() if key != "step"}, step=record["step"])

    def _guarded(self, name: str, action: Callable[..., None], *arguments: Any) -> None:
        try:
            action(*arguments)
        except Exception as error:
            del self.open[name]
            warnings.warn(
                f"{name} failed and shows nothing from here on ({error}); the run goes on, {self.folder.metrics} has it all",
                stacklevel=2,
            )
