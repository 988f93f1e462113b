"""What holds for every attack whatever the norm, eps, shape, type and range of the images."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from robustvit.attacks import APGD, FAB, PGD, Attack, Queries
from robustvit.attacks.losses import LOSSES
from robustvit.threat import Threat
from tests.attacks.test_attack_contract import TABLE

VARIANTS: dict[str, Callable[[Threat], Attack]] = {
    "apgd-t": lambda threat: APGD(threat, steps=5, loss="targeted_dlr", targets=3, seed=0),
    "apgd-dlr": lambda threat: APGD(threat, steps=5, loss="dlr", seed=0),
    "fab-t": lambda threat: FAB(threat, steps=3, targets=2, seed=0),
    "fab": lambda threat: FAB(threat, steps=3, restarts=2, seed=0),
    **{f"pgd-{loss}": partial(PGD, steps=3, loss=loss, seed=0) for loss in LOSSES},
}
EVERY = TABLE | VARIANTS
RADII = {"linf": 1.0, "l2": 8.0, "l1": 40.0}


class Curved(nn.Module):
    """A small smooth model for images of any shape, its weights a function of a seed."""

    def __init__(self, pixels: int, classes: int, seed: int, dtype: torch.dtype) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = torch.randn(pixels, 8, generator=generator).to(dtype) / pixels**0.5
        self.last = torch.randn(8, classes, generator=generator).to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(3 * (x.flatten(1) - 0.5) @ self.first) @ self.last


@st.composite
def images(draw: st.DrawFn) -> Tensor:
    """Photographs, nearly flat ones, black, white and black-and-white ones."""
    shape = (draw(st.integers(1, 3)), draw(st.sampled_from([1, 3])), draw(st.integers(3, 9)), draw(st.integers(3, 9)))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    x = torch.rand(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 999)))).to(dtype)
    low, high = sorted(draw(st.tuples(st.floats(0, 1), st.floats(0, 1))))
    return draw(st.sampled_from([x, (low + (high - low) * x).clamp(0, 1), x * 0, x * 0 + 1, (x > 0.5).to(dtype)]))


@pytest.mark.parametrize("norm", RADII)
@pytest.mark.filterwarnings("ignore:.*needs [34] classes")
@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    x=images(), share=st.sampled_from([0.0, 1e-6, 0.004, 0.03, 0.3, 1.0]), classes=st.integers(2, 12), seed=st.integers(0, 99)
)
def test_the_example_is_inside_finite_repeatable_and_within_the_cost(
    name: str, norm: str, x: Tensor, share: float, classes: int, seed: int
) -> None:
    attack = EVERY[name](Threat(norm, share * RADII[norm]))
    model = Curved(x[0].numel(), classes, seed, x.dtype)
    y = model(x).argmax(1)
    ask = Queries(model)
    x_adv = attack(ask, x, y)
    assert (x_adv.shape, x_adv.dtype) == (x.shape, x.dtype)
    assert attack.threat.contains(x_adv, x).all()
    assert torch.equal(x_adv, attack(model, x, y))
    assert ask.ledger.forward + ask.ledger.backward <= len(x) * attack.cost(classes)
    if share == 0:
        assert torch.equal(x_adv, x)
