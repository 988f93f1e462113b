"""Is our AutoAttack the reference's? Both on the same model and images: accuracy after each stage, verdicts, model calls.

    python benchmarks/parity.py RUN… --data cifar10:cifar10.npz --eps-linf 8/255 --eps-l2 0.5 --images 1000

Needs pyautoattack, the reference AutoAttack, which `make setup` installs. Seconds are of one machine that may do other work
beside: only `benchmarks/autoattack.py` speaks of speed.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyautoattack
import torch
from torch import Tensor, nn

from robustvit.attacks import APGD, GAMA, PGD, Attack, autoattack
from robustvit.data import DataSpec, Images
from robustvit.evaluation import Outcome, evaluate
from robustvit.models import load_model
from robustvit.precision import exact
from robustvit.threat import Threat, parse_number

RESULT = Path(__file__).parent / "results" / "parity.json"
REFERENCE_NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}


def compare(model: nn.Module, images: Images, threat: Threat, device: str, batch_size: int = 500) -> dict[str, Any]:
    """Ours, the reference and single strong attacks on the same images, as one row of plain data."""
    ours = alone(model, images, autoattack(threat), device)
    reference = run_reference(model, images, threat, device, batch_size)
    strengths = (GAMA(threat, seed=0), APGD(threat, loss="targeted_dlr", seed=0), PGD(threat, steps=20, seed=0))
    stands = ours.correct
    return {
        "norm": threat.norm,
        "eps": threat.eps,
        "n": ours.n,
        "clean": float((ours.arrays["clean_prediction"] == ours.arrays["y"]).mean()),
        "ours": ours.accuracy,
        "reference": float(reference["stands"].mean()),
        "reference_broke_ours_did_not": int((stands & ~reference["stands"]).sum()),
        "ours_broke_reference_did_not": int((~stands & reference["stands"]).sum()),
        "ours_stages": ours.provenance["stages"],
        "reference_stages": reference["stages"],
        "alone": {attack.name: alone(model, images, attack, device).accuracy for attack in strengths},
        "warnings": [warning["name"] for warning in ours.provenance["warnings"]],
        "versions": ours.provenance["versions"] | {"pyautoattack": pyautoattack.__version__},
    }


def alone(model: nn.Module, images: Images, attack: Attack, device: str) -> Outcome:
    (outcome,) = evaluate(model, images, [attack], device=device)
    return outcome


def run_reference(model: nn.Module, images: Images, threat: Threat, device: str, batch_size: int) -> dict[str, Any]:
    """The reference's stages one after the other, each on what still stands, with the calls it makes."""
    counted = Counted(model.to(device).eval())
    x, y = (tensor.to(device) for tensor in images.batch(slice(None)))
    stages = []
    with exact():
        with torch.no_grad():
            stands = torch.cat([model(part).argmax(1) for part in x.split(batch_size)]) == y
        norm = REFERENCE_NORMS[threat.norm]
        attack = pyautoattack.AutoAttack(counted, norm=norm, eps=threat.eps, seed=0, version="standard", device=device)
        for name in list(attack.attacks_to_run):
            rows = stands.nonzero().squeeze(1)
            if not len(rows):
                break
            attack.attacks_to_run, counted.forwards, counted.backwards = [name], 0, 0
            started = time.monotonic()
            x_adv, _ = attack.run_standard_evaluation(x[rows], y[rows], batch_size=batch_size)
            seconds, calls = time.monotonic() - started, (counted.forwards, counted.backwards)
            with torch.no_grad():
                stands[rows] = torch.cat([model(part).argmax(1) for part in x_adv.split(batch_size)]) == y[rows]
            broken = len(rows) - int(stands[rows].sum())
            record = {"name": name, "entered": len(rows), "broken": broken, "forward": calls[0], "backward": calls[1]}
            stages.append({**record, "seconds": round(seconds, 3)})
    return {"stands": stands.cpu().numpy(), "stages": stages}


class Counted(nn.Module):
    """Counts the images that pass forward and the ones that gradients come back for."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.forwards, self.backwards = model, 0, 0

    def forward(self, x: Tensor) -> Tensor:
        self.forwards += len(x)
        logits: Tensor = self.model(x)
        if logits.requires_grad:
            logits.register_hook(self._count)
        return logits

    def _count(self, grad: Tensor) -> None:
        self.backwards += len(grad)


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'model':<24}{'threat':<14}{'n':>6}{'clean':>8}{'ours':>8}{'ref.':>8}{'missed':>8}{'more':>6}  alone"]
    for row in rows:
        accuracies = "".join(f"{row[key]:>8.1%}" for key in ("clean", "ours", "reference"))
        counts = f"{row['reference_broke_ours_did_not']:>8}{row['ours_broke_reference_did_not']:>6}"
        others = ", ".join(f"{name} {accuracy:.1%}" for name, accuracy in row["alone"].items())
        lines.append(f"{row['model']:<24}{row['norm']} {row['eps']:<9.4g}{row['n']:>6}{accuracies}{counts}  {others}")
    lines.append("\npasses (forward + backward) per image that entered the stage, ours / reference")
    for row in rows:
        for ours, theirs in zip(row["ours_stages"], row["reference_stages"], strict=False):
            per = [(stage["forward"] + stage["backward"]) / max(1, stage["entered"]) for stage in (ours, theirs)]
            lines.append(f"{row['model']:<24}{row['norm']:<6}{ours['name']:<10}{per[0]:>10,.0f}{per[1]:>10,.0f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--data", required=True)
    parser.add_argument("--norms", nargs="+", choices=("linf", "l2"), default=("linf", "l2"))
    parser.add_argument("--eps-linf", default="8/255")
    parser.add_argument("--eps-l2", default="0.5")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    images, _ = DataSpec.parse(options.data).load("test").first(options.images)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    eps = {"linf": options.eps_linf, "l2": options.eps_l2}
    threats = [Threat(norm, parse_number(eps[norm])) for norm in options.norms]
    rows = []
    for run in options.runs:
        model = load_model(run)
        parameters = sum(np.prod(p.shape) for p in model.parameters())
        for threat in threats:
            rows.append({"model": Path(run).stem, "parameters": int(parameters), **compare(model, images, threat, device)})
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
