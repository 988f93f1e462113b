"""Means of what the steps report, kept on the device; reading them is the only sync."""

from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from robustvit.errors import UserError
from robustvit.objectives import Loss


class Meter:
    """Sums a loss's metrics over images, and notes the first step whose loss was not finite."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.sums: dict[str, Tensor] = {}
        self.images = 0
        self.bad_step = torch.tensor(-1, device=accelerator.device)

    def add(self, loss: Loss, count: int, step: int) -> None:
        newly_bad = ~loss.value.detach().isfinite() & (self.bad_step < 0)
        self.bad_step = torch.where(newly_bad, step, self.bad_step)
        for name, metric in loss.metrics.items():
            self.sums[name] = self.sums.get(name, 0) + metric * count
        self.images += count

    def means(self) -> dict[str, float]:
        """Read and start anew."""
        means = {name: self.accelerator.reduce(total / self.images, "mean") for name, total in self.sums.items()}
        images, self.sums, self.images = self.images * self.accelerator.num_processes, {}, 0
        return {"images": images} | {name: float(mean) for name, mean in means.items()}

    def check_finite(self, model: nn.Module, step: int, checkpoints: Path) -> None:
        """A loss or a weight that is not finite ends the run before anything is saved."""
        bad = int(self.accelerator.gather(self.bad_step.view(1)).max())
        what = f"the loss was not finite at step {bad}"
        if bad < 0:
            if all(bool(p.isfinite().all()) for p in model.parameters()):
                return
            what = f"the weights were not finite after step {step - 1}"
        raise UserError(
            f"{what}; the run stopped. Its last good state, if it reached one, is in {checkpoints}; "
            "a lower optim.lr, a clip, or precision=fp32 usually helps"
        )
