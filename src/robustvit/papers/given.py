"""Weights that others published, as pickles of PyTorch, become checkpoints that `load_model` takes."""

import hashlib
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robustvit.errors import UserError
from robustvit.models import build, fingerprint
from robustvit.papers.artefact import Given
from robustvit.training.checkpoint import save_weights

INSIDE = ("model", "state_dict", "net")  # under which of these names a file keeps its weights, if under any
BEFORE = ("", "module.", "model.", "module.model.", "backbone.")  # what stands before the names of the weights
NORMALISER = "normalizer.new_"  # where the robustness library keeps the mean and deviation that its models were trained with


def ready(given: Given, path: Path, place: Path) -> Path:
    """What `load_model` takes: the path itself, or in PLACE the checkpoint that it was converted to.

    A pickle can run code when opened, so nothing but tensors is read from one.
    """
    if path.is_dir() or path.suffix == ".safetensors":
        return path
    made = place / f"{given.name}-{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}.safetensors"
    if not made.exists():
        model = build(given.model)
        weights = _fitted(given, path, _weights(given, path), dict(model.backbone.state_dict()))
        model.backbone.load_state_dict(weights)
        save_weights(made, given.model, model.state_dict(), {"fingerprint": fingerprint(model)})
    return made


def _weights(given: Given, path: Path) -> dict[str, Tensor]:
    try:
        held: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"{given.name}: {str(path)!r} holds more than tensors, or is no checkpoint of PyTorch ({reason}). If you trust it, "
            "take its weights out yourself and pass the new file: python -c \"import torch, dill; held = torch.load('FILE', "
            "map_location='cpu', pickle_module=dill, weights_only=False); torch.save(held['model'], 'weights.pt')\""
        ) from None
    inside = next((name for name in INSIDE if isinstance(held, dict) and isinstance(held.get(name), Mapping)), None)
    weights = held[inside] if inside else held
    if not isinstance(weights, Mapping) or not all(isinstance(each, Tensor) for each in weights.values()):
        raise UserError(
            f"{given.name}: {str(path)!r} holds a {type(held).__name__}; accepted: tensors by name, or below 'model'"
        )
    return dict(weights)


def _fitted(given: Given, path: Path, weights: dict[str, Tensor], wanted: dict[str, Tensor]) -> dict[str, Tensor]:
    """Under the names and in the shapes that our model has."""
    _check_normalisation(given, path, weights)
    counters = {name for name in wanted if name.endswith("num_batches_tracked")}  # which old files lack and nobody judges by
    found: dict[str, Tensor] = {}
    for prefix in BEFORE:
        inside = {name.removeprefix(prefix): each for name, each in weights.items() if name.startswith(prefix)}
        named = {_renamed(given, name): each for name, each in inside.items()}
        if wanted.keys() - counters <= named.keys():
            found = {name: named.get(name, wanted[name]) for name in wanted}
            break
    wrong = [name for name in found if found[name].numel() != wanted[name].numel()]
    if not found or wrong:
        lacks = f"{wrong[0]} is {tuple(found[wrong[0]].shape)}" if wrong else f"no {next(iter(wanted))}, in whatever way named"
        raise UserError(f"{given.name}: {str(path)!r} holds no {given.model.name}: {lacks}; it is at {given.where}")
    return {name: found[name].reshape(wanted[name].shape) for name in wanted}  # a linear layer may be a 1×1 convolution


def _renamed(given: Given, name: str) -> str:
    for pattern, replacement in given.renamed:
        name = re.sub(pattern, replacement, name)
    return name


def _check_normalisation(given: Given, path: Path, weights: dict[str, Tensor]) -> None:
    for name, own in (("mean", given.model.mean), ("std", given.model.std)):
        held = next((weight for key, weight in weights.items() if key.endswith(NORMALISER + name)), None)
        if held is not None and own is not None and not torch.allclose(held.flatten(), torch.tensor(own), atol=1e-3):
            raise UserError(
                f"{given.name}: {str(path)!r} was trained with {name} {[round(each, 4) for each in held.flatten().tolist()]}; "
                f"accepted: {list(own)}"
            )
