"""evaluate(): a model and a suite of attacks to Outcomes, each with its evidence."""

import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from robustvit.attacks import Attack
from robustvit.config import to_data
from robustvit.data import DataSpec, Images
from robustvit.evaluation.judge import check_fits, judge
from robustvit.evaluation.outcome import Outcome
from robustvit.evaluation.suites import Suite
from robustvit.models import fingerprint, load_model
from robustvit.progress import progress

EXAMPLES = 8  # adversarial images kept with an outcome, for the report


def evaluate(
    model: str | Path | nn.Module,
    data: str | Images,
    suite: Suite,
    out: str | Path | None = None,
    images: int | None = None,
    sample_seed: int | None = None,
    device: str | None = None,
    batch_size: int = 256,
) -> list[Outcome]:
    """Judge a model under every attack of the suite; with `out`, write the outcomes to OUT/outcomes.

    `images` takes the first so many, or with `sample_seed` a sample of that size.
    """
    name = type(model).__name__ if isinstance(model, nn.Module) else str(model)
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    classifier = load_model(model).to(where)
    everything = data if isinstance(data, Images) else DataSpec.parse(data).load("test")
    chosen, index = everything.first(images, sample_seed)
    chosen = chosen.to(where)
    check_fits(classifier, chosen)
    common = {
        "model": {"name": name, "fingerprint": fingerprint(classifier)},
        "data": {"name": everything.name, "size": len(everything), "sample_seed": sample_seed, "classes": chosen.classes},
        "versions": versions(where),
    }
    outcomes = []
    with progress(len(chosen) * len(suite), f"evaluate {name}") as advance:
        for attack in suite:
            started = time.monotonic()
            verdicts = judge(classifier, chosen, attack, batch_size, EXAMPLES, advance)
            seconds = time.monotonic() - started
            arrays = {
                "index": index.numpy(),
                "y": verdicts.y.numpy(),
                "clean_prediction": verdicts.clean.numpy(),
                "attacked_prediction": verdicts.attacked.numpy(),
                "example_image": chosen.batch(slice(EXAMPLES))[0].cpu().numpy(),
                "example_attacked": verdicts.examples.numpy(),
            }
            provenance = {**_describe(attack), "seconds": round(seconds, 3), **common}
            outcomes.append(Outcome(outcome_name(attack), verdicts.correct.numpy(), provenance, arrays))
            if out is not None:
                outcomes[-1].save(Path(out) / "outcomes")
    return outcomes


def outcome_name(attack: Attack | None) -> str:
    return f"{attack.name} {attack.threat.norm} {attack.threat.eps:.6g}" if attack else "clean"


def _describe(attack: Attack | None) -> dict[str, Any]:
    if attack is None:
        return {"threat": None, "attack": None, "seed": None}
    return {"threat": to_data(attack.threat), "attack": to_data(attack), "seed": attack.seed}


def versions(device: torch.device) -> dict[str, str]:
    packages = {name: version(name) for name in ("robustvit", "torch", "torchvision", "timm", "numpy")}
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine() + " CPU"
    return {**packages, "python": platform.python_version(), "device": hardware}
