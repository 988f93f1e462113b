"""verify(): does the evidence of an outcome still prove it?"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robustvit.attacks import Queries
from robustvit.config import from_data
from robustvit.data import DataSpec, Images
from robustvit.device import find_device
from robustvit.errors import UserError
from robustvit.evaluation import memory
from robustvit.evaluation.judge import judging, predict, seeded
from robustvit.evaluation.outcome import Outcome, wilson
from robustvit.evaluation.parts import Parts, digest, read_plan
from robustvit.models import fingerprint, load_model
from robustvit.threat import Threat


@dataclass
class Verification:
    """What was checked, and what did not hold."""

    outcome: Outcome
    checked: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def check(self, what: str, failures: list[str]) -> None:
        self.checked.append(what)
        self.violations += failures

    def __str__(self) -> str:
        head = f"{self.outcome}\n"
        if self.violations:
            shown = [*self.violations[:20], *([f"… {len(self.violations) - 20} more"] if len(self.violations) > 20 else [])]
            return head + "\n".join(f"VIOLATION {violation}" for violation in shown)
        return head + "\n".join(f"holds: {what}" for what in self.checked)


def verify(
    path: str | Path, model: str | None = None, data: str | DataSpec | None = None, device: str | None = None
) -> Verification:
    """Re-check an outcome against its model and data, which are found as it recorded them unless given.

    An example counts if it lies inside ball and box and the model gives it another class in full precision. That no other
    example exists is not provable: an image called robust is checked for being right from the start.
    """
    path = Path(path)
    outcome = Outcome.load(path)
    result = Verification(outcome)
    result.check("summary and per-image results agree", _summary(outcome, json.loads(path.read_text())))
    where = find_device(device)
    classifier = load_model(model or _recorded_model(outcome, path)).to(where)
    wanted, found = outcome.provenance["model"]["fingerprint"], fingerprint(classifier)
    result.check(f"model {found}", [] if found == wanted else [f"model: fingerprint {found}, the outcome is of {wanted}"])
    images = _recorded_data(outcome, data).subset(torch.from_numpy(outcome.arrays["index"]))
    same = digest(images) == outcome.provenance["data"]["digest"]
    result.check(f"data {images.name}, {len(images)} images", [] if same else ["data: not the images that were judged"])
    if result.violations:
        return result  # examples of another model or of other images would prove nothing
    parts = _evidence(outcome, path)
    with judging(classifier):
        ask = Queries(classifier, precision="fp32", draws=outcome.provenance["draws"])
        x, y = (tensor.to(where) for tensor in images.batch(slice(2)))
        ask.ledger.size = memory.micro_batch(ask, x, y)
        for number, (begin, end) in enumerate(parts.windows):
            _window(result, ask, images, parts, number, begin, end, where)
    broken = int((outcome.arrays["broken_by"] >= 0).sum())
    result.checked.append(f"{broken} adversarial examples inside ball and box, each misclassified")
    result.checked.append(f"{outcome.n} predictions for the images themselves")
    return result


def _summary(outcome: Outcome, said: dict[str, Any]) -> list[str]:
    arrays = outcome.arrays
    y, clean, attacked, broken_by = (arrays[k] for k in ("y", "clean_prediction", "attacked_prediction", "broken_by"))
    right = (clean == y) & (attacked == y)
    counted = int(right.sum())
    facts = {"n": len(y), "correct": counted, "accuracy": float(right.mean()), "interval_95": list(wilson(counted, len(y)))}
    wrong = [f"{name}: {said.get(name)} said, {value} counted" for name, value in facts.items() if said.get(name) != value]
    if not np.array_equal(right, outcome.correct):
        wrong.append("correct: does not follow from labels and predictions")
    if not np.array_equal(broken_by >= 0, (clean == y) & (attacked != y)):
        wrong.append("broken_by: does not follow from labels and predictions")
    return wrong


def _window(
    result: Verification, ask: Queries, images: Images, parts: Parts, number: int, begin: int, end: int, where: torch.device
) -> None:
    arrays, threat = result.outcome.arrays, Threat(**result.outcome.provenance["threat"])
    x, y = (tensor.to(where) for tensor in images.batch(slice(begin, end)))
    known = parts.load(number, x)
    if known is None:
        raise UserError(f"{parts.path(number)}: missing; it holds the evidence of images {begin} to {end - 1}")
    places = arrays["index"][begin:end]
    said = {"y": y, "clean_prediction": known.clean, "attacked_prediction": known.attacked, "broken_by": known.broken_by}
    for name, tensor in said.items():
        differ = arrays[name][begin:end] != tensor.cpu().numpy()
        result.violations += [f"image {places[i]}: {name} differs from the evidence" for i in differ.nonzero()[0]]
    with seeded(begin):
        clean = predict(ask, x)
    result.violations += [f"image {places[i]}: predicted {clean[i]}, not {known.clean[i]}" for i in _rows(clean != known.clean)]
    rows = (known.broken_by >= 0).nonzero().squeeze(1)
    inside = threat.contains(known.examples[rows], x[rows])
    distance = threat.distance(known.examples[rows], x[rows])
    result.violations += [
        f"image {places[rows[i]]}: its example is outside [0, 1], or its distance {distance[i]:g} above eps {threat.eps:g}"
        for i in _rows(~inside)
    ]
    for stage in known.broken_by[rows].unique().tolist():
        of_stage = rows[known.broken_by[rows] == stage]
        with seeded(begin + stage + 1):
            logits = ask(known.examples[of_stage])
        for i in _rows(logits.argmax(1) == y[of_stage]):
            others = logits[i].index_fill(0, y[of_stage[i]], -torch.inf).max()
            lead = float(logits[i, y[of_stage[i]]] - others)
            result.violations.append(
                f"image {places[of_stage[i]]}: its example is classified correctly, by {lead:.2g} in logits"
            )


def _rows(mask: Tensor) -> list[int]:
    return mask.nonzero().squeeze(1).tolist()


def _recorded_model(outcome: Outcome, path: Path) -> str:
    name, run = outcome.provenance["model"]["name"], path.resolve().parent.parent
    # An outcome lies in its run's folder, which may have moved since.
    return str(run) if not Path(name).exists() and (run / "recipe.yaml").is_file() else str(name)


def _recorded_data(outcome: Outcome, data: str | DataSpec | None) -> Images:
    recorded: Any = outcome.provenance["data"]["spec"]
    if data is None and recorded is None:
        raise UserError(
            "--data: missing; the outcome is of images given in Python, so say where they are, as in --data npz:PATH"
        )
    if data is None:
        return from_data(DataSpec, recorded, "data").load("test")
    given = DataSpec.parse(data) if isinstance(data, str) else data
    # Only the place is new: sizes and subsets are the recorded ones.
    same = recorded is not None and recorded["source"] == given.source
    return (from_data(DataSpec, {**recorded, "path": given.path}, "data") if same else given).load("test")


def _evidence(outcome: Outcome, path: Path) -> Parts:
    folder = outcome.provenance["evidence"]
    if not folder:
        raise UserError(f"{path}: holds no evidence (it was evaluated with --evidence none, or without an attack)")
    windows = read_plan(path.parent / folder / "plan.json")["windows"]
    return Parts(path.parent / folder, [(begin, end) for begin, end in windows])
