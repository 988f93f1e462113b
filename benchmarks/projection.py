"""What the exact projection costs: one PGD step's projection against the gradient it follows, on this machine.

    make bench

The projection is the nearest point of ball ∩ box; "clipped" is the usual shortcut (ball first, box second), which in ℓ2 and
ℓ1 loses part of the step. All times are of one run, so only their ratios mean something.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from robustvit.attacks import Queries
from robustvit.attacks.losses import cross_entropy
from robustvit.models import ModelSpec, build
from robustvit.threat import Threat
from robustvit.versions import versions

THREATS = (Threat("linf", 8 / 255), Threat("l2", 0.5), Threat("l1", 12.0))
RESULT = Path(__file__).parent / "results" / "projection.json"


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    x, y = torch.rand(128, 3, 32, 32, device=device), torch.randint(0, 10, (128,), device=device)
    model = build(ModelSpec("vit_mini")).to(device).eval().requires_grad_(False)
    gradient = seconds(lambda: Queries(model).gradient(x, cross_entropy, y))
    rows = []
    for threat in THREATS:
        x_far = x + 2 * threat.eps * threat.steepest(torch.randn_like(x))
        rows.append(
            {
                "norm": threat.norm,
                "projection_per_gradient": round(seconds(lambda t=threat, z=x_far: t.project(z, x)) / gradient, 4),
                "clipped_per_gradient": round(seconds(lambda t=threat, z=x_far: clipped(t, z, x)) / gradient, 4),
            }
        )
        print(rows[-1])
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(
        json.dumps({"model": "vit_mini", "rows": rows, "versions": versions(torch.device(device))}, indent=2) + "\n"
    )


def clipped(threat: Threat, x_adv: Tensor, x: Tensor) -> Tensor:
    """Scale into the ball, then clip to the box."""
    delta = x_adv - x
    if threat.norm == "linf":
        return (x + delta.clamp(-threat.eps, threat.eps)).clamp(0, 1)
    order = 2 if threat.norm == "l2" else 1
    length = delta.flatten(1).norm(p=order, dim=1).clamp(min=1e-12)
    return (x + delta * (threat.eps / length).clamp(max=1).view(-1, 1, 1, 1)).clamp(0, 1)


def seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """The fastest of several runs: noise only ever adds."""
    times = []
    for _ in range(repeats):
        _wait()
        started = time.perf_counter()
        work()
        _wait()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
