"""Finding: what an analysis found, as plain data; files of it are all that a report needs."""

import io
import json
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from robustvit import storage
from robustvit.errors import UserError

FOLDER = "analyses"


@dataclass(frozen=True, slots=True)
class Finding:
    """Numbers and texts in `data` (its `summary` is what to tell a person), images and values an image in `arrays`."""

    name: str
    data: dict[str, Any]
    arrays: dict[str, np.ndarray]
    provenance: dict[str, Any] = field(default_factory=dict)

    def path(self, out: Path) -> Path:
        return out / FOLDER / f"{self.name}.json"

    def save(self, out: Path) -> Path:
        """As OUT/analyses/NAME.json and .npz."""
        path = self.path(out)
        # NaN is no JSON: what could not be measured is null.
        text = json.dumps({"name": self.name, "data": self.data, "provenance": self.provenance}, indent=1, allow_nan=False)
        content = io.BytesIO()
        arrays: dict[str, Any] = dict(self.arrays)
        np.savez_compressed(content, **arrays)
        # The arrays first: a JSON file means that they are there.
        storage.replace_file(path.with_suffix(".npz"), content.getvalue)
        storage.replace_file(path, (text + "\n").encode)
        return path

    @staticmethod
    def load(path: Path) -> "Finding":
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            with np.load(path.with_suffix(".npz"), allow_pickle=False) as file:
                return Finding(said["name"], said["data"], dict(file), said["provenance"])
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise UserError(f"{path}: not a readable analysis: {error}") from None


def joined(findings: Sequence[Finding]) -> Finding:
    """Of an analysis that looks at each model alone: what it would have found, had it looked at all of them at once."""
    first = findings[0]
    lists = ("summary", "models")
    data = first.data | {name: [each for finding in findings for each in finding.data[name]] for name in lists}
    arrays = {name: np.concatenate([finding.arrays[name] for finding in findings]) for name in first.arrays}
    about = {
        "models": [model for finding in findings for model in finding.provenance["models"]],
        "seconds": round(sum(finding.provenance["seconds"] for finding in findings), 3),
    }
    return Finding(first.name, data, arrays, first.provenance | about)
