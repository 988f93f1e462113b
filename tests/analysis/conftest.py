"""Models with closed forms: a line, whose loss has no curvature but softplus, and templates, whose gradient is a picture."""

import pytest
import torch
from torch import Tensor, nn

from robustvit.data import Images


class Line(nn.Module):
    """Two classes on 1×2×2 images: z = (0, w·(x − ½)). The margin of class 1 is w·(x − ½), its sharpest slope ‖w‖₁ in ℓ∞."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.tensor([4.0, -2.0, 1.0, 3.0]))

    def forward(self, x: Tensor) -> Tensor:
        margin = (x.flatten(1) - 0.5) @ self.w
        return torch.stack([torch.zeros_like(margin), margin], 1)


class Templates(nn.Module):
    """Six classes on 1×6×6 images: class k is the brightness of row k."""

    def __init__(self, sharpness: float = 2.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(sharpness))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x[:, 0].sum(2)


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def templates() -> Templates:
    return Templates()


@pytest.fixture
def points() -> Images:
    """For `line`: twelve points far enough from the box for ε = 0.1, all of them right."""
    x = 0.2 + 0.6 * torch.rand(12, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    return Images("points", x, ((x.flatten(1) - 0.5) @ Line().w > 0).long(), ("below", "above"))


@pytest.fixture
def rows() -> Images:
    """For `templates`: grey images with one brighter row, their class."""
    y = torch.arange(12) % 6
    x = torch.full((12, 1, 6, 6), 0.5)
    x[torch.arange(12), 0, y] = 0.6
    return Images("rows", x, y, tuple("abcdef"))
