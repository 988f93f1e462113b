"""Threat against independent oracles: projection, starts, steepest steps, distances and the errors of its fields."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from robustvit import Threat
from robustvit.errors import UserError
from robustvit.threat import NORMS, ULP, parse_number

RADII = {"linf": 8 / 255, "l2": 0.5, "l1": 2.0}
EPS = st.sampled_from([0.0, 1 / 255, 2 / 255, 4 / 255, 8 / 255, 16 / 255, 0.1, 0.3, 0.5, 1 / 3, 1.0]) | st.floats(0, 1)
PIXEL = st.sampled_from([0.0, 1.0, 0.5, 1 / 255, 8 / 255, 247 / 255, 254 / 255, 1 - 2**-24, 2**-24]) | st.floats(0, 1, width=32)


def random_case(seed: int, pixels: int = 24, spread: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(5, 1, 1, pixels, generator=generator)
    x[:, :, :, : pixels // 3] = x[:, :, :, : pixels // 3].round()  # some pixels sit on the box
    return x, x + spread * torch.randn(x.shape, generator=generator)


def nearest(norm: str, z: np.ndarray, x: np.ndarray, eps: float) -> np.ndarray:
    """The projection by its Lagrange multiplier, found by bisection in float64."""

    def point(multiplier: float) -> np.ndarray:
        if norm == "l2":
            return np.clip((z + multiplier * x) / (1 + multiplier), 0, 1)
        return np.clip(x + np.sign(z - x) * np.maximum(np.abs(z - x) - multiplier, 0), 0, 1)

    def excess(multiplier: float) -> float:
        return float(np.linalg.norm(point(multiplier) - x, 2 if norm == "l2" else 1)) - eps

    if excess(0) <= 0:
        return point(0)
    high = 1.0
    while excess(high) > 0:
        high *= 2
    return point(optimize.brentq(excess, 0, high, xtol=1e-14))


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("spread", [0.05, 0.5, 20.0])
@pytest.mark.parametrize("eps", [0.01, 0.5, 1.5])
def test_projection_matches_the_bisected_multiplier(norm: str, spread: float, eps: float) -> None:
    x, z = random_case(seed=1, spread=spread)
    ours = Threat(norm, eps).project(z, x).flatten(1).double().numpy()
    for image, a, b in zip(ours, z.flatten(1).double().numpy(), x.flatten(1).double().numpy(), strict=True):
        np.testing.assert_allclose(image, nearest(norm, a, b, eps), atol=2e-6)


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_projection_matches_a_general_purpose_solver(norm: str) -> None:
    """SLSQP knows nothing of multipliers: ℓ1 is written with split variables, p = x + up − down."""
    x, z = random_case(seed=2, pixels=5, spread=0.8)
    eps = 0.6
    ours = Threat(norm, eps).project(z, x).flatten(1).double().numpy()
    for image, a, b in zip(ours, z.flatten(1).double().numpy(), x.flatten(1).double().numpy(), strict=True):
        n = len(a)
        length = (lambda v, n=n: eps**2 - ((v[:n] - v[n:]) ** 2).sum()) if norm == "l2" else (lambda v: eps - v.sum())
        found = optimize.minimize(
            lambda v, a=a, b=b, n=n: ((b + v[:n] - v[n:] - a) ** 2).sum(),
            np.zeros(2 * n),
            bounds=[(0, 1 - p) for p in b] + [(0, p) for p in b],
            constraints={"type": "ineq", "fun": length},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        np.testing.assert_allclose(image, b + found.x[:n] - found.x[n:], atol=2e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_no_feasible_point_is_nearer_than_the_projection(norm: str) -> None:
    """The variational inequality ⟨z − p, q − p⟩ ≤ 0 for every q in ball ∩ box says p is the nearest point."""
    threat = Threat(norm, RADII[norm])
    x, z = random_case(seed=3)
    p = threat.project(z, x)
    for seed in range(50):
        noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed))
        q = threat.project(threat.sample(x, noise), x) * (seed % 5) / 4 + x * (1 - (seed % 5) / 4)
        inner = ((z - p).double() * (q - p).double()).flatten(1).sum(1)
        assert (inner <= 1e-5).all()


@pytest.mark.parametrize("eps", [0.3, 0.39])
def test_l2_projection_is_exact_when_pixels_reach_the_box_one_after_another(eps: float) -> None:
    """Geometric displacements in a narrow box: each pixel that saturates frees room for only the next."""
    z = 0.95 + 1.5 ** torch.arange(64.0).view(1, 1, 8, 8)
    x = torch.full((1, 1, 8, 8), 0.95)
    p = Threat("l2", eps).project(z, x)
    expected = nearest("l2", z.flatten().double().numpy(), x.flatten().double().numpy(), eps)
    np.testing.assert_allclose(p.flatten().double().numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("norm", NORMS)
def test_projection_is_idempotent(norm: str) -> None:
    threat = Threat(norm, RADII[norm])
    x, z = random_case(seed=4)
    once = threat.project(z, x)
    torch.testing.assert_close(threat.project(once, x), once, atol=2 * ULP, rtol=0)


@pytest.mark.parametrize("norm", NORMS)
def test_points_already_inside_stay_where_they_are(norm: str) -> None:
    x, _ = random_case(seed=5)
    inside = (x * 0.999 + 0.0005).clamp(0, 1)
    torch.testing.assert_close(Threat(norm, 0.9).project(inside, x), inside, atol=ULP, rtol=0)


@given(x=st.lists(PIXEL, min_size=4, max_size=4), moved=st.lists(st.floats(-2, 2, width=32), min_size=4, max_size=4), eps=EPS)
@settings(max_examples=300, deadline=None)
def test_linf_projection_never_exceeds_eps_by_more_than_one_ulp_in_fp32(x: list, moved: list, eps: float) -> None:
    clean = torch.tensor(x, dtype=torch.float32).view(1, 1, 2, 2)
    threat = Threat("linf", eps)
    x_adv = threat.project(clean + torch.tensor(moved, dtype=torch.float32).view(1, 1, 2, 2), clean)
    assert (x_adv - clean).abs().max().item() <= eps + ULP
    assert x_adv.min() >= 0
    assert x_adv.max() <= 1
    assert threat.contains(x_adv, clean).all()


@given(seed=st.integers(0, 10**6), eps=EPS, norm=st.sampled_from(["l2", "l1"]), spread=st.sampled_from([1e-6, 0.01, 1.0, 1e4]))
@settings(max_examples=200, deadline=None)
def test_l2_and_l1_projections_stay_inside_in_float64(seed: int, eps: float, norm: str, spread: float) -> None:
    threat = Threat(norm, 3 * eps)
    x, z = random_case(seed, pixels=48, spread=spread)
    p = threat.project(z, x)
    length = np.linalg.norm((p.double() - x.double()).flatten(1).numpy(), 2 if norm == "l2" else 1, axis=1)
    assert (length <= threat.eps + threat.tolerance(48)).all()
    assert threat.contains(p, x).all()
    assert p.min() >= 0
    assert p.max() <= 1


@pytest.mark.parametrize(("norm", "eps"), [("l2", 3.0), ("l1", 75.0)])
def test_projection_of_a_large_image_stays_within_the_stated_tolerance(norm: str, eps: float) -> None:
    x, z = random_case(seed=6, pixels=3 * 224 * 224)
    assert Threat(norm, eps).contains(Threat(norm, eps).project(z, x), x).all()


def test_contains_refuses_what_is_outside_ball_or_box_or_not_a_number() -> None:
    x = torch.full((4, 1, 2, 2), 0.99)
    x_adv = x.clone()
    x_adv[1] -= 0.2
    x_adv[2] += 0.02
    x_adv[3, 0, 0, 0] = torch.nan
    for norm in NORMS:
        assert Threat(norm, 0.1).contains(x_adv, x).tolist() == [True, False, False, False]


@pytest.mark.parametrize("norm", NORMS)
def test_every_operation_takes_an_empty_batch(norm: str) -> None:
    empty = torch.zeros(0, 1, 8, 8)
    threat = Threat(norm, 0.1)
    for result in (threat.project(empty, empty), threat.sample(empty, empty), threat.steepest(empty)):
        assert result.shape == empty.shape
    assert threat.distance(empty, empty).shape == (0,)
    assert threat.contains(empty, empty).shape == (0,)


@pytest.mark.parametrize("norm", NORMS)
def test_samples_fill_the_ball_and_stay_inside(norm: str) -> None:
    x = torch.full((200, 1, 8, 8), 0.5)
    threat = Threat(norm, 0.2)
    starts = threat.sample(x, torch.rand(x.shape, generator=torch.Generator().manual_seed(0)))
    assert threat.contains(starts, x).all()
    distance = threat.distance(starts, x)
    assert (distance > 0.85 * threat.eps).all()  # ℓ∞: the largest of 64 pixels; ℓ2 and ℓ1: the surface itself
    assert (starts - x).mean(0).abs().max() < 0.25 * (starts - x).std()  # no preferred direction


@pytest.mark.parametrize(
    ("norm", "pixel"),
    [("linf", stats.uniform()), ("l2", stats.beta(1 / 2, 15 / 2)), ("l1", stats.beta(1, 15))],
)
def test_a_pixel_of_a_start_is_distributed_as_the_ball_has_it(norm: str, pixel: Any) -> None:
    """Of 16 pixels, as shares of eps: |δ| is uniform in ℓ∞, δ² is Beta(1/2, 15/2) on the ℓ2 sphere, |δ| Beta(1, 15) on ℓ1's."""
    x = torch.full((4000, 1, 4, 4), 0.5)
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(0))
    change = ((Threat(norm, 0.1).sample(x, noise) - x) / 0.1).flatten(1)
    size = change.square() if norm == "l2" else change.abs()
    for place in range(16):
        assert stats.kstest(size[:, place].numpy(), pixel.cdf).pvalue > 1e-4
        assert abs((change[:, place] > 0).float().mean() - 0.5) < 4 * 0.5 / 4000**0.5


