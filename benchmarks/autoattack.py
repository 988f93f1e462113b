"""Our AutoAttack beside the reference, on the same model and images: is it the same attack, and how much faster?

    python -m benchmarks.autoattack RUN… --data cifar10:cifar10.npz --norms linf l2 --alone
    python -m benchmarks.autoattack RUN --data cifar10:cifar10.npz --ways plain fp32 tf32 bf16 bf16-compiled --sizes 250 500

The reference runs in float32, as its users run it. All times of a row are of one run, so their ratios mean something; of
several `--repeats` the fastest counts, since noise only ever adds. Compiling is timed apart. Verdicts are in float32, whatever
the way.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.reference import VERSION, now, run_reference, seconds_of
from robustvit.attacks import APGD, GAMA, PGD, Attack, autoattack
from robustvit.data import DataSpec, Images
from robustvit.evaluation import Outcome, evaluate
from robustvit.models import load_model
from robustvit.threat import Threat, parse_number

RESULT = Path(__file__).parent / "results" / "autoattack.json"
# Precision of the attack, and how the model is asked: `plain` is the reference form of our own code.
WAYS = {
    "plain": ("fp32", "never"),
    "fp32": ("fp32", "auto"),
    "tf32": ("tf32", "auto"),
    "bf16": ("bf16", "auto"),
    "tf32-compiled": ("tf32", "default"),
    "bf16-compiled": ("bf16", "default"),
    "fp32-compiled": ("fp32", "default"),
}


def compare(
    model: nn.Module,
    images: Images,
    threat: Threat,
    device: str,
    ways: tuple[str, ...] = ("fp32",),
    alone: bool = True,
    repeats: int = 1,
) -> dict[str, Any]:
    """The reference, our AutoAttack in several ways and, if asked for, strong attacks alone: one row of plain data."""
    warm_up(model, images, device)
    reference, ours = (
        run_reference(model, images, threat, device),
        {way: timed(model, images, threat, device, way) for way in ways},
    )
    for _ in range(1, repeats):
        reference = faster(reference, run_reference(model, images, threat, device))
        ours = {way: min(ours[way], timed(model, images, threat, device, way), key=lambda run: run[1]) for way in ways}
    outcome = ours[ways[0]][0]
    return {
        "norm": threat.norm,
        "eps": threat.eps,
        "n": outcome.n,
        "clean": float((outcome.arrays["clean_prediction"] == outcome.arrays["y"]).mean()),
        "reference": {
            "accuracy": float(reference["stands"].mean()),
            "seconds": seconds_of(reference["stages"]),
            "stages": reference["stages"],
        },
        "ways": {way: beside(reference["stands"], *run) for way, run in ours.items()},
        "alone": strengths(model, images, threat, device) if alone else {},
        "versions": outcome.provenance["versions"] | {"pyautoattack": VERSION},
    }


def timed(model: nn.Module, images: Images, threat: Threat, device: str, way: str) -> tuple[Outcome, float]:
    """Our AutoAttack, and its seconds from the images to the verdicts, the compiler's left out."""
    precision, compile = WAYS[way]
    attack = autoattack(threat, precision=precision)  # type: ignore[arg-type]
    started = now(device)
    outcome = judged(model, images, attack, device, compile)
    return outcome, now(device) - started - outcome.provenance["compile"]["seconds"]


def judged(model: nn.Module, images: Images, attack: Attack, device: str, compile: Any = "auto") -> Outcome:
    (outcome,) = evaluate(model, images, [attack], device=device, compile=compile, checks=False)
    return outcome


