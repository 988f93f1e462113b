"""Checkpoints: the weights of a model, and the state that a run goes on from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from robustvit import storage
from robustvit.config import from_data, to_data
from robustvit.errors import UserError, concerning
from robustvit.models import ModelSpec


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if not path.is_file():
        raise UserError(f"{path}: no such checkpoint; a run has none before the first of every `select_every` epochs")
    return storage.read(path)


def save_weights(path: Path, spec: ModelSpec, weights: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """A model to use: its weights and what is needed to build it."""
    storage.write(path, weights, {"model": to_data(spec), **meta})


def load_weights(path: Path) -> tuple[ModelSpec, dict[str, Tensor]]:
    tensors, meta = read(path)
    if "layout" in meta:
        raise UserError(f"{path}: holds the state of a training run; accepted: best.safetensors or last.safetensors")
    if "model" not in meta:
        raise UserError(f"{path}: does not say which model its weights belong to; accepted: what `robustvit train` wrote")
    with concerning(str(path)):
        return from_data(ModelSpec, meta["model"], "model"), tensors


@dataclass
class State:
    """What a run needs to go on exactly: all else follows from recipe and step.

    `recipe` and `data`, hash and digest, say whose state it is.
    """

    recipe: str
    data: str
    step: int = 0
    phase: int = 0
    best: float = -1.0
    log_lines: int = 0


def save_state(path: Path, state: State, model: nn.Module, ema: dict[str, Tensor], optimizer: Any) -> None:
    tensors: dict[str, Tensor] = {}
    parts = {"model": dict(model.state_dict()), "ema": ema, "optimizer": optimizer.state_dict()}
    layout = _take_tensors(parts, "", tensors)
    storage.write(path, tensors, {"state": vars(state), "layout": layout})


@dataclass
class Restored:
    state: State
    model: dict[str, Tensor]
    ema: dict[str, Tensor]
    optimizer: dict[str, Any]

    def check(self, path: Path, new: State, model: nn.Module) -> None:
        """Is it the state of this recipe, on these images, of a model of this shape?"""
        for what, held, here in (("recipe", self.state.recipe, new.recipe), ("training images", self.state.data, new.data)):
            if held != here:
                raise UserError(
                    f"{path}: of another run: the hash of its {what} is {held}, here it is {here}. "
                    "Pass another --out, or remove the folder if you no longer need it"
                )
        wanted, given = ({k: tuple(t.shape) for k, t in d.items()} for d in (model.state_dict(), self.model))
        if wanted != given:
            wrong = next(name for name in wanted | given if wanted.get(name) != given.get(name))
            raise UserError(f"{path}: damaged: {wrong} is of shape {given.get(wrong)}, in the model {wanted.get(wrong)}")


def load_state(path: Path) -> Restored:
    try:
        tensors, meta = read(path)
    except UserError as error:
        raise UserError(f"{error}. It is the state that the run goes on from: remove it, and the run starts anew") from None
    if "layout" not in meta:
        raise UserError(f"{path}: holds the weights of a model, not the state of a training run")
    try:
        return Restored(from_data(State, meta["state"], "state"), **_put_tensors(meta["layout"], tensors))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: damaged, or of another version of robustvit ({error!r})") from None


def _take_tensors(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A nested value as JSON, its tensors moved to `tensors` under the names that stand in their place."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, dict):  # as pairs: an optimiser's keys are numbers, which JSON would turn into text
        return {
            "dict": [[key, _take_tensors(item, f"{name}.{key}" if name else str(key), tensors)] for key, item in value.items()]
        }
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_take_tensors(item, f"{name}.{i}", tensors) for i, item in enumerate(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise UserError(f"{name}: the optimiser keeps a {type(value).__name__}, which a checkpoint cannot hold; choose another")


def _put_tensors(layout: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `_take_tensors`."""
    if not isinstance(layout, dict):
        return layout
    ((kind, content),) = layout.items()
    if kind == "tensor":
        return tensors[content]
    if kind in ("list", "tuple"):
        items = [_put_tensors(item, tensors) for item in content]
        return tuple(items) if kind == "tuple" else items
    return {key: _put_tensors(item, tensors) for key, item in content}