@pytest.mark.parametrize("norm", NORMS)
def test_a_start_is_finite_even_where_the_generator_gives_zero(norm: str) -> None:
    """torch.rand draws from [0, 1): one pixel in 2^24 is exactly 0, several a batch in training."""
    noise = torch.full((2, 1, 4, 4), 0.3)
    noise[0, 0, 0, 0] = 0.0
    assert Threat(norm, 0.1).sample(torch.full_like(noise, 0.5), noise).isfinite().all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_steepest_step_is_the_dual_vector(norm: str) -> None:
    """A unit vector v with ⟨grad, v⟩ equal to the dual norm of the gradient cannot be bettered."""
    grad = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    step = Threat(norm, 0.1).steepest(grad)
    dual = grad.flatten(1).norm(p=1 if norm == "linf" else 2, dim=1)
    torch.testing.assert_close((grad * step).flatten(1).sum(1), dual)
    assert step.flatten(1).norm(p=math.inf if norm == "linf" else 2, dim=1).max() <= 1 + 1e-6


def test_steepest_l1_step_is_shared_by_the_largest_percent_of_pixels() -> None:
    grad = torch.randn(4, 1, 20, 20, generator=torch.Generator().manual_seed(0))
    step = Threat("l1", 1.0).steepest(grad).flatten(1)
    torch.testing.assert_close(step.abs().sum(1), torch.ones(4))
    for moved, g in zip(step, grad.flatten(1), strict=True):
        assert set(moved.nonzero().flatten().tolist()) == set(g.abs().argsort(descending=True)[:4].tolist())
        assert (moved * g >= 0).all()


