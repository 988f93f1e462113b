"""analyze(): models and data by name to a Finding on disk."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import yaml

from robustvit import config
from robustvit.analysis import ANALYSES, Analysis, Finding, Subject
from robustvit.data import DataSpec, Images
from robustvit.device import find_device
from robustvit.errors import UserError, unknown
from robustvit.evaluation.defaults import Defaults, defaults_of, run_of
from robustvit.models import load_model
from robustvit.report.contents import read_log
from robustvit.training.checkpoint import read


def analyze(
    analysis: Analysis,
    models: Sequence[str | Path],
    data: str | DataSpec | Images,
    out: str | Path | None = None,
    images: int | None = None,
    sample_seed: int | None = None,
    device: str | None = None,
) -> Finding:
    """Look at models, named as in `evaluate`, through test images; with `out`, write OUT/analyses/NAME.json and .npz.

    Checkpoints RUN/checkpoints/*.safetensors of one run are its epochs.
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError(f"analyze: started as {os.environ['WORLD_SIZE']} processes; accepted: one")
    if not models:
        raise UserError("models: none given; accepted: one or more")
    place = find_device(device)
    subjects = _subjects([str(model) for model in models])
    spec = DataSpec.parse(data) if isinstance(data, str) else data
    if isinstance(spec, DataSpec):
        spec = spec.fitted(subjects[0].model.input_size, subjects[0].model.crop)
    everything = spec if isinstance(spec, Images) else spec.load("test")
    chosen, _ = everything.first(images, sample_seed)
    for subject in subjects:
        subject.model.to(place)
    finding = analysis(subjects, chosen, Path(out) if out is not None else None)
    about = None if isinstance(spec, Images) else config.to_data(spec)
    source = {"models": [str(model) for model in models], "data": about, "sample_seed": sample_seed}
    finding = replace(finding, provenance=finding.provenance | {"source": source})
    if out is not None:
        finding.save(Path(out))
    return finding


def defaults_for(models: Sequence[str]) -> Defaults:
    """What the command line leaves open, by the first model; a checkpoint has the defaults of its run."""
    run = run_of(Path(models[0]))
    return defaults_of(str(run or models[0]))


def build_analysis(name: str, settings: Sequence[str], defaults: Defaults, norm: str | None, eps: str | None) -> Analysis:
    """The analysis of that name with `field=value` settings (values are YAML) and the threat that is asked for.

    Without one, an analysis' own threat or else what the model was trained against.
    """
    if name not in ANALYSES:
        raise unknown("analysis", name, ANALYSES)
    kind: Any = ANALYSES[name]
    data: dict[str, Any] = {}
    for setting in settings:
        field, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f"--set {setting!r}: accepted: field=value, as in --set steps=50")
        try:
            data[field] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise UserError(f"{field}: {text!r} is not valid YAML") from None
    own = {field.name: field.default for field in fields(kind)}.get("threat")
    asked = "--norm" if norm else "--eps" if eps else None
    if asked and (own is None or "threat" in data):
        raise UserError(f"{asked}: analysis {name!r} " + ("takes no threat" if own is None else "has its threat from --set"))
    if asked or (own is MISSING and "threat" not in data):
        data["threat"] = config.to_data(defaults.threat(norm, eps))
    analysis: Analysis = config.from_data(kind, data, name)
    return analysis


def _subjects(models: list[str]) -> list[Subject]:
    """Runs by the names of their folders, unless two have the same."""
    named = [_named(model) for model in models]
    twice = {each for each, count in Counter(named).items() if count > 1}
    return [
        Subject(model if (name, epoch) in twice else name, load_model(model), epoch)
        for model, (name, epoch) in zip(models, named, strict=True)
    ]


def _named(model: str) -> tuple[str, float | None]:
    """The name to show, and the epoch of a run's checkpoint."""
    path = Path(model)
    if (path / "recipe.yaml").is_file():
        return path.resolve().name, None
    run = run_of(path)
    return (run.resolve().name, _epoch(path, run / "metrics.jsonl")) if run else (model, None)


def _epoch(checkpoint: Path, log: Path) -> float | None:
    """When it was made, by the run's log; None if that does not go so far."""
    _, meta = read(checkpoint)
    records = read_log(log) if log.is_file() else []
    return next((record["epoch"] for record in records if record["step"] == meta.get("step")), None)
