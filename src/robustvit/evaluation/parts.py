"""The windows of an evaluation on disk: what a killed evaluation goes on from, and afterwards the evidence."""

import hashlib
import json
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any

import torch

from robustvit import storage
from robustvit.errors import UserError
from robustvit.evaluation.judge import Answers, Verdicts
from robustvit.evaluation.outcome import file_name

EXAMPLES = 8  # adversarial images that a report shows, broken or not


@dataclass(frozen=True)
class Parts:
    """A folder with plan.json and one file a window; without a folder nothing is kept."""

    folder: Path | None
    windows: list[tuple[int, int]]  # begin and end of each, in the order of the chosen images
    evidence: bool = True

    def path(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"window-{number:04}.safetensors"

    def save(self, number: int, verdicts: Verdicts) -> None:
        """The examples of broken images are the evidence; others prove nothing and are left out."""
        if self.folder is None:
            return
        tensors = {name: getattr(verdicts, name) for name in ("y", "clean", "attacked", "broken_by")}
        if self.evidence:
            tensors["examples"] = verdicts.examples[verdicts.broken_by >= 0]
        if number == 0:
            tensors["shown"] = verdicts.examples[:EXAMPLES]
        storage.write(self.path(number), tensors, {"stages": verdicts.stages})

    def load(self, number: int, x: torch.Tensor) -> Verdicts | None:
        """What is known of a window with these images, or None."""
        if self.folder is None or not self.path(number).exists():
            return None
        tensors, meta = storage.read(self.path(number))
        try:
            y, clean, attacked, broken_by = (tensors[name].to(x.device) for name in ("y", "clean", "attacked", "broken_by"))
            fell, examples = broken_by >= 0, x.clone()
            shapes = [tensor.shape for tensor in (y, clean, attacked, broken_by, tensors.get("examples", x[fell]))]
            if shapes != [x.shape[:1]] * 4 + [x[fell].shape]:
                raise ValueError(f"{[tuple(shape) for shape in shapes]} do not fit {len(x)} images")
            if "shown" in tensors:
                examples[:EXAMPLES] = tensors["shown"].to(x)
            if "examples" in tensors:
                examples[fell] = tensors["examples"].to(x)
            return Verdicts(y, clean, attacked, broken_by, examples, meta["stages"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UserError(f"{self.path(number)}: not the results of a window: {error}") from None


def plan(images: int, largest: int, processes: int) -> list[tuple[int, int]]:
    """Windows of nearly equal size, as many for each process."""
    count = min(images, processes * -(-images // (largest * processes)))
    edges = [images * i // count for i in range(count + 1)]
    return list(pairwise(edges))


def identity(described: dict[str, Any], provenance: dict[str, Any], index: torch.Tensor) -> dict[str, Any]:
    """Two evaluations with the same are one, which may go on where it stopped; `described` is the attack."""
    chosen = hashlib.sha256(index.numpy().tobytes()).hexdigest()[:16]
    model, data = provenance["model"]["fingerprint"], provenance["data"]["digest"]
    return {**described, "model": model, "data": data, "chosen": chosen, "robustvit": provenance["versions"]["robustvit"]}


def merged(windows: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The stages of all windows added up."""
    added = []
    for stages in zip(*windows, strict=True):
        sums = {key: sum(stage[key] for stage in stages) for key in ("entered", "broken", "forward", "backward", "seconds")}
        added.append({"name": stages[0]["name"], **sums, "seconds": round(sums["seconds"], 3)})
    return added


def open_parts(
    folder: Path | None, wanted: dict[str, Any], windows: list[tuple[int, int]], evidence: bool, answers: Answers = ()
) -> Parts:
    """Begin a folder, or go on with one that holds this very evaluation, whatever its windows."""
    if folder is None:
        return Parts(None, windows)
    if (held := _held(folder)) is not None:
        return Parts(folder, [(begin, end) for begin, end in held["windows"]], evidence)
    shutil.rmtree(folder, ignore_errors=True)  # a plan was never written, so nothing is lost
    content = json.dumps({"identity": {**wanted, "evidence": evidence}, "windows": windows, "answers": answers}, indent=1)
    storage.replace_file(folder / "plan.json", lambda: content.encode())
    return Parts(folder, windows, evidence)


def free_name(out: Path | None, name: str, wanted: dict[str, Any], evidence: bool, taken: Collection[str]) -> str:
    """The name itself, or `NAME #2`, … where that of another evaluation (more images, another seed) must not be lost."""
    identity = json.loads(json.dumps({**wanted, "evidence": evidence}))
    numbered = chain([name], (f"{name} #{number}" for number in count(2)))
    for each in (each for each in numbered if each not in taken):
        held = _held(out / f"{file_name(each)}.windows") if out else None
        finished = out is not None and (out / f"{file_name(each)}.json").exists()
        if held["identity"] == identity if held else not finished:
            return each
    raise AssertionError("there is always another number")


def _held(folder: Path) -> dict[str, Any] | None:
    return read_plan(folder / "plan.json") if (folder / "plan.json").exists() else None


def read_plan(path: Path) -> dict[str, Any]:
    try:
        plan: dict[str, Any] = json.loads(path.read_text())
        return {"identity": plan["identity"], "windows": plan["windows"], "answers": plan.get("answers", ())}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a readable plan ({error}); remove its folder to start the evaluation anew") from None
