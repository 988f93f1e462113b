"""What the adversary may do: a ball of radius eps round the image, cut by the box [0, 1]."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor

from robustvit.errors import UserError

NORMS = ("linf", "l2", "l1")
ULP = 2.0**-23  # the spacing of float32 at 1: what rounding alone may add to a pixel difference


def parse_number(text: str | float, field: str = "eps") -> float:
    """A number as people write it: 0.03, 1e-3 or 8/255."""
    try:
        return float(Fraction(text.replace(" ", ""))) if isinstance(text, str) else float(text)
    except (ValueError, ZeroDivisionError, TypeError, OverflowError):
        raise UserError(f"{field}: {text!r} is not a number; write it like 0.03 or 8/255") from None


def _in_steps(eps: float) -> str:
    """What was probably meant, if it may be a number of the 255 steps of a pixel."""
    return f"; did you mean {eps:g}/255?" if 1 < eps <= 255 else ""


@dataclass(frozen=True, slots=True)
class Threat:
    """All images within `eps` of the original in `norm`, eps in [0, 1] pixel units."""

    norm: str
    eps: float

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise UserError(f"threat.norm: {self.norm!r}; accepted: {', '.join(NORMS)}")
        if not (
            isinstance(self.eps, int | float) and not isinstance(self.eps, bool) and math.isfinite(self.eps) and self.eps >= 0
        ):
            raise UserError(f"threat.eps: {self.eps!r} is not a finite number ≥ 0")
        if self.norm == "linf" and self.eps > 1:
            raise UserError(f"threat.eps: {self.eps:g} is more than the whole range of a pixel, [0, 1]{_in_steps(self.eps)}")

    def check_fits(self, shape: Sequence[int]) -> None:
        """No image of that shape is further from another than the box is wide."""
        pixels = math.prod(shape)
        widest = {"linf": 1.0, "l2": math.sqrt(pixels), "l1": float(pixels)}[self.norm]
        if self.eps > widest:
            raise UserError(
                f"threat.eps: {self.eps:g} in {self.norm} is more than the distance of black from white, {widest:.4g} for "
                f"images of shape {tuple(shape)}{_in_steps(self.eps)}"
            )

    def scaled(self, factor: float) -> "Threat":
        return replace(self, eps=self.eps * factor)

    def project(self, x_adv: Tensor, x: Tensor) -> Tensor:
        """The point of ball ∩ box nearest to `x_adv`."""
        if self.norm == "linf":
            return torch.clamp(x_adv, (x - self.eps).clamp(min=0), (x + self.eps).clamp(max=1))
        delta = (x_adv - x).flatten(1)
        # How far each pixel can go in the direction it wants before it leaves the box.
        room = torch.where(delta > 0, 1 - x.flatten(1), x.flatten(1))
        shrink = _shrink_l2 if self.norm == "l2" else _shrink_l1
        moved = shrink(delta.abs(), room, self.eps) * delta.sign()
        return (x + moved.view_as(x)).clamp(0, 1)

    def sample(self, x: Tensor, uniform: Tensor) -> Tensor:
        """A random start made from uniform(0, 1) noise of x's shape.

        ℓ∞: uniform in the ball. ℓ2 and ℓ1: uniform on its surface, where nearly all of a high-dimensional
        ball's volume lies (normal and Laplace directions).
        """
        # Open at both ends: the tails of the two surface directions are infinite at ±1.
        inside = 1 - torch.finfo(x.dtype).eps / 2
        centred = (2 * uniform - 1).clamp(-inside, inside)
        if self.norm == "linf":
            return self.project(x + self.eps * centred, x)
        if self.norm == "l2":
            direction = torch.erfinv(centred).flatten(1)
            length = direction.norm(dim=1, keepdim=True)
        else:
            direction = (centred.sign() * -torch.log1p(-centred.abs())).flatten(1)
            length = direction.abs().sum(1, keepdim=True)
        start = direction / length.clamp(min=torch.finfo(x.dtype).tiny)
        return self.project(x + self.eps * start.view_as(x), x)

    def steepest(self, grad: Tensor, x: Tensor | None = None) -> Tensor:
        """The unit step of this norm along which the loss rises fastest; zero where the gradient is zero, NaN where it is NaN.

        ℓ1's true answer moves one pixel and hardly gets anywhere: as in Tramèr & Boneh (2019) the top 1% share it. Given the
        point `x`, pixels that the box keeps from moving are passed over, or they would stop ℓ1 for good.
        """
        if self.norm == "l1" and x is not None:
            stuck = ((grad > 0) & (x >= 1)) | ((grad < 0) & (x <= 0))
            grad = grad.masked_fill(stuck, 0)
        # sign() and the comparisons below would turn NaN into 0, and a broken model into a robust one.
        return torch.where(grad.isnan(), grad, self._unit_step(grad))

    def _unit_step(self, grad: Tensor) -> Tensor:
        if self.norm == "linf":
            return grad.sign()
        flat = grad.flatten(1)
        tiny = torch.finfo(grad.dtype).tiny
        if self.norm == "l2":
            # Scaled first: the squares of a saturated model's gradients underflow.
            flat = flat / flat.abs().amax(1, keepdim=True).clamp(min=tiny)
            return (flat / flat.norm(dim=1, keepdim=True).clamp(min=tiny)).view_as(grad)
        size = flat.abs()
        # A pixel moves by 1 at most, so fewer than eps of them could not spend it.
        share = min(flat.shape[1], max(1, flat.shape[1] // 100, math.ceil(self.eps)))
        chosen = flat.sign() * (size >= size.topk(share, dim=1).values[:, -1:])
        return (chosen / chosen.abs().sum(1, keepdim=True).clamp(min=1)).view_as(grad)

    def distance(self, x_adv: Tensor, x: Tensor) -> Tensor:
        """Per image: ℓ∞ as float32 computes it, ℓ2 and ℓ1 in float64."""
        if self.norm == "linf":
            return (x_adv - x).abs().flatten(1).amax(1)
        delta = (x_adv.double() - x.double()).flatten(1)
        return delta.norm(dim=1) if self.norm == "l2" else delta.abs().sum(1)

    def tolerance(self, pixels: int) -> float:
        """What storing an image in float32 may add to its distance.

        Each of the d pixels is rounded by at most ulp(1)/2, so ℓ∞ grows by ulp(1) at most (subtraction included), ℓ2 by
        √d and ℓ1 by d such halves; 1e-6·eps covers the arithmetic of the projection.
        """
        if self.norm == "linf":
            return ULP
        return 1e-6 * self.eps + ULP / 2 * (math.sqrt(pixels) if self.norm == "l2" else pixels)

    def contains(self, x_adv: Tensor, x: Tensor) -> Tensor:
        """Per image: is it inside ball and box? NaN is outside."""
        in_box = ((x_adv >= 0) & (x_adv <= 1)).flatten(1).all(1)
        return in_box & (self.distance(x_adv, x) <= self.eps + self.tolerance(math.prod(x.shape[1:])))


def _shrink_l2(size: Tensor, room: Tensor, eps: float) -> Tensor:
    """min(t·size, room) with the largest t ≤ 1 whose ℓ2 norm is at most eps.

    A pixel hits the box at t = room/size. The norm rises with t: sort these corners, count those it passes before eps is
    spent, and divide what is left of eps² among the others.
    """
    wide_size, wide_room = size.double(), room.double()
    corners, order = torch.where(wide_size > 0, wide_room / wide_size, torch.inf).sort(1)
    # After k corners, k pixels have spent their room and the others want t times their size.
    nothing = torch.zeros_like(corners[:, :1])
    spent = torch.cat([nothing, wide_room.square().gather(1, order).cumsum(1)], 1)
    wanted = torch.cat([wide_size.square().gather(1, order).flip(1).cumsum(1).flip(1), nothing], 1)
    norm = spent[:, :-1] + corners.square() * wanted[:, :-1]  # squared, at each corner
    passed = (norm <= eps * eps).sum(1, keepdim=True)
    left = (eps * eps - spent.gather(1, passed)).clamp(min=0)
    t = (left / wanted.gather(1, passed).clamp(min=1e-300)).sqrt().clamp(max=1)
    return torch.minimum(t * wide_size, wide_room).to(size.dtype)


def _shrink_l1(size: Tensor, room: Tensor, eps: float) -> Tensor:
    """clamp(size − λ, 0, room) with the smallest λ ≥ 0 whose ℓ1 norm is at most eps.

    The norm is piecewise linear and falling in λ: sort its corners, find the piece that crosses eps, interpolate. A pixel
    starts to shrink at λ = size − room and is gone at λ = size.
    """
    dtype, size, room = size.dtype, size.double(), room.double()
    corners, order = torch.cat([(size - room).clamp(min=0), size], 1).sort(1)
    shrinking = torch.where(order < size.shape[1], 1.0, -1.0).to(corners).cumsum(1)
    fall = (corners.diff(dim=1) * shrinking[:, :-1]).cumsum(1)
    total = torch.minimum(size, room).sum(1, keepdim=True)
    norm = torch.cat([total, total - fall], 1)  # at each corner
    crossing = (norm > eps).sum(1, keepdim=True).clamp(1, norm.shape[1] - 1)
    before, after = norm.gather(1, crossing - 1), norm.gather(1, crossing)
    left, right = corners.gather(1, crossing - 1), corners.gather(1, crossing)
    part = ((before - eps) / (before - after).clamp(min=1e-300)).clamp(0, 1)
    threshold = torch.where(total > eps, left + part * (right - left), 0.0)
    return torch.minimum((size - threshold).clamp(min=0), room).to(dtype)
