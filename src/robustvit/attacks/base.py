"""The contract of an attack: (model, x, y) -> x_adv, inside ball and box, the model left as it was."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from robustvit.attacks.query import Model, Queries
from robustvit.errors import UserError
from robustvit.threat import Threat

CLASSES = 10  # where nobody says how many


class Attack:
    """Base of all attacks: frozen dataclasses that implement `perturb`.

    With a `seed` the noise is a function of the image (see `noise`); with None it comes from torch's generator.
    """

    threat: Threat
    seed: int | None

    def __call__(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        """The checked way in: bad images and NaN logits are errors, and what comes back is clipped once more."""
        check_images(x)
        check_labels(y, x)
        if len(x) == 0:
            return x.clone()
        with attackable(model):
            x_adv = self.perturb(Queries.of(model).for_one_attack(y), x, y).detach()
        bad = ~x_adv.isfinite().flatten(1).all(1)
        if bad.any():
            first = int(bad.nonzero()[0, 0])
            raise UserError(
                f"{type(self).__name__}: the model gave NaN or infinite values for {int(bad.sum())} of {len(x)} images "
                f"(first: number {first} of the batch); its weights or its input may be broken"
            )
        return self.threat.project(x_adv, x)

    def perturb(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        """The attack itself, unchecked, on a model that is `attackable`: the training loop's hot path."""
        raise NotImplementedError(f"{type(self).__name__} does not implement perturb()")

    def cost(self, classes: int = CLASSES) -> int:
        """Forward plus backward passes that an image costs at most, of so many classes: what progress is measured in."""
        raise NotImplementedError(f"{type(self).__name__} does not implement cost")

    @property
    def stages(self) -> tuple["Attack", ...]:
        """The attacks that the evaluator runs one after the other, each on what still stands."""
        return (self,)

    @property
    def draws(self) -> int:
        """Over how many answers of a random model its success is judged."""
        return 1

    @property
    def random(self) -> bool:
        """Does another seed make another run?"""
        return getattr(self, "random_start", True)

    @property
    def unseeded(self) -> bool:
        """Does its noise come from torch's generator, so that an image's depends on its batch?"""
        return self.seed is None and self.random

    @property
    def name(self) -> str:
        return self.named(type(self).__name__.lower())

    def named(self, kind: str, *told: str) -> str:
        """The kind, which tells some fields, and every other setting that is not the usual one: `pgd-20-margin`."""
        text = kind
        for each in fields(self):  # type: ignore[arg-type]
            value, name = getattr(self, each.name), each.name.replace("_", "-")
            if each.name in ("threat", "seed", *told) or value == each.default:
                continue
            if isinstance(value, bool):
                text += f"-{name}" if value else f"-no-{name}"
            elif isinstance(value, str | int | float):
                text += f"-{value}" if isinstance(value, str) else f"-{name}{value:g}"
        return text

    def scaled(self, factor: float) -> Self:
        """The same attack at factor·eps, for eps schedules."""
        changes: dict[str, Any] = {"threat": self.threat.scaled(factor)}
        return replace(self, **changes)  # type: ignore[type-var]

    def restarted(self, attempt: int) -> Self:
        """The same attack with the noise of another attempt."""
        if self.seed is None:
            return self
        # Seeds far apart: neighbouring user seeds must not share restarts.
        changes: dict[str, Any] = {"seed": self.seed + attempt * 1_000_003}
        return replace(self, **changes)  # type: ignore[type-var]


@contextmanager
def attackable(model: Model, train: bool = False) -> Iterator[None]:
    """Eval mode and frozen parameters inside, everything as before outside; gradients on, whatever the caller's setting.

    With `train` the modes stay as they are, as some training attacks have it.

    Frozen parameters save the weight half of every backward pass and keep `.grad` untouched. What a model remembers in eval
    mode (LeViT its attention biases) it forgets on the way in and out: its weights may have changed before, or will.
    """
    if not isinstance(model, nn.Module):
        with torch.enable_grad():
            yield
        return
    training = [] if train else [module for module in model.modules() if module.training]
    trainable = [p for p in model.parameters() if p.requires_grad]
    try:
        forget(model)
        for module in training:
            module.training = False
        for p in trainable:
            p.requires_grad_(False)
        with torch.enable_grad():
            yield
    finally:
        forget(model)
        for module in training:
            module.training = True
        for p in trainable:
            p.requires_grad_(True)


def forget(model: nn.Module) -> None:
    """Let modules clear what they cached in eval mode; timm's do it when they are told to train. No mode is changed."""
    for module in model.modules():
        if type(module).train is not nn.Module.train:
            modes = [(each, each.training) for each in module.modules()]
            module.train()
            for each, mode in modes:
                each.training = mode


def check_judges(attack: Attack | None, field: str = "attack") -> None:
    """Is it one that a verdict can be made by? `field` is what errors call it."""
    if getattr(attack, "targeted", False):
        raise UserError(f"{field}.targeted: True; a verdict is about the true label, accepted: False")
    if attack and attack.unseeded:
        raise UserError(f"{field}.seed: null; accepted: a number, such as 0, or an image's noise would depend on its batch")
    if attack and attack.seed is not None and not 0 <= attack.seed < 2**31:
        raise UserError(f"{field}.seed: {attack.seed}; accepted: 0 to {2**31 - 1}")


def check_images(x: Tensor) -> None:
    if x.dim() != 4 or x.dtype not in (torch.float32, torch.float64):
        raise UserError(
            f"images: got {x.dtype} of shape {tuple(x.shape)}; "
            "accepted: float32 or float64 [batch, channels, height, width] in [0, 1]"
        )
    if x.numel() and not bool(((x >= 0) & (x <= 1)).all()):
        raise UserError(
            f"images: values from {float(x.min()):.3g} to {float(x.max()):.3g}; accepted: [0, 1]. "
            "Normalisation belongs inside the model: see robustvit.Classifier"
        )


def check_labels(y: Tensor, x: Tensor) -> None:
    """Classes, int64 [batch], or shares of classes, float [batch, classes]."""
    hard = y.dim() == 1 and y.dtype == torch.int64
    if len(y) != len(x) or not (hard or (y.dim() == 2 and y.is_floating_point())):
        raise UserError(
            f"labels: got {y.dtype} of shape {tuple(y.shape)} for {len(x)} images; accepted: int64 [{len(x)}], or shares of "
            f"the classes, float [{len(x)}, classes]"
        )
    if hard and len(y) and int(y.min()) < 0:
        raise UserError(f"labels: from {int(y.min())}; accepted: 0 or more")
