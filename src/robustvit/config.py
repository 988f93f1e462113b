"""Recipe: the whole of a run as plain data. The dataclasses that run are the configuration; YAML is their picture.

`to_data` and `from_data` go between the two. A kind (an attack, an objective, a schedule) carries its registry name as `type`.
Written here rather than taken from a library so that every error can name the field, the value and what is accepted.
"""

import dataclasses
import hashlib
import json
import math
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from robustvit import storage
from robustvit.attacks import ATTACKS, Attack
from robustvit.attacks.base import check_judges
from robustvit.compiling import Compile
from robustvit.data import AUGMENTATIONS, Augmentation, DataSpec
from robustvit.errors import UserError, unknown
from robustvit.models import ModelSpec
from robustvit.objectives import OBJECTIVES, Objective
from robustvit.objectives.adversarial import Adversarial
from robustvit.precision import Precision
from robustvit.threat import Threat, parse_number
from robustvit.training.schedule import SCHEDULES, Constant, Phase, Schedule

KINDS: dict[type, dict[str, Any]] = {
    Attack: ATTACKS,
    Augmentation: AUGMENTATIONS,
    Objective: OBJECTIVES,
    Schedule: SCHEDULES,
}


Settings = TypeVar("Settings")


@dataclass(frozen=True, slots=True)
class Optim:
    """An optimiser by timm's name, its peak learning rate and the schedule of it, anew in each phase.

    With `layer_decay` d, a layer k below the top learns at dᵏ of the rate (Clark et al., 2020; Bao et al., 2022): fine-tuning
    that keeps early layers near where they start.
    """

    type: str = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.05
    layer_decay: float | None = None
    schedule: Schedule = field(default_factory=Constant)
    args: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("lr", "weight_decay"):
            if not 0 <= getattr(self, name) < 1e30:
                raise UserError(f"optim.{name}: {getattr(self, name)}; accepted: a finite number, 0 or more")
        if self.layer_decay is not None and not 0 < self.layer_decay <= 1:
            raise UserError(f"optim.layer_decay: {self.layer_decay}; accepted: null, or a number above 0, up to 1")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides a run's result.

    `batch_size` is over all processes and micro-batches. `select` is the attack whose held-out accuracy chooses the best
    checkpoint; without one, clean accuracy does. `keep_every` so many epochs the weights are kept as they are then.
    `recompute` trades a third more work for most of the memory that activations take. `compile` is torch's mode, never, or
    auto: on a GPU where the job is long enough for it to pay.
    """

    name: str = field(metadata={"identity": False})
    model: ModelSpec
    data: DataSpec
    phases: tuple[Phase, ...]
    optim: Optim = field(default_factory=Optim)
    batch_size: int = 128
    accumulate: int = 1
    clip: float | None = None
    ema: float | None = None
    precision: Precision = "fp32"
    recompute: bool = field(default=False, metadata={"identity": False})
    compile: Compile = field(default="auto", metadata={"identity": False})
    select: Attack | None = None
    select_every: int = 1
    keep_every: int | None = field(default=None, metadata={"identity": False})
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("batch_size", "accumulate", "select_every"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: {getattr(self, name)}; accepted: 1 or more")
        if self.keep_every is not None and self.keep_every < 1:
            raise UserError(f"keep_every: {self.keep_every}; accepted: null, or 1 or more")
        if not 0 <= self.seed < 2**31:
            raise UserError(f"seed: {self.seed}; accepted: 0 to {2**31 - 1}")
        if not self.phases:
            raise UserError("phases: empty; accepted: one phase or more")
        if self.batch_size % self.accumulate:
            raise UserError(f"accumulate: {self.accumulate} does not divide batch_size {self.batch_size}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise UserError(f"ema: {self.ema}; accepted: null, or a decay between 0 and 1")
        if self.clip is not None and not self.clip > 0:
            raise UserError(f"clip: {self.clip}; accepted: null, or a norm above 0")
        check_judges(self.select, "select")

    @property
    def epochs(self) -> int:
        return sum(phase.epochs for phase in self.phases)

    @property
    def threats(self) -> tuple[Threat, ...]:
        """That it trains against, and selects by."""
        objectives = [phase.objective for phase in self.phases]
        attacks = [each.adversary for each in objectives if isinstance(each, Adversarial)]
        return tuple(attack.threat for attack in (*attacks, *([self.select] if self.select else [])))

    def hash(self) -> str:
        """Identifies the result: covers all but names and places."""
        # Through plain data first, where 2 and 2.0 become the same number.
        normal = from_data(Recipe, to_data(self))
        text = json.dumps(to_data(normal, identity=True), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def to_data(value: Any, identity: bool = False) -> Any:
    """Dataclasses to plain dicts and lists; with `identity`, without the fields that do not change a result."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = {"type": tag} if (tag := _tag(value)) else {}
        fields = (f for f in dataclasses.fields(value) if not (identity and f.metadata.get("identity") is False))
        return kind | {f.name: to_data(getattr(value, f.name), identity) for f in fields}
    if isinstance(value, tuple | list):
        return [to_data(item, identity) for item in value]
    if isinstance(value, dict):
        return {key: to_data(item, identity) for key, item in value.items()}
    return value


