"""Adversarial training, ours beside the same step written the peers' way, in one run.

    python -m benchmarks.training                      # what suits the device: three workloads on a GPU, two on a CPU
    python -m benchmarks.training vit-b2-trades-10 --ways peers bf16 bf16-compiled

The peers' way is float32, eager, with parameters that take gradients while the model is attacked and, in TRADES, the clean
images asked about again at each attack step. Useful work counts a forward pass as 1, an attack step as 2, a training step as 3;
its FLOPs are two a multiply–add, attention included. Compiling is timed apart.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor

from benchmarks.time_spent import where_time_goes
from robustvit.attacks import PGD
from robustvit.config import Optim, Recipe, to_data
from robustvit.data import DataSpec
from robustvit.models import ModelSpec, build
from robustvit.models.flops import cost_of
from robustvit.objectives import PGDAT, TRADES
from robustvit.objectives.adversarial import Adversarial
from robustvit.threat import Threat
from robustvit.training.learner import Learner
from robustvit.training.schedule import Phase
from robustvit.versions import versions

RESULT = Path(__file__).parent / "results" / "training.json"
# Precision of the recipe, and torch's mode of compiling.
WAYS = {
    "plain": ("fp32", "never"),
    "tf32": ("tf32", "never"),
    "bf16": ("bf16", "never"),
    "tf32-compiled": ("tf32", "default"),
    "bf16-compiled": ("bf16", "default"),
    "fp32-compiled": ("fp32", "default"),
    "bf16-tuned": ("bf16", "max-autotune-no-cudagraphs"),
}
DEFAULT_WAYS = {"cuda": ("peers", "tf32", "bf16", "bf16-compiled"), "cpu": ("peers", "plain")}
TURNS = 20  # of each way on a CPU
FOUR, EIGHT = Threat("linf", 4 / 255), Threat("linf", 8 / 255)


@dataclass(frozen=True, slots=True)
class Workload:
    model: ModelSpec
    side: int
    objective: Adversarial
    batch: int
    peers_batch: int  # float32 with all gradients needs more memory
    device: str
    optim: Optim = field(default_factory=partial(Optim, "adamw", lr=5e-4, weight_decay=0.5))
    recompute: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.model.channels, self.side, self.side

    @property
    def flops(self) -> float:
        """Useful ones, of an image in a step."""
        return 2.0 * cost_of(self.model, self.shape).with_attention * self.objective.cost

    def recipe(self, precision: str, compile: str) -> Recipe:
        return Recipe(
            name="benchmark",
            model=self.model,
            data=DataSpec("digits"),  # never read
            phases=(Phase(self.objective, epochs=1),),
            optim=self.optim,
            batch_size=self.batch,
            precision=precision,  # type: ignore[arg-type]
            compile=compile,  # type: ignore[arg-type]
            recompute=self.recompute,
        )

    def images(self, count: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        x = torch.rand(count, *self.shape, generator=generator).to(self.device)
        return x, torch.randint(0, self.model.num_classes, (count,), generator=generator).to(self.device)


def _trades(threat: Threat, **changes: Any) -> TRADES:
    return TRADES(PGD(threat, steps=10, step=0.25, step_unit="eps", loss="kl"), **changes)


def _fgsm(threat: Threat) -> PGDAT:
    return PGDAT(PGD(threat, steps=1, step=1.5), label_smoothing=0.1)


XCIT = ModelSpec("xcit_small_12_p16_224", num_classes=1000, args={"drop_path_rate": 0.05})
LION = Optim("lion", lr=1e-4, weight_decay=0.5)
VIT_B = ModelSpec("vit_base_patch2_32")
WORKLOADS = {
    "xcit-s12-fgsm": Workload(XCIT, 224, _fgsm(FOUR), 512, 256, "cuda"),
    "convnext-t-fgsm": Workload(ModelSpec("convnext_tiny", num_classes=1000), 224, _fgsm(FOUR), 256, 256, "cuda"),
    "vit-b2-trades-10": Workload(VIT_B, 32, _trades(EIGHT, beta=3.0, label_smoothing=0.4), 512, 128, "cuda", LION),
    "vit-b2-trades-10-recompute": Workload(VIT_B, 32, _trades(EIGHT, beta=3.0), 1024, 128, "cuda", LION, recompute=True),
    "vit-mini-trades-10": Workload(ModelSpec("vit_mini"), 32, _trades(EIGHT), 64, 64, "cpu"),
    "vit-nano-pgd-10": Workload(
        ModelSpec("vit_nano", channels=1), 8, PGDAT(PGD(Threat("linf", 0.12), steps=10)), 128, 128, "cpu"
    ),
    "resnet-mini-pgd-5": Workload(ModelSpec("resnet_mini"), 32, PGDAT(PGD(EIGHT, steps=5)), 64, 64, "cpu"),
}


def ours(workload: Workload, way: str) -> Callable[[int], None]:
    """One step of a run by its number."""
    precision, compile = WAYS[way]
    recipe = workload.recipe(precision, compile)
    torch.manual_seed(0)
    learner = Learner(recipe, Accelerator(cpu=workload.device == "cpu"), build(workload.model))
    learner.begin(recipe.phases[0])
    learner.compile(recipe.compile)
    x, y = workload.images(workload.batch)

    def step(number: int) -> None:
        learner.step([(x, y)], 1, workload.objective, 0.0, number)

    return step


def peers(workload: Workload) -> Callable[[int], None]:
    """The same step as it is usually written."""
    torch.manual_seed(0)
    model = build(workload.model).to(workload.device)
    optim, objective = workload.optim, workload.objective
    adversary = objective.adversary
    assert isinstance(adversary, PGD)
    assert isinstance(objective, PGDAT | TRADES)
    decay = {"lr": optim.lr, "weight_decay": optim.weight_decay}
    if optim.type == "lion":
        from timm.optim import Lion

        optimizer: torch.optim.Optimizer = Lion(model.parameters(), **decay)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), **decay)
    x, y = workload.images(workload.peers_batch)
    eps, smoothing = adversary.threat.eps, objective.label_smoothing

    def divergence(x_adv: Tensor) -> Tensor:
        return F.kl_div(F.log_softmax(model(x_adv), 1), F.softmax(model(x), 1), reduction="batchmean")

    def step(number: int) -> None:
        model.eval()
        x_adv = (x + torch.empty_like(x).uniform_(-eps, eps)).clamp(0, 1)
        for _ in range(adversary.steps):
            x_adv = x_adv.detach().requires_grad_()
            loss = divergence(x_adv) if isinstance(objective, TRADES) else F.cross_entropy(model(x_adv), y)
            (grad,) = torch.autograd.grad(loss, [x_adv])
            x_adv = x_adv.detach() + adversary.step_size * grad.sign()
            x_adv = torch.min(torch.max(x_adv, x - eps), x + eps).clamp(0, 1)
        model.train()
        optimizer.zero_grad()
        if isinstance(objective, TRADES):
            loss = F.cross_entropy(model(x), y, label_smoothing=smoothing) + objective.beta * divergence(x_adv.detach())
        else:
            loss = F.cross_entropy(model(x_adv.detach()), y, label_smoothing=smoothing)
        loss.backward()
        optimizer.step()

    return step


@dataclass
class Pace:
    """Times steps: the first, which compiles, apart from the others."""

    step: Callable[[int], object] | None
    device: str
    first: float = 0.0
    seconds: float = float("inf")  # of a step, at best
    done: int = 0

    def warm_up(self) -> None:
        self.first = self._timed(1)
        self._timed(2)

    def run(self, least: float) -> None:
        """So many seconds or more; the fastest round counts, since noise only ever adds."""
        spent = 0.0
        while spent < least:
            taken = self._timed(3)
            self.seconds, spent = min(self.seconds, taken / 3), spent + taken

    def once(self) -> None:
        self.seconds = min(self.seconds, self._timed(1))

    def _timed(self, steps: int) -> float:
        assert self.step
        self._wait()
        started = time.perf_counter()
        for _ in range(steps):
            self.step(self.done)
            self.done += 1
        self._wait()
        return time.perf_counter() - started

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


Measured = tuple[dict[str, Pace], dict[str, dict[str, Any]]]


def one_by_one(workload: Workload, ways: Sequence[str], least: float) -> Measured:
    """On a GPU, which nobody shares: each way alone, since the next one needs its memory."""
    paces, rows = {}, {}
    for way in ways:
        paces[way] = pace = _pace(workload, way)
        pace.run(least)
        rows[way] = {"memory_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2)}
        if way == ways[-1]:
            rows[way]["time"] = where_time_goes(partial(pace.run, 0.1), workload.device)
        pace.step = None
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return paces, rows


def by_turns(workload: Workload, ways: Sequence[str]) -> Measured:
    """On a CPU, which other programs share: all ways take turns, a step each, in changing order."""
    paces = {way: _pace(workload, way) for way in ways}
    for turn in range(TURNS):
        for pace in list(paces.values())[:: -1 if turn % 2 else 1]:
            pace.once()
    rows: dict[str, dict[str, Any]] = {way: {"memory_gb": None} for way in ways}
    last = ways[-1]  # only now: a profiler slows what comes after it
    rows[last]["time"] = where_time_goes(partial(paces[last].run, 0.1), workload.device)
    return paces, rows


def _pace(workload: Workload, way: str) -> Pace:
    torch._dynamo.reset()
    pace = Pace(peers(workload) if way == "peers" else ours(workload, way), workload.device)
    pace.warm_up()
    return pace


def measure(name: str, ways: tuple[str, ...], least: float) -> dict[str, Any]:
    """All ways of a workload, of the last one also where its time goes."""
    workload = WORKLOADS[name]
    peak = matrix_peak(workload.device)
    paces, rows = one_by_one(workload, ways, least) if workload.device == "cuda" else by_turns(workload, ways)
    for way, pace in paces.items():
        batch = workload.peers_batch if way == "peers" else workload.batch
        useful = workload.flops * batch / pace.seconds
        rows[way] |= {
            "batch": batch,
            "images_per_second": round(batch / pace.seconds, 2),
            "useful_tflops": round(useful / 1e12, 3),
            "of_matrix_peak": round(useful / peak, 4),
            "compile_seconds": round(max(0.0, pace.first - pace.seconds), 1) if "compiled" in way or "tuned" in way else 0.0,
        }
    return {
        "workload": name,
        "model": workload.model.name,
        "pixels": workload.side,
        "objective": to_data(workload.objective),
        "passes": workload.objective.cost,
        "useful_gflop_per_image": round(workload.flops / 1e9, 2),
        "matrix_peak_tflops": round(peak / 1e12, 2),
        "ways": rows,
        "versions": versions(torch.device(workload.device)),
    }


def matrix_peak(device: str) -> float:
    """FLOP/s of a large matrix product, in bf16 on a GPU and float32 on a CPU."""
    size, dtype = (8192, torch.bfloat16) if device == "cuda" else (2048, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    pace = Pace(lambda number: torch.mm(a, b), device)
    pace.warm_up()
    pace.run(1.0)
    return 2.0 * size**3 / pace.seconds


def table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        lines.append(
            f"{row['workload']}: {row['useful_gflop_per_image']} useful GFLOP an image, matrix products at "
            f"{row['matrix_peak_tflops']} TFLOP/s"
        )
        heads = ("batch", "images/s", "TFLOP/s", "of peak", "times", "GB", "compile s")
        lines.append(f"  {'':<16}" + "".join(f"{head:>10}" for head in heads))
        slowest = next(iter(row["ways"].values()))["images_per_second"]
        for way, run in row["ways"].items():
            gain = run["images_per_second"] / slowest
            rates = f"{run['batch']:>10}{run['images_per_second']:>10.1f}{run['useful_tflops']:>10.2f}"
            rates += f"{run['of_matrix_peak']:>10.1%}{gain:>10.2f}"
            lines.append(f"  {way:<16}{rates}{run['memory_gb'] or 0:>10.1f}{run['compile_seconds']:>10.1f}")
            lines += [f"    {share:>6.1%} {kind}" for kind, share in run.get("time", {}).items()]
    return "\n".join(lines)


def keep(row: dict[str, Any], result: Path) -> None:
    """Into the file of results, in the place of an earlier row about the same."""
    rows = json.loads(result.read_text()) if result.exists() else []
    same = [(other["workload"], other["versions"]["device"]) == (row["workload"], row["versions"]["device"]) for other in rows]
    rows = [other for other, replaced in zip(rows, same, strict=True) if not replaced]
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(json.dumps([*rows, row], indent=1) + "\n")


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", help=", ".join(WORKLOADS))
    parser.add_argument("--ways", nargs="+", choices=("peers", *WAYS), default=DEFAULT_WAYS[device])
    parser.add_argument("--seconds", type=float, default=3.0, help="for each way, at least")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    rows = []
    for name in options.workloads or [name for name, workload in WORKLOADS.items() if workload.device == device]:
        rows.append(measure(name, tuple(options.ways), options.seconds))
        keep(rows[-1], options.out)
        print(table(rows[-1:]), flush=True)


if __name__ == "__main__":
    main()