def beside(stands: Any, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """One way's run; `missed` are points that the reference broke and it did not."""
    ours = outcome.correct
    return {
        "accuracy": outcome.accuracy,
        "missed": int((ours & ~stands).sum()),
        "more": int((~ours & stands).sum()),
        "seconds": round(seconds, 3),
        "compile_seconds": outcome.provenance["compile"]["seconds"],
        "stages": outcome.provenance["stages"],
    }


def strengths(model: nn.Module, images: Images, threat: Threat, device: str) -> dict[str, float]:
    """Robust accuracy under single attacks."""
    attacks = (GAMA(threat, seed=0), APGD(threat, loss="targeted_dlr", seed=0), PGD(threat, steps=20, seed=0))
    return {attack.name: judged(model, images, attack, device).accuracy for attack in attacks}


def faster(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return min(one, other, key=lambda run: seconds_of(run["stages"]))


def warm_up(model: nn.Module, images: Images, device: str) -> None:
    """What a device does once, such as loading its libraries, is neither side's time."""
    judged(model, images.subset(slice(8)), PGD(Threat("linf", 0.01), steps=3, seed=0), device)


def scaled(model: nn.Module, images: Images, threat: Threat, device: str, way: str, sizes: list[int]) -> dict[int, float]:
    """Seconds for the first so many images: is the cost linear?"""
    return {size: round(timed(model, images.subset(slice(size)), threat, device, way)[1], 3) for size in sizes}


def table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        theirs, heads = row["reference"], ("robust", "missed", "more", "s", "times", "compile s")
        lines.append(f"{row['model']}, {row['norm']} {row['eps']:.4g}, n = {row['n']}, clean {row['clean']:.1%}")
        lines.append(f"  {'':<16}" + "".join(f"{head:>10}" for head in heads))
        lines.append(f"  {'reference':<16}{theirs['accuracy']:>10.1%}{'':>20}{theirs['seconds']:>10.1f}")
        for way, run in row["ways"].items():
            seconds = f"{run['seconds']:>10.1f}{theirs['seconds'] / run['seconds']:>10.2f}{run['compile_seconds']:>10.1f}"
            lines.append(f"  {way:<16}{run['accuracy']:>10.1%}{run['missed']:>10}{run['more']:>10}{seconds}")
        lines += [f"  alone: {name} {accuracy:.1%}" for name, accuracy in row["alone"].items()]
        if "sizes" in row:
            sizes = ", ".join(f"{size} images {seconds:.1f} s" for size, seconds in row["sizes"]["seconds"].items())
            lines.append(f"  {row['sizes']['way']}: {sizes}")
        first = next(iter(row["ways"]))
        lines.append(f"  passes (forward + backward) per image that entered, and seconds: {first} / reference")
        for ours, other in zip(row["ways"][first]["stages"], theirs["stages"], strict=False):
            per = [(stage["forward"] + stage["backward"]) / max(1, stage["entered"]) for stage in (ours, other)]
            lines.append(
                f"  {ours['name']:<16}{per[0]:>10,.0f}{per[1]:>10,.0f}{ours['seconds']:>10.1f}{other['seconds']:>10.1f}"
            )
    return "\n".join(lines)


def keep(row: dict[str, Any], result: Path) -> None:
    """Into the file of results, in the place of an earlier row about the same."""
    rows = json.loads(result.read_text()) if result.exists() else []
    rows = [other for other in rows if about(other) != about(row)]
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(json.dumps([*rows, row], indent=1) + "\n")


def about(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["model"], row["norm"], row["eps"], row["n"], row["versions"]["device"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="run folders, checkpoints or zoo:NAME")
    parser.add_argument("--data", required=True)
    parser.add_argument("--norms", nargs="+", choices=("linf", "l2", "l1"), default=("linf",))
    parser.add_argument("--eps-linf", default="8/255")
    parser.add_argument("--eps-l2", default="0.5")
    parser.add_argument("--eps-l1", default="12")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=("fp32",))
    parser.add_argument("--sizes", nargs="+", type=int, default=(), help="smaller numbers of images, for the last way")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="also strong attacks alone, and the checks of gradient masking")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    images, _ = DataSpec.parse(options.data).load("test").first(options.images)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    for run in options.runs:
        model = load_model(run)
        parameters = sum(p.numel() for p in model.parameters())
        for norm in options.norms:
            threat = Threat(norm, parse_number(getattr(options, f"eps_{norm}")))
            compared = compare(model, images, threat, device, tuple(options.ways), options.alone, options.repeats)
            row = {"model": Path(run).name.removeprefix("zoo:"), "parameters": parameters, **compared}
            if options.sizes:
                way = options.ways[-1]
                seconds = scaled(model, images, threat, device, way, options.sizes)
                row["sizes"] = {"way": way, "seconds": seconds | {row["n"]: row["ways"][way]["seconds"]}}
            rows.append(row)
            keep(row, options.out)
    print(table(rows))


if __name__ == "__main__":
    main()
