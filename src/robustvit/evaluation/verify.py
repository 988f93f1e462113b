"""verify(): does the evidence of an outcome still prove it?"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from robustvit.attacks import Queries
from robustvit.config import from_data
from robustvit.data import DataSpec, Images
from robustvit.device import find_device
from robustvit.errors import UserError
from robustvit.evaluation import memory
from robustvit.evaluation.claims import Claims, contradictions, of_stages, read_claims
from robustvit.evaluation.judge import Verdicts, judging, logits_of, predict
from robustvit.evaluation.outcome import Outcome
from robustvit.evaluation.parts import Parts
from robustvit.models import Classifier, fingerprint, load_model


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
    path: str | Path,
    model: str | Path | nn.Module | None = None,
    data: str | DataSpec | Images | None = None,
    device: str | None = None,
) -> Verification:
    """Re-check an outcome against its model and data, which are found as it recorded them unless given.

    An example counts if it lies inside ball and box and the model gives it the recorded class, not the true one, in full
    precision. That no other example exists is not provable: an image called robust is checked for being right from the start.
    """
    path = Path(path)
    claims = read_claims(path)
    outcome = claims.outcome
    result = Verification(outcome)
    result.check("summary, results of each image and plan agree", contradictions(claims, json.loads(path.read_text())))
    where = find_device(device)
    classifier = _model(outcome, path, model).to(where)
    found = fingerprint(classifier)
    same = found == claims.fingerprint
    result.check(f"model {found}", [] if same else [f"model: fingerprint {found}, the outcome is of {claims.fingerprint}"])
    everything = _data(outcome, data)
    images = _chosen(everything, outcome.arrays["index"])
    same = images is not None and everything.digest() == claims.digest
    result.check(f"data, {outcome.n} images", [] if same else ["data: not the images that were judged"])
    if result.violations or images is None:
        return result  # examples of another model or of other images would prove nothing
    with judging(classifier):
        ask = Queries(classifier, precision="fp32", draws=claims.draws)
        x, y = (tensor.to(where) for tensor in images.batch(slice(2)))
        ask.ledger.size = memory.micro_batch(ask, x, y)
        parts = claims.parts
        windows = [_window(result, claims, ask, images, parts, number, where) for number in range(len(parts.windows))]
    result.check("stages and their counts", of_stages(claims, windows))
    broken = int((outcome.arrays["broken_by"] >= 0).sum())
    result.checked.append(f"{broken} adversarial examples inside ball and box, each misclassified")
    result.checked.append(f"{outcome.n} predictions for the images themselves")
    return result


def _window(
    result: Verification, claims: Claims, ask: Queries, images: Images, parts: Parts, number: int, where: torch.device
) -> Verdicts:
    arrays, threat, (begin, end) = claims.outcome.arrays, claims.threat, parts.windows[number]
    x, y = (tensor.to(where) for tensor in images.batch(slice(begin, end)))
    known = parts.load(number, x)
    if known is None:
        raise UserError(f"{parts.path(number)}: missing; it holds the evidence of images {begin} to {end - 1}")
    places = arrays["index"][begin:end]
    said = {"y": y, "clean_prediction": known.clean, "attacked_prediction": known.attacked, "broken_by": known.broken_by}
    for name, tensor in said.items():
        differ = arrays[name][begin:end] != tensor.cpu().numpy()
        result.violations += [f"image {places[i]}: {name} differs from the evidence" for i in differ.nonzero()[0]]
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
        logits = logits_of(ask, known.examples[of_stage], stage + 1)
        predicted, told = logits.argmax(1), known.attacked[of_stage]
        for i in _rows((predicted != told) | ~logits.isfinite().all(1)):
            others = logits[i].index_fill(0, y[of_stage[i]], -torch.inf).max()
            lead = float(logits[i, y[of_stage[i]]] - others)
            right = predicted[i] == y[of_stage[i]]
            what = f"classified correctly, by {lead:.2g} in logits" if right else f"predicted {predicted[i]}, not {told[i]}"
            result.violations.append(f"image {places[of_stage[i]]}: its example is {what}")
    return known.summary(0)


def _rows(mask: Tensor) -> list[int]:
    return mask.nonzero().squeeze(1).tolist()


def _model(outcome: Outcome, path: Path, given: str | Path | nn.Module | None) -> Classifier:
    if isinstance(given, nn.Module):  # as it is: `judging` puts it in eval mode and back
        return given if isinstance(given, Classifier) else Classifier(given)
    name, run = str(outcome.provenance["model"]["name"]), path.resolve().parent.parent
    # An outcome lies in its run's folder, which may have been moved or copied since.
    if not given and (run / "recipe.yaml").is_file():
        return load_model(run / "checkpoints" / Path(name).name if name.endswith(".safetensors") else run)
    try:
        return load_model(given or name)
    except UserError:
        if given:
            raise
        raise UserError(
            f"{path}: its model {name!r} is not found from here; pass --model, or for a module from Python call "
            "robustvit.verify(path, model=module)"
        ) from None


def _data(outcome: Outcome, given: str | DataSpec | Images | None) -> Images:
    if isinstance(given, Images):
        return given
    recorded: Any = outcome.provenance["data"]["spec"]
    if given is None and recorded is None:
        raise UserError(
            "--data: missing; the outcome is of images given in Python, so say where they are, as in --data npz:PATH"
        )
    if given is None:
        return from_data(DataSpec, recorded, "data").load("test")
    spec = DataSpec.parse(given) if isinstance(given, str) else given
    # Only the place is new: sizes and subsets are the recorded ones.
    same = recorded is not None and recorded["source"] == spec.source
    return (from_data(DataSpec, {**recorded, "path": spec.path}, "data") if same else spec).load("test")


def _chosen(images: Images, index: np.ndarray) -> Images | None:
    """The images that were judged, or None where the set does not reach so far."""
    return images.subset(torch.from_numpy(index)) if index.max() < len(images) else None
