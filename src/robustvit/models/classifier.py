"""Classifier: images in [0, 1] in, logits out. Normalisation happens here and nowhere else."""

import hashlib
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor, nn

from robustvit import storage
from robustvit.errors import UserError, unknown
from robustvit.models import architectures as architectures  # registers our models with timm
from robustvit.models.adapt import ADAPTATIONS, Adaptation, adapt
from robustvit.models.layout import laid_out
from robustvit.zoo import PREFIX as ZOO
from robustvit.zoo import find as zoo_folder


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A timm model by name, with what its constructor takes in `args`, and the normalisation put before it.

    `init` is a model whose weights it starts from: whatever `load_model` takes as text. Another resolution or patch size is
    adapted to by `adaptation` (models/adapt.py), and the classifier starts anew if the class counts differ. `mean`, `std` and
    `crop`, the share of a resized image's side that it sees, are, unless given, those of that model; without one nothing is
    normalised, and the crop is timm's for a model of that name.
    """

    name: str
    num_classes: int = 10
    channels: int = 3
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    args: dict[str, Any] = field(default_factory=dict)
    crop: float | None = None
    init: str | None = None
    adaptation: Adaptation = "sum"

    def __post_init__(self) -> None:
        if self.num_classes < 2:
            raise UserError(f"model.num_classes: {self.num_classes}; accepted: 2 or more")
        if self.channels < 1:
            raise UserError(f"model.channels: {self.channels}; accepted: 1 or more")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in (1, self.channels):
                raise UserError(f"model.{name}: {values}; accepted: 1 number, or {self.channels}, one a channel")
            if values is not None and not all(map(math.isfinite, values)):
                raise UserError(f"model.{name}: {values}; accepted: finite numbers")
        if self.std is not None and min(self.std) <= 0:
            raise UserError(f"model.std: {self.std}; accepted: numbers above 0")
        if self.crop is not None and not 0 < self.crop <= 1:
            raise UserError(f"model.crop: {self.crop}; accepted: null, or a share above 0, up to 1")
        if self.adaptation not in ADAPTATIONS:
            raise UserError(f"model.adaptation: {self.adaptation!r}; accepted: {', '.join(ADAPTATIONS)}")


class Classifier(nn.Module):
    """Normalisation + backbone.

    `crop` is the share of a resized image's side that the model was published to see (timm's crop_pct); `classes` are the names
    of what it tells apart, where its training knew them.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int | None = None,
        mean: tuple[float, ...] = (0.0,),
        std: tuple[float, ...] = (1.0,),
        input_size: tuple[int, int, int] | None = None,
        crop: float = 1.0,
        classes: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.num_classes = num_classes if num_classes is not None else getattr(backbone, "num_classes", None)
        self.input_size = input_size
        self.crop = crop
        self.classes = classes
        # Not in the state dict: they come with the specification, and the weights stay those of the plain backbone.
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.backbone((x - self.mean) / self.std)


def build(spec: ModelSpec) -> Classifier:
    """A model to train: freshly initialised, or with the weights that `init` names."""
    if spec.init is None:
        return _initialised(spec)
    try:
        with torch.random.fork_rng(devices=[]):  # what is new in the model starts as it would without
            source = load_model(spec.init)
        model = _initialised(_normalised_like(spec, source))
        adapt(source.backbone, model.backbone, spec.adaptation)
    except UserError as error:
        raise UserError(f"model.init: {spec.init!r} for {spec.name}: {error}") from None
    return model


def resolved(spec: ModelSpec, model: Classifier) -> ModelSpec:
    """The specification that builds this model when what it started from is not there any more."""
    return _normalised_like(spec, model)


def _normalised_like(spec: ModelSpec, model: Classifier) -> ModelSpec:
    mean, std = (tuple(buffer.flatten().tolist()) for buffer in (model.mean, model.std))
    own: dict[str, Any] = {"mean": mean, "std": std, "crop": model.crop}
    return replace(spec, **{name: value for name, value in own.items() if getattr(spec, name) is None})


def _initialised(spec: ModelSpec) -> Classifier:
    if not timm.is_model(spec.name):
        raise unknown("model", spec.name, timm.list_models())
    try:
        backbone = timm.create_model(spec.name, num_classes=spec.num_classes, in_chans=spec.channels, **spec.args)
    except Exception as error:  # constructors refuse in many ways, some without a word
        why = str(error) or type(error).__name__
        raise UserError(f"model.args: {spec.args} is not accepted by {spec.name}: {why}") from error
    size, crop = _seen_size(backbone, spec)
    return Classifier(laid_out(backbone), spec.num_classes, spec.mean or (0.0,), spec.std or (1.0,), size, spec.crop or crop)