@pytest.mark.parametrize("norm", NORMS)
def test_steepest_survives_vanishing_gradients_and_is_zero_at_zero(norm: str) -> None:
    threat = Threat(norm, 0.1)
    grad = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(threat.steepest(grad * 1e-30), threat.steepest(grad), atol=1e-4, rtol=1e-4)
    assert (threat.steepest(torch.zeros_like(grad)) == 0).all()


@pytest.mark.parametrize("norm", NORMS)
def test_steepest_does_not_hide_a_gradient_that_is_not_a_number(norm: str) -> None:
    assert Threat(norm, 0.1).steepest(torch.full((1, 1, 4, 4), torch.nan)).isnan().any()


@pytest.mark.parametrize("norm", NORMS)
def test_distance_is_numpys_norm(norm: str) -> None:
    x, z = random_case(seed=7)
    order = {"linf": np.inf, "l2": 2, "l1": 1}[norm]
    expected = np.linalg.norm((z.double() - x.double()).flatten(1).numpy(), order, axis=1)
    np.testing.assert_allclose(Threat(norm, 0.1).distance(z, x).double().numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("norm", "eps", "message"),
    [
        ("linf", -0.1, "threat.eps: -0.1"),
        ("linf", 8, "did you mean 8/255?"),
        ("linf", 256 / 255, "the whole range of a pixel, [0, 1]"),
        ("linf", math.nan, "threat.eps: nan"),
        ("l2", math.inf, "threat.eps: inf"),
        ("l2", "8/255", "threat.eps: '8/255'"),
        ("l3", 0.1, "threat.norm: 'l3'; accepted: linf, l2, l1"),
    ],
)
def test_a_bad_threat_is_an_error_that_names_field_and_value(norm: str, eps: float, message: str) -> None:
    with pytest.raises(UserError) as error:
        Threat(norm, eps)
    assert message in str(error.value)


def test_an_l2_radius_above_one_is_accepted_and_scales() -> None:
    assert Threat("l2", 3.0).scaled(0.5) == Threat("l2", 1.5)


@pytest.mark.parametrize(
    ("text", "value"), [("8/255", 8 / 255), (" 8 / 255 ", 8 / 255), ("0.03", 0.03), ("1e-3", 1e-3), (2, 2.0)]
)
def test_numbers_are_read_as_people_write_them(text: str, value: float) -> None:
    assert parse_number(text) == value


@pytest.mark.parametrize("text", ["eight", "8/0", "", "1/2/3", None])
def test_what_is_no_number_is_an_error_that_names_the_field(text: str) -> None:
    with pytest.raises(UserError, match=r"^eps: .* is not a number"):
        parse_number(text)