def from_data(wanted: Any, data: Any, path: str = "") -> Any:
    """Plain data to the annotated type; errors name the field by its dotted path."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        (inner,) = [a for a in arguments if a is not types.NoneType]
        return None if data is None else from_data(inner, data, path)
    if origin is Literal:
        if data not in arguments:
            raise UserError(f"{path}: {data!r}; accepted: {', '.join(map(str, arguments))}")
        return data
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise UserError(f"{path}: {data!r}; accepted: a list")
        return tuple(from_data(arguments[0], item, f"{path}.{i}") for i, item in enumerate(data))
    if wanted in KINDS or dataclasses.is_dataclass(wanted):
        return _build(wanted, data, path)
    return _plain(wanted, origin, data, path)


def _build(wanted: Any, data: Any, path: str) -> Any:
    if not isinstance(data, dict):
        raise UserError(f"{path or 'recipe'}: {data!r}; accepted: fields of {wanted.__name__}")
    data = dict(data)
    if wanted in KINDS:
        kind = data.pop("type", None)
        if not isinstance(kind, str) or kind not in KINDS[wanted]:
            raise unknown(f"{path}.type", str(kind), KINDS[wanted])
        wanted = KINDS[wanted][kind]
    fields, annotations = {f.name: f for f in dataclasses.fields(wanted)}, typing.get_type_hints(wanted)
    dot = f"{path}." if path else ""
    for key in data:
        if key not in fields:
            raise unknown("field", f"{dot}{key}", [f"{dot}{name}" for name in fields])
    for name, f in fields.items():
        if name not in data and f.default is f.default_factory is dataclasses.MISSING:
            raise UserError(f"{dot}{name}: missing; {wanted.__name__} needs it")
    values = {key: from_data(annotations[key], item, dot + key) for key, item in data.items()}
    try:
        return wanted(**values)
    except UserError as error:
        raise UserError(f"in {path or 'recipe'}: {error}") from None


def _plain(wanted: Any, origin: Any, data: Any, path: str) -> Any:
    if wanted is Any:
        return _free(data, path)
    if wanted is float and isinstance(data, int | float | str) and not isinstance(data, bool):
        number = parse_number(data, path)
        if not math.isfinite(number):
            raise UserError(f"{path}: {data!r}; accepted: a finite number")
        return number
    if isinstance(data, origin or wanted) and not (wanted is int and isinstance(data, bool)):
        return _free(data, path) if origin is dict else data
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", dict: "fields"}
    raise UserError(f"{path}: {data!r}; accepted: {names[origin or wanted]}")


def _free(data: Any, path: str) -> Any:
    """What a field without a type of its own may hold: what JSON can say."""
    if isinstance(data, dict) and all(isinstance(key, str) for key in data):
        return {key: _free(value, f"{path}.{key}") for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_free(value, f"{path}.{number}") for number, value in enumerate(data)]
    if not (data is None or isinstance(data, bool | int | float | str)):
        raise UserError(f"{path}: {data!r}; accepted: numbers, texts, true, false, null, lists, or fields with names")
    return data


def override(original: Settings, assignments: list[str]) -> Settings:
    """The recipe, or a part of one, with `dotted.path=value` applied in order; values are YAML.

    Changing a `type` keeps the fields that the new kind has too.
    """
    data = to_data(original)
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals:
            raise UserError(f"override {assignment!r}: accepted: dotted.field=value, as in optim.lr=1e-3")
        _check_begins(data, path)
        _assign(data, path.split("."), _parse(text, path), path)
    changed: Settings = from_data(type(original), data)
    return changed


def flat(data: Any, path: str = "") -> dict[str, Any]:
    """Plain data as one level of dotted paths."""
    items = enumerate(data) if isinstance(data, list) else data.items() if isinstance(data, dict) else None
    if items is None:
        return {path: data}
    return {k: v for key, item in items for k, v in flat(item, f"{path}.{key}" if path else str(key)).items()}


def _parse(text: str, path: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise UserError(f"{path}: {text!r} is not valid YAML") from None


def _check_begins(data: dict[str, Any], path: str) -> None:
    """People leave out where a field is: `lr` for `optim.lr`."""
    first, last = path.split(".")[0], path.rpartition(".")[2]
    if first not in data:
        meant = sorted((known for known in flat(data) if known.rpartition(".")[2] == last), key=len)
        if meant:
            raise UserError(f"field {path!r}: there is none of that name; did you mean {' or '.join(meant[:3])}?")
        raise unknown("field", first, data)


def _assign(data: Any, keys: list[str], value: Any, path: str) -> None:
    node = data
    for key in keys[:-1]:
        try:
            node = node[int(key)] if isinstance(node, list) else node[key]
        except (KeyError, IndexError, ValueError, TypeError):
            known = range(len(node)) if isinstance(node, list) else node or ()
            raise unknown(f"field {path!r}: no", key, [str(name) for name in known]) from None
    key = keys[-1]
    if isinstance(node, list) and key.isdigit() and int(key) < len(node):
        node[int(key)] = value
    elif not isinstance(node, dict):
        raise UserError(f"{path}: {'.'.join(keys[:-1])} is {node!r} and has no field {key!r}")
    elif key == "type" and node.get("type") != value:
        _change_kind(node, value)
    else:
        node[key] = value


def _change_kind(node: dict[str, Any], kind: Any) -> None:
    for registry in KINDS.values():
        if node.get("type") in registry and isinstance(kind, str) and kind in registry:
            kept = {f.name for f in dataclasses.fields(registry[kind])}
            for name in set(node) - kept - {"type"}:
                del node[name]
    node["type"] = kind  # an unknown kind is reported with its path by from_data


def _tag(value: Any) -> str | None:
    for base, registry in KINDS.items():
        if isinstance(value, base):
            own = f"{type(value).__module__}.{type(value).__qualname__}"  # of one that somebody else wrote
            return next((name for name, kind in registry.items() if type(value) is kind), own)
    return None


def save(recipe: Recipe, path: Path) -> None:
    text = yaml.safe_dump(to_data(recipe), sort_keys=False)
    storage.replace_file(path, text.encode)


def load(path: Path) -> Recipe:
    try:
        return from_data(Recipe, yaml.safe_load(path.read_text()))
    except OSError as error:
        raise UserError(f"{path}: not a readable recipe: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a readable recipe: {' '.join(str(error).split())}") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
