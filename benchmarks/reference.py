"""The reference AutoAttack, stage by stage, with the images it asks about and the seconds it takes.

Needs pyautoattack, which `make setup` installs.
"""

import time
from typing import Any

import numpy as np
import pyautoattack
import torch
from torch import Tensor, nn

from robustvit.data import Images
from robustvit.precision import exact
from robustvit.threat import Threat

VERSION = pyautoattack.__version__
NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}


def run_reference(model: nn.Module, images: Images, threat: Threat, device: str, batch_size: int = 500) -> dict[str, Any]:
    """Which images stand (`stands`), and for each stage what entered, what broke, model calls and seconds.

    float32 without TF32, as its users run it; every example is asked about once more outside the clock.
    """
    counted = Counted(model.to(device).eval())
    x, y = (tensor.to(device) for tensor in images.batch(slice(None)))
    stages = []
    with exact():
        stands = _predicted(model, x, batch_size) == y
        attack = pyautoattack.AutoAttack(
            counted, norm=NORMS[threat.norm], eps=threat.eps, seed=0, version="standard", device=device
        )
        for name in list(attack.attacks_to_run):
            rows = stands.nonzero().squeeze(1)
            if not len(rows):
                break
            attack.attacks_to_run, counted.forwards, counted.backwards = [name], 0, 0
            started = now(device)
            x_adv, _ = attack.run_standard_evaluation(x[rows], y[rows], batch_size=batch_size)
            seconds = now(device) - started
            calls = {"forward": counted.forwards, "backward": counted.backwards}
            stands[rows] = _predicted(model, x_adv, batch_size) == y[rows]
            broken = len(rows) - int(stands[rows].sum())
            stages.append({"name": name, "entered": len(rows), "broken": broken, **calls, "seconds": round(seconds, 3)})
    return {"stands": stands.cpu().numpy(), "stages": stages}


@torch.no_grad()
def _predicted(model: nn.Module, x: Tensor, batch_size: int) -> Tensor:
    return torch.cat([model(part).argmax(1) for part in x.split(batch_size)])


def now(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


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


def seconds_of(stages: list[dict[str, Any]]) -> float:
    return round(float(np.sum([stage["seconds"] for stage in stages])), 3)
