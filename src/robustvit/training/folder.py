"""The folder of a run: recipe.yaml, metrics.jsonl, checkpoints/, outcomes/, report.html."""

import fcntl
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustvit import config, storage
from robustvit.config import Recipe, flat, to_data
from robustvit.errors import UserError

LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class RunFolder:
    path: Path

    @property
    def state(self) -> Path:
        return self.path / "checkpoints" / "resume.safetensors"

    @property
    def best(self) -> Path:
        return self.path / "checkpoints" / "best.safetensors"

    @property
    def last(self) -> Path:
        return self.path / "checkpoints" / "last.safetensors"

    def epoch(self, number: int) -> Path:
        """The weights at the end of an epoch, which the recipe's `keep_every` keeps."""
        return self.path / "checkpoints" / f"epoch-{number:04}.safetensors"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def tracking(self) -> Path:
        return self.path / "tracking.json"

    def log(self, record: dict[str, Any]) -> None:
        try:
            with open(self.metrics, "a") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise UserError(
                f"{self.metrics}: could not be written ({error.strerror}); the last checkpoint is untouched. "
                "Once that is mended, the same command goes on"
            ) from error

    def records(self) -> list[dict[str, Any]]:
        """What has been logged so far."""
        return [json.loads(line) for line in self.metrics.read_text().splitlines()] if self.metrics.exists() else []

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Two trainings in one folder would overwrite each other's states."""
        with open(self.path / LOCK, "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"out: {str(self.path)!r} is being trained in by another process; wait for its end, or pass another --out"
                ) from None
            except OSError as error:  # a file system without locks
                print(f"note: {self.path} cannot be locked ({error.strerror}): start no second training in it", file=sys.stderr)
            yield

    def begin(self, recipe: Recipe, log_lines: int) -> None:
        """Note the recipe, and forget what was logged after the checkpoint that it goes on from: it will be logged again."""
        config.save(recipe, self.path / "recipe.yaml")
        lines = self.metrics.read_bytes().splitlines(keepends=True) if self.metrics.exists() else []
        if lines[log_lines:]:
            storage.replace_file(self.metrics, lambda: b"".join(lines[:log_lines]))


def open_run(path: Path, recipe: Recipe) -> RunFolder:
    """A new folder, or one that holds this very run."""
    recipe_file = path / "recipe.yaml"
    if recipe_file.exists():
        held = config.load(recipe_file)
        if held.hash() != recipe.hash():
            raise UserError(
                f"out: {str(path)!r} holds another run ({held.name}), which differs in {_first_difference(held, recipe)}. "
                "Pass another --out, or remove the folder if you no longer need it"
            )
    elif path.exists() and (not path.is_dir() or any(each.name != LOCK for each in path.iterdir())):
        raise UserError(f"out: {str(path)!r} exists and is not a run; accepted: a new or empty folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"out: {str(path)!r} cannot be made ({error.strerror}); accepted: a new or empty folder") from None
    return RunFolder(path)


def _first_difference(held: Recipe, wanted: Recipe) -> str:
    old, new = flat(to_data(held, identity=True)), flat(to_data(wanted, identity=True))
    key = next(key for key in [*old, *new] if old.get(key) != new.get(key))
    return f"{key}: {old.get(key)} there, {new.get(key)} here"
