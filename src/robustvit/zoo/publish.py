"""publish(): a trained run becomes an entry of the zoo."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from robustvit import config, storage
from robustvit.config import Recipe
from robustvit.data import DataSpec
from robustvit.errors import UserError
from robustvit.evaluation import Outcome, evaluate
from robustvit.evaluation.suites import Suite
from robustvit.models import fingerprint, load_model
from robustvit.training.checkpoint import load_weights, save_weights
from robustvit.zoo.evidence import evidence_hash

LARGEST = 6 * 10**6  # bytes of weights


def publish(
    run: Path, place: Path, data: str | DataSpec, suite: Suite, images: int | None = None, device: str | None = None
) -> Path:
    """Round the best weights of a run to half precision, judge what that leaves, and write PLACE/NAME.

    The examples are too large to be kept: the card has their hash, and the same evaluation makes them again. An entry that was
    there stays until the new one is whole, and a publishing that was stopped goes on where it was.
    """
    if not (run / "recipe.yaml").is_file():
        raise UserError(f"run {str(run)!r}: holds no recipe.yaml; accepted: a folder of `robustvit train`")
    recipe = _without_places(config.load(run / "recipe.yaml"))
    folder, made = place / recipe.name, place / f".{recipe.name}.partial"
    shutil.rmtree(made, ignore_errors=True)
    config.save(recipe, made / "recipe.yaml")
    _halve(run / "checkpoints" / "best.safetensors", made / "checkpoints" / "best.safetensors")
    model = load_model(made)
    judged = place / f".{recipe.name}.{fingerprint(model)}"
    outcomes = evaluate(made, data, suite, judged, images=images, device=device)
    evidence = {outcome.name: evidence_hash(judged / "outcomes", outcome.name) for outcome in outcomes}
    kept = [_of_the_zoo(outcome, recipe.name) for outcome in outcomes]
    for outcome in kept:
        outcome.save(made / "outcomes")
    card = {
        "model": recipe.model.name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "data": kept[0].provenance["data"]["name"],
        "recipe_hash": recipe.hash(),
        "fingerprint": kept[0].provenance["model"]["fingerprint"],
        "outcomes": {o.name: {**o.summary, "evidence_sha256": evidence[o.name]} for o in kept},
        "versions": kept[0].provenance["versions"],
    }
    storage.replace_file(made / "card.json", (json.dumps(card, indent=2) + "\n").encode)
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)
    shutil.rmtree(judged)
    return folder


def _without_places(recipe: Recipe) -> Recipe:
    """Where data lay is nobody else's path."""
    data = replace(recipe.data, path=None, download=False, subset=None)
    if data.generated:
        data = replace(data, generated=replace(data.generated, path=Path(data.generated.path).name))
    if data.classes and Path(data.classes).exists():
        raise UserError(f"data.classes: {data.classes!r}; accepted in the zoo: null, or a number by seed")
    if recipe.model.init and Path(recipe.model.init).exists():
        raise UserError(f"model.init: {recipe.model.init!r}; accepted in the zoo: null, zoo:NAME or a published timm model")
    return replace(recipe, data=data)


def _halve(source: Path, target: Path) -> None:
    spec, weights = load_weights(source)
    _, meta = storage.read(source)
    halved = {name: w.half() if w.dtype == torch.float32 else w for name, w in weights.items()}
    meta = {key: value for key, value in meta.items() if key not in ("model", "fingerprint")}
    save_weights(target, spec, halved, {**meta, "stored": "fp16"})
    if (size := target.stat().st_size) > LARGEST:
        raise UserError(f"{source}: {size / 1e6:.1f} MB in half precision; accepted in the zoo: {LARGEST / 1e6:.0f} MB")


def _of_the_zoo(outcome: Outcome, name: str) -> Outcome:
    about: dict[str, Any] = outcome.provenance
    spec = about["data"]["spec"]
    data = {**about["data"], "spec": {**spec, "path": None} if spec else None}
    model = {**about["model"], "name": f"zoo:{name}"}
    return replace(outcome, provenance={**about, "data": data, "model": model, "evidence": None})
