"""Verdicts: whatever an attack claims, only what is found here counts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robustvit.attacks import Attack, attackable
from robustvit.data import Images
from robustvit.errors import UserError
from robustvit.models import Classifier
from robustvit.progress import Advance


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Per image: the prediction for the image and for the adversarial one (the image itself if it was wrong before)."""

    y: Tensor
    clean: Tensor
    attacked: Tensor
    examples: Tensor  # the first few adversarial images

    @property
    def correct(self) -> Tensor:
        """Robustly correct: right on the image and on what the attack made of it."""
        return (self.clean == self.y) & (self.attacked == self.y)


def judge(
    model: nn.Module,
    images: Images,
    attack: Attack | None,
    batch_size: int = 256,
    keep: int = 0,
    advance: Advance | None = None,
) -> Verdicts:
    """Attack the images that the model gets right and decide, in full precision, which it still gets right."""
    if getattr(attack, "targeted", False):
        raise UserError("attack.targeted: True; a verdict is about the true label, accepted: False")
    clean, attacked, examples = [], [], []
    with exact(), attackable(model):
        for begin in range(0, len(images), batch_size):
            x, y = images.batch(slice(begin, begin + batch_size))
            prediction = predict(model, x)
            x_adv, after = x.clone(), prediction.clone()
            right = (prediction == y).nonzero().squeeze(1)
            if attack is not None and len(right):
                x_adv[right] = attack(model, x[right], y[right])
                verify(attack, x_adv, x, begin)
                after[right] = predict(model, x_adv[right])
            clean.append(prediction)
            attacked.append(after)
            if begin < keep:
                examples.append(x_adv[: keep - begin])
            if advance:
                advance(len(x), f"{attack.name if attack else 'clean'}: {_share(images.y, attacked)}")
    kept = torch.cat(examples) if examples else images.batch(slice(0))[0]
    return Verdicts(images.y.cpu(), torch.cat(clean).cpu(), torch.cat(attacked).cpu(), kept.cpu())


def verify(attack: Attack, x_adv: Tensor, x: Tensor, offset: int = 0) -> None:
    """An example outside ball or box is the attack's bug: no number may come of it."""
    outside = (~attack.threat.contains(x_adv, x)).nonzero().squeeze(1)
    if len(outside):
        worst = int(outside[0])
        far = float(attack.threat.distance(x_adv, x)[worst])
        raise UserError(
            f"{attack.name}: {len(outside)} examples lie outside {attack.threat.norm} ≤ {attack.threat.eps:g} or the box "
            f"[0, 1]; image {offset + worst} is at distance {far:g}, its values from {float(x_adv[worst].min()):g} to "
            f"{float(x_adv[worst].max()):g}"
        )


@torch.no_grad()
def predict(model: nn.Module, x: Tensor) -> Tensor:
    logits = model(x)
    if not bool(logits.isfinite().all()):
        raise UserError("the model's logits hold NaN or infinite values; its predictions mean nothing")
    return logits.argmax(1)


@contextmanager
def exact() -> Iterator[None]:
    """Float32 as written: no TF32, no autocast."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def check_fits(model: Classifier, images: Images) -> None:
    """Do model and data speak of the same images and classes?"""
    if model.input_size and tuple(model.input_size) != images.shape:
        raise UserError(
            f"data {images.name!r}: images of shape {images.shape} (channels, height, width); "
            f"accepted by the model: {tuple(model.input_size)}"
        )
    if model.num_classes is None:
        return
    if images.classes and len(images.classes) != model.num_classes:
        raise UserError(f"model: {model.num_classes} classes, but data {images.name!r} has {len(images.classes)}")
    if int(images.y.max()) >= model.num_classes:
        raise UserError(
            f"data {images.name!r}: labels up to {int(images.y.max())}; accepted by the model: 0 to {model.num_classes - 1}"
        )


def _share(y: Tensor, attacked: list[Tensor]) -> str:
    so_far = torch.cat(attacked)
    return f"{(so_far == y[: len(so_far)]).float().mean():.1%} accurate so far"
