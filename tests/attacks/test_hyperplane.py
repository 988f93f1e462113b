"""The projection onto hyperplane ∩ box, against linear programming (ℓ∞, ℓ1) and bisection on the multiplier (ℓ2)."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from robustvit.attacks.hyperplane import nearest

NORMS = ("linf", "l2", "l1")
ORDER = {"linf": torch.inf, "l2": 2, "l1": 1}
every_norm = pytest.mark.parametrize("norm", NORMS)


def least_distance(norm: str, x: np.ndarray, w: np.ndarray, b: float) -> float:
    """Of x from {z in the box: <w, z> = b}, which must not be empty."""
    if norm == "l2":
        return float(np.linalg.norm(bisected(x, w, b) - x))
    d = len(x)
    sizes = 1 if norm == "linf" else d  # variables: z, and a bound on all |z_i − x_i| or on each
    bound = np.ones((d, 1)) if norm == "linf" else np.eye(d)
    cost = np.concatenate([np.zeros(d), np.ones(sizes)])
    above, below = np.hstack([np.eye(d), -bound]), np.hstack([-np.eye(d), -bound])
    solution = linprog(
        cost,
        A_ub=np.vstack([above, below]),
        b_ub=np.concatenate([x, -x]),
        A_eq=np.concatenate([w, np.zeros(sizes)])[None],
        b_eq=[b],
        bounds=[(0, 1)] * d + [(0, None)] * sizes,
    )
    assert solution.status == 0, solution.message
    return float(solution.fun)


def bisected(x: np.ndarray, w: np.ndarray, b: float) -> np.ndarray:
    """clip(x + λw) with the λ that meets the hyperplane: <w, clip(x + λw)> rises with λ."""
    low, high = -1e4, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if w @ np.clip(x + middle * w, 0, 1) < b else (low, middle)
    return np.clip(x + middle * w, 0, 1)


def hyperplanes(seed: int, count: int = 40, d: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    """That meet the box, a third of the weights zero and many pixels on its faces; some equal weights, some at a corner."""
    generator = torch.Generator().manual_seed(seed)
    x = (torch.rand(count, d, generator=generator) * 1.6 - 0.3).clamp(0, 1).double()
    w = torch.randn(count, d, generator=generator).double()
    w = w * (torch.rand(count, d, generator=generator) > 0.3)
    w[: count // 4] = w[: count // 4].round()
    w[:, 0] += w[:, 0] == 0  # not all zero
    inside = (torch.rand(count, d, generator=generator) * 1.4 - 0.2).clamp(0, 1).double()
    return x, w, (w * inside).sum(1)


@every_norm
@pytest.mark.parametrize("seed", range(5))
def test_the_point_lies_on_the_hyperplane_in_the_box_at_the_least_distance(norm: str, seed: int) -> None:
    x, w, b = hyperplanes(seed)
    z = nearest(norm, x, w, b)
    assert ((z >= 0) & (z <= 1)).all()
    torch.testing.assert_close((w * z).sum(1), b, rtol=0, atol=1e-12)
    assert torch.equal(z[w == 0], x[w == 0])
    oracle = [least_distance(norm, *row) for row in zip(x.numpy(), w.numpy(), b.tolist(), strict=True)]
    torch.testing.assert_close((z - x).norm(p=ORDER[norm], dim=1), torch.tensor(oracle, dtype=torch.float64), rtol=0, atol=1e-8)


def test_in_l2_it_is_the_one_nearest_point() -> None:
    x, w, b = hyperplanes(9)
    oracle = [bisected(*row) for row in zip(x.numpy(), w.numpy(), b.tolist(), strict=True)]
    torch.testing.assert_close(nearest("l2", x, w, b), torch.tensor(np.stack(oracle)), rtol=0, atol=1e-9)


@every_norm
@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("beyond", [1e-9, 1.0, 1e12])
def test_a_hyperplane_that_misses_the_box_gives_the_corner_nearest_to_it(norm: str, side: int, beyond: float) -> None:
    x, w, _ = hyperplanes(1)
    corner = torch.where(w == 0, x, (side * w > 0).double())
    z = nearest(norm, x, w, (w * corner).sum(1) + side * beyond)
    assert torch.equal(z, corner)


@every_norm
def test_a_point_on_the_hyperplane_stays(norm: str) -> None:
    x, w, _ = hyperplanes(2)
    torch.testing.assert_close(nearest(norm, x, w, (w * x).sum(1)), x, rtol=0, atol=1e-14)


@every_norm
def test_without_weights_the_point_stays(norm: str) -> None:
    x, w, b = hyperplanes(3)
    assert torch.equal(nearest(norm, x, torch.zeros_like(w), b * 1e20), x)


@every_norm
@pytest.mark.parametrize("factor", [1e-300, 1e-30, 1e30])
def test_the_size_of_the_weights_does_not_matter(norm: str, factor: float) -> None:
    x, w, b = hyperplanes(4)
    torch.testing.assert_close(nearest(norm, x, w * factor, b * factor), nearest(norm, x, w, b), rtol=0, atol=1e-12)


@every_norm
def test_weights_of_very_different_size_do_not_disturb_the_answer(norm: str) -> None:
    x, w, b = hyperplanes(5)
    tiny = torch.where(w == 0, 1e-35, w)
    z, expected = nearest(norm, x, tiny, b), nearest(norm, x, w, b)
    torch.testing.assert_close((w * z).sum(1), b, rtol=0, atol=1e-12)
    assert ((z - x).norm(p=ORDER[norm], dim=1) <= (expected - x).norm(p=ORDER[norm], dim=1) + 1e-9).all()


@every_norm
def test_a_row_does_not_depend_on_the_others(norm: str) -> None:
    x, w, b = hyperplanes(6)
    rows = [nearest(norm, x[i : i + 1], w[i : i + 1], b[i : i + 1]) for i in range(len(x))]
    assert torch.equal(nearest(norm, x, w, b), torch.cat(rows))
    assert nearest(norm, x[:0], w[:0], b[:0]).shape == (0, 7)


@every_norm
def test_weights_that_are_not_numbers_are_not_hidden(norm: str) -> None:
    x, w, b = hyperplanes(7)
    w[3, 2] = torch.nan
    z = nearest(norm, x, w, b)
    assert z[3].isnan().any()
    assert not z[torch.arange(len(z)) != 3].isnan().any()


@every_norm
def test_many_pixels_in_single_precision(norm: str) -> None:
    generator = torch.Generator().manual_seed(8)
    x, w, inside = (torch.rand(4, 3 * 64 * 64, generator=generator) for _ in range(3))
    w = (w - 0.5) * 1e-6
    b = (w.double() * inside).sum(1)
    z = nearest(norm, x, w, b)
    torch.testing.assert_close((w * z).sum(1), b, rtol=1e-9, atol=0)
