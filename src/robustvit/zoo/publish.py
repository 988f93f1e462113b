"""publish(): a trained run becomes an entry of the zoo."""

import hashlib
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from robustvit import config, storage
from robustvit.data import DataSpec
from robustvit.errors import UserError
from robustvit.evaluation import Outcome, evaluate
from robustvit.evaluation.outcome import file_name
from robustvit.evaluation.suites import Suite
from robustvit.models import load_model
from robustvit.training.checkpoint import load_weights, save_weights


def publish(
    run: Path, place: Path, data: str | DataSpec, suite: Suite, images: int | None = None, device: str | None = None
) -> Path:
    """Round the best weights of a run to half precision, judge what that leaves, and write PLACE/NAME.

    The examples are too large to be kept: the card has their hash, and the same evaluation makes them again.
    """
    recipe = config.load(run / "recipe.yaml")
    folder = place / recipe.name
    if folder.exists():
        shutil.rmtree(folder)
    # Where the data lay is nobody else's path.
    recipe = replace(recipe, data=replace(recipe.data, path=None, download=False))
    if recipe.model.init and Path(recipe.model.init).exists():
        raise UserError(f"model.init: {recipe.model.init!r}; accepted in the zoo: null, zoo:NAME or a published timm model")
    config.save(recipe, folder / "recipe.yaml")
    _halve(run / "checkpoints" / "best.safetensors", folder / "checkpoints" / "best.safetensors")
    with tempfile.TemporaryDirectory() as made:
        outcomes = evaluate(folder, data, suite, made, images=images, device=device)
        evidence = {outcome.name: _hash_of_evidence(Path(made) / "outcomes", outcome) for outcome in outcomes}
    kept = [_without_places(outcome, recipe.name) for outcome in outcomes]
    for outcome in kept:
        outcome.save(folder / "outcomes")
    card = {
        "model": recipe.model.name,
        "parameters": sum(p.numel() for p in load_model(folder).parameters()),
        "data": kept[0].provenance["data"]["name"],
        "recipe_hash": recipe.hash(),
        "fingerprint": kept[0].provenance["model"]["fingerprint"],
        "outcomes": {o.name: {**o.summary, "evidence_sha256": evidence[o.name]} for o in kept},
        "versions": kept[0].provenance["versions"],
    }
    storage.replace_file(folder / "card.json", (json.dumps(card, indent=2) + "\n").encode)
    return folder


def _halve(source: Path, target: Path) -> None:
    spec, weights = load_weights(source)
    _, meta = storage.read(source)
    halved = {name: w.half() if w.dtype == torch.float32 else w for name, w in weights.items()}
    meta = {key: value for key, value in meta.items() if key != "model"}
    save_weights(target, spec, halved, {**meta, "stored": "fp16"})


def _hash_of_evidence(outcomes: Path, outcome: Outcome) -> str | None:
    """Of the adversarial examples of all broken images, in their order."""
    if outcome.provenance["evidence"] is None:
        return None
    hashed = hashlib.sha256()
    for window in sorted((outcomes / f"{file_name(outcome.name)}.windows").glob("window-*.safetensors")):
        tensors, _ = storage.read(window)
        hashed.update(tensors["examples"].contiguous().numpy().tobytes())
    return hashed.hexdigest()


def _without_places(outcome: Outcome, name: str) -> Outcome:
    about: dict[str, Any] = outcome.provenance
    spec = about["data"]["spec"]
    data = {**about["data"], "spec": {**spec, "path": None} if spec else None}
    model = {**about["model"], "name": f"zoo:{name}"}
    return replace(outcome, provenance={**about, "data": data, "model": model, "evidence": None})
