"""Outcome: a number with its evidence. Per-image results are kept; a mean cannot be undone."""

import io
import json
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robustvit import storage
from robustvit.errors import UserError


@dataclass(frozen=True, slots=True)
class Outcome:
    """`correct` per image, arrays that belong to it, and everything needed to make it again."""

    name: str
    correct: np.ndarray
    provenance: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @property
    def n(self) -> int:
        return len(self.correct)

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(int(self.correct.sum()), self.n)

    @property
    def eps(self) -> float:
        threat = self.provenance["threat"]
        return threat["eps"] if threat else 0.0

    @property
    def summary(self) -> dict[str, Any]:
        correct = int(self.correct.sum())
        return {"accuracy": self.accuracy, "correct": correct, "n": self.n, "interval_95": list(self.interval)}

    @property
    def warnings(self) -> list[dict[str, str]]:
        """Signs that the attack was misled rather than the model robust: each a `name`, a `message` and an `advice`."""
        found: list[dict[str, str]] = self.provenance.get("warnings", [])
        return found

    def __str__(self) -> str:
        low, high = self.interval
        suspect = f", suspect: {', '.join(warning['name'] for warning in self.warnings)}" if self.warnings else ""
        return f"{self.name}: {self.accuracy:.1%} (95% interval {low:.1%} to {high:.1%}, n = {self.n}){suspect}"

    def save(self, folder: Path) -> Path:
        path = folder / f"{file_name(self.name)}.json"
        summary = {"name": self.name, **self.summary, **self.provenance}
        # The arrays first: a JSON file means that its evidence is there.
        arrays: dict[str, Any] = {"correct": self.correct, **self.arrays}
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)
        storage.replace_file(folder / f"{file_name(self.name)}.npz", content.getvalue)
        storage.replace_file(path, (json.dumps(summary, indent=2) + "\n").encode)
        return path

    @staticmethod
    def load(path: Path) -> "Outcome":
        try:
            provenance = json.loads(path.read_text())
            with np.load(path.with_suffix(".npz"), allow_pickle=False) as file:
                arrays = dict(file)
            correct, name = arrays.pop("correct"), provenance.pop("name")
            said = provenance.pop("correct"), provenance.pop("n")
            provenance.pop("accuracy"), provenance.pop("interval_95")
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise UserError(f"{path}: not a readable outcome: {error}") from None
        if said != (int(correct.sum()), len(correct)):
            counted = f"{int(correct.sum())} of {len(correct)}"
            raise UserError(f"{path}: says {said[0]} of {said[1]} correct, but the results beside it are {counted}")
        return Outcome(name, correct, provenance, arrays)


def told(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What a terminal shows: the numbers, then each warning once."""
    yield from map(str, outcomes)
    for warning in {str(warning): warning for outcome in outcomes for warning in outcome.warnings}.values():
        yield f"warning, {warning['name']}: {warning['message']}\n  next: {warning['advice']}"


def file_name(outcome: str) -> str:
    return outcome.replace(" ", "_").replace("/", "-")


def wilson(correct: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's 95% interval for a share: honest near 0 and 1 too."""
    share = correct / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)
