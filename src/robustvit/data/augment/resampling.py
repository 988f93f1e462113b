"""Images at other places than their pixels': windows resized to the image's size, and affine maps."""

import torch
import torch.nn.functional as F
from torch import Tensor

Affine = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def resize_windows(x: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor, overhang: tuple[int, int]) -> Tensor:
    """Each image's window, resized to the image's size: bicubic with antialiasing, as PIL does.

    Windows may reach past the image, by `overhang` rows and columns at most, where it is black. It is two matrix products with
    weights of each image's own.
    """
    rows = _weights(top, height, x.shape[2], overhang[0])
    columns = _weights(left, width, x.shape[3], overhang[1])
    return (rows[:, None] @ x @ columns[:, None].mT).clamp_(0, 1)


def _weights(first: Tensor, length: Tensor, size: int, overhang: int) -> Tensor:
    """[B, size, size]: how much of each pixel of the image each pixel of the resized window takes."""
    pixel = torch.arange(-overhang, size + overhang, device=first.device, dtype=torch.float32)
    within = pixel - first[:, None]
    inside = (within >= 0) & (within < length[:, None])
    stretch = (length / size)[:, None]
    centre = (torch.arange(size, device=first.device) + 0.5) * stretch
    distance = (within[:, None] + 0.5 - centre[:, :, None]) / stretch.clamp(min=1)[:, :, None]
    weights = _cubic(distance) * inside[:, None]
    # The window's own edge ends the sum, the image's does not: what lies past it is black, not absent.
    weights = weights / weights.sum(2, keepdim=True)
    return weights[:, :, overhang : overhang + size]


def _cubic(distance: Tensor) -> Tensor:
    """Keys' (1981) kernel with a = −1/2."""
    t = distance.abs()
    near = (1.5 * t - 2.5) * t * t + 1
    far = ((-0.5 * t + 2.5) * t - 4) * t + 2
    return torch.where(t < 1, near, torch.where(t < 2, far, 0))


def warp(x: Tensor, matrix: Affine, fill: float) -> Tensor:
    """The pixel with its centre at (X, Y) is looked up, bilinear, at (aX + bY + c, dX + eY + f); past the image it is `fill`.

    Coordinates count from the image's corner, as PIL's do; each number of the matrix is a tensor [B].
    """
    height, width = x.shape[2:]
    a, b, c, d, e, f = (number.view(-1, 1, 1) for number in matrix)
    across = torch.arange(width, device=x.device)[None, None] + 0.5
    down = torch.arange(height, device=x.device)[None, :, None] + 0.5
    from_x, from_y = a * across + b * down + c, d * across + e * down + f
    inside = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    grid = torch.stack([2 * from_x / width - 1, 2 * from_y / height - 1], 3)
    looked_up = F.grid_sample(x, grid, "bilinear", "border", align_corners=False)
    return torch.where(inside[:, None], looked_up, fill)


def rotation(angle: Tensor, height: int, width: int) -> Affine:
    """Turns the image anticlockwise about its centre, by radians."""
    cos, sin = angle.cos(), angle.sin()
    x, y = width / 2, height / 2
    return cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y