def load_model(model: str | Path | nn.Module, checkpoint: str = "best") -> Classifier:
    """A ready model in eval mode: a run folder, a checkpoint file, `zoo:NAME`, a timm name (published weights) or a module.

    A module from Python must take images in [0, 1]; wrap it in `Classifier(module, mean=…, std=…)` if it does not.
    """
    # Imported here: a checkpoint records a Recipe's model, so that module needs this one.
    from robustvit.training.checkpoint import load_weights

    if isinstance(model, nn.Module):
        return (model if isinstance(model, Classifier) else Classifier(model)).eval()
    if not isinstance(model, str | Path):
        raise UserError(f"model: a {type(model).__name__}; accepted: a torch module, or text: a run, a checkpoint, a name")
    path = zoo_folder(str(model)) if str(model).startswith(ZOO) else Path(model)
    if (path / "recipe.yaml").is_file():
        path = path / "checkpoints" / f"{checkpoint}.safetensors"
    if path.is_file() or path.suffix == ".safetensors":
        spec, weights = load_weights(path)
        loaded = _initialised(spec)  # whatever it started from need not be there any more
        wanted, given = ({name: tuple(w.shape) for name, w in d.items()} for d in (loaded.state_dict(), weights))
        wrong = [name for name in wanted | given if wanted.get(name) != given.get(name)]
        if wrong:
            raise UserError(
                f"{path}: its weights do not fit {spec.name}: {len(wrong)} differ, the first is {wrong[0]}, "
                f"of shape {given.get(wrong[0])} there and {wanted.get(wrong[0])} in the model"
            )
        loaded.load_state_dict(weights)
        loaded.classes = tuple(storage.read_meta(path).get("classes") or ()) or None
        return loaded.eval()
    if path.is_dir():
        raise no_run(path)
    check_there(str(model))
    if str(model) in architectures.OWN:
        raise UserError(f"model {str(model)!r}: one of the project's own, without published weights; accepted: a run, zoo:NAME")
    return _published(str(model))


def no_run(path: Path) -> UserError:
    """The error for a folder that is no run, or for a run's recipe in its place."""
    if path.name == "recipe.yaml":
        return UserError(f"model {str(path)!r}: a recipe; accepted: the folder of its run, {str(path.parent)!r}")
    runs = sorted(str(recipe.parent) for recipe in path.glob("*/recipe.yaml"))
    within = f"; runs in it: {', '.join(runs)}" if runs else ""
    return UserError(f"model {str(path)!r}: the folder holds no recipe.yaml, so it is no run of robustvit{within}")


def check_there(model: str) -> None:
    """Refuse a run that is yet to be trained, and a name that nobody knows."""
    from robustvit.recipes import RECIPES  # which are made of model specifications

    path = Path(model)
    if path.exists() or path.suffix == ".safetensors" or timm.is_model(model):
        return
    if path.name in RECIPES:
        raise UserError(f"model {model!r}: no such run yet; train it first: robustvit train {path.name} --out {model}")
    if path.parent != Path():
        raise unknown("run or checkpoint", model, map(str, path.parent.glob("*")))
    raise unknown("model (no such run folder or file either)", model, timm.list_models())


def _published(name: str) -> Classifier:
    try:
        backbone = timm.create_model(name, pretrained=True)
    except Exception as error:  # the hub client raises many kinds; all mean: no weights
        raise UserError(f"model {name!r}: its published weights could not be loaded: {error}") from error
    settings = timm.data.resolve_model_data_config(backbone)
    size, crop = tuple(settings["input_size"]), settings["crop_pct"]
    return Classifier(laid_out(backbone), None, settings["mean"], settings["std"], size, crop).eval()


def fingerprint(model: nn.Module) -> str:
    """A hash of every weight and buffer, normalisation included: which model a number belongs to."""
    digest = hashlib.sha256()
    for name, tensor in sorted([*model.named_parameters(), *model.named_buffers()]):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _seen_size(backbone: nn.Module, spec: ModelSpec) -> tuple[tuple[int, int, int] | None, float]:
    """The size that the model insists on, None if it takes any, and timm's crop_pct for images of its own size."""
    published: dict[str, Any] = getattr(backbone, "pretrained_cfg", None) or {}
    own = tuple(published.get("input_size", ()))[1:]
    size = getattr(getattr(backbone, "patch_embed", None), "img_size", None)
    if size is None and published.get("fixed_input_size") and "img_size" not in spec.args:
        size = own
    crop = 1.0 if size and tuple(size) != own else published.get("crop_pct", 1.0)
    return (spec.channels, *size) if size else None, crop
