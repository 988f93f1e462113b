"""What an outcome's own files say, and whether they contradict each other: all that can be checked without a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robustvit.errors import UserError
from robustvit.evaluation.judge import Verdicts
from robustvit.evaluation.outcome import Outcome, file_name, wilson
from robustvit.evaluation.parts import Parts, identity, merged, read_plan
from robustvit.threat import Threat

ARRAYS = ("index", "y", "clean_prediction", "attacked_prediction", "broken_by")


@dataclass(frozen=True, slots=True)
class Claims:
    """What an outcome claims; read at once, so that a part that is missing or no number is an error that names the file."""

    path: Path
    outcome: Outcome
    threat: Threat
    fingerprint: str
    digest: str
    draws: int
    stages: list[dict[str, Any]]
    plan: dict[str, Any]
    identity: dict[str, Any]  # what the plan's must be

    @property
    def parts(self) -> Parts:
        return Parts(self.path.with_name(self.outcome.provenance["evidence"]), [(b, e) for b, e in self.plan["windows"]])


def read_claims(path: Path) -> Claims:
    if path.suffix != ".json" or not path.is_file():
        there = sorted(map(str, path.glob("outcomes/*.json"))) if path.is_dir() else []
        raise UserError(
            f"outcome {str(path)!r}: no such file; accepted: {' or '.join(there) or 'a .json of a folder outcomes/'}"
        )
    outcome = Outcome.load(path)
    told, arrays = outcome.provenance, outcome.arrays
    folder = told.get("evidence")
    if not folder:
        raise UserError(f"{path}: holds no evidence (it was evaluated with --evidence none, or without an attack)")
    plan = read_plan(path.with_name(Path(str(folder)).name) / "plan.json")
    try:
        odd = [name for name in ARRAYS if arrays[name].shape != (outcome.n,) or arrays[name].dtype.kind not in "iu"]
        if odd or not isinstance(told["draws"], int) or told["draws"] < 1:
            raise ValueError(f"{odd[0] if odd else 'draws'} is not whole numbers, one an image or 1 and more")
        index = torch.from_numpy(arrays["index"].astype(np.int64))
        return Claims(
            path,
            outcome,
            Threat(**told["threat"]),
            told["model"]["fingerprint"],
            told["data"]["digest"],
            told["draws"],
            list(told["stages"]),
            plan,
            identity({name: told[name] for name in ("threat", "attack", "seed", "draws")}, told, index),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: not a readable outcome: {error}") from None


def contradictions(claims: Claims, said: dict[str, Any]) -> list[str]:
    """Between the summary `said`, the results of each image and the plan that the evaluation followed."""
    outcome, plan = claims.outcome, claims.plan
    wrong = _summary(outcome, said)
    if (stem := file_name(outcome.name)) != claims.path.stem or outcome.provenance["evidence"] != f"{stem}.windows":
        wrong.append(f"name: {outcome.name!r} is not that of {claims.path.name} and its evidence")
    planned = plan["identity"] if isinstance(plan["identity"], dict) else {}
    wrong += [f"{k}: {v} said, but {planned.get(k)} evaluated" for k, v in claims.identity.items() if planned.get(k) != v]
    if not _cover(plan["windows"], outcome.n):
        wrong.append(f"plan: its windows do not hold each of the {outcome.n} images once")
    return wrong


def of_stages(claims: Claims, windows: Sequence[Verdicts]) -> list[str]:
    """Do the stages' counts follow from the images that fell?"""
    wrong = []
    for number, known in enumerate(windows):
        standing = known.clean == known.y
        for place, stage in enumerate(known.stages):
            fell = standing & (known.broken_by == place)
            counted = int(standing.sum()), int(fell.sum())
            if (stage["entered"], stage["broken"]) != counted:
                wrong.append(
                    f"window {number}, {stage['name']}: {stage['broken']} of {stage['entered']} said, {counted} counted"
                )
            standing = standing & ~fell
        if bool((known.broken_by >= len(known.stages)).any()):
            wrong.append(f"window {number}: broken_by names a stage beyond the {len(known.stages)}")
    if len({len(known.stages) for known in windows}) > 1 or merged([known.stages for known in windows]) != claims.stages:
        wrong.append("stages: not those of the windows added up")
    return wrong


def _summary(outcome: Outcome, said: dict[str, Any]) -> list[str]:
    y, clean, attacked, broken_by, index = (
        outcome.arrays[name] for name in ("y", "clean_prediction", "attacked_prediction", "broken_by", "index")
    )
    right = (clean == y) & (attacked == y)
    counted = int(right.sum())
    facts = {"n": len(y), "correct": counted, "accuracy": float(right.mean()), "interval_95": list(wilson(counted, len(y)))}
    wrong = [f"{name}: {said.get(name)} said, {value} counted" for name, value in facts.items() if said.get(name) != value]
    if not np.array_equal(right, outcome.correct):
        wrong.append("correct: does not follow from labels and predictions")
    if not np.array_equal(broken_by >= 0, (clean == y) & (attacked != y)):
        wrong.append("broken_by: does not follow from labels and predictions")
    if len(set(index.tolist())) < len(index) or index.min() < 0:
        wrong.append("index: not each image once")
    return wrong


def _cover(windows: Any, n: int) -> bool:
    """Do the windows follow each other from 0 to n?"""
    try:
        edges = [(int(begin), int(end)) for begin, end in windows]
    except (TypeError, ValueError):
        return False
    whole = bool(edges) and edges[0][0] == 0 and edges[-1][1] == n
    return whole and all(b < e for b, e in edges) and all(a[1] == b[0] for a, b in pairwise(edges))
