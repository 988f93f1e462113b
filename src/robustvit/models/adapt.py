"""adapt(): the weights of a model taken to another resolution and patch size, 224/p16 to 32/p4 above all.

What happens to a weight that does not fit as it is:

- Patches (ViT, DeiT, CaiT, Swin, ConvNeXt), one of two ways. `sum` adds up blocks of the kernel (Mo et al., 2022): an image
  enlarged by repeating its pixels is embedded as before. `resample` takes the pseudo-inverse of a bicubic resize
  (FlexiViT, Beyer et al., 2023), for any two sizes.
- Position embeddings are interpolated: bilinear with `sum`, bicubic and antialiased with `resample`.
- Relative positions (Swin) keep their distance in tokens: a smaller window cuts the middle out of the table. A larger one has
  distances that were never learned, so there the table is stretched (bicubic).
- An overlapping first convolution (ResNet, 7×7 to 3×3) keeps its centre. The light recipe does not say what it does.
- The classifier starts anew if the class counts differ.

All else must fit. XCiT and PoolFormer fit entirely: only strides differ between their variants.
"""

from math import isqrt
from typing import Any, Literal, get_args

from timm.layers import resample_abs_pos_embed
from timm.layers.patch_embed import resample_patch_embed
from torch import Tensor, nn
from torch.nn.functional import interpolate

from robustvit.errors import UserError

Adaptation = Literal["sum", "resample"]
ADAPTATIONS: tuple[str, ...] = get_args(Adaptation)
# By name: timm has classes of its own for the same functions.
ACTIVATIONS = ("ReLU", "ReLU6", "LeakyReLU", "PReLU", "ELU", "GELU", "GELUTanh", "QuickGELU", "SiLU", "Mish", "Hardswish")


def adapt(source: nn.Module, target: nn.Module, adaptation: Adaptation = "sum") -> nn.Module:
    """`target`, changed in place to hold the weights of `source`; both are backbones of one architecture."""
    if adaptation not in ADAPTATIONS:
        raise UserError(f"adaptation: {adaptation!r}; accepted: {', '.join(ADAPTATIONS)}")
    given, wanted = source.state_dict(), target.state_dict()
    old_head, new_head = _head(source), _head(target)
    keeps_head = old_head == new_head and all(given[name].shape == wanted[name].shape for name in new_head)
    fresh = set() if keeps_head else new_head

    adapted = {name: weight for name, weight in wanted.items() if name in fresh}
    wrong = [f"{name} {_shape(given[name])} has no place" for name in given.keys() - wanted.keys() - old_head]
    for name in wanted.keys() - fresh:
        if name not in given:
            wrong.append(f"{name} {_shape(wanted[name])} is missing")
        elif (weight := _fitted(name, given[name], wanted[name], target, adaptation)) is None:
            wrong.append(f"{name} {_shape(given[name])} cannot become {_shape(wanted[name])}")
        else:
            adapted[name] = weight
    if wrong:
        shown = "; ".join(sorted(wrong)[:4]) + ("; …" if len(wrong) > 4 else "")
        raise UserError(f"{len(wrong)} of its tensors cannot be adapted to {type(target).__name__}: {shown}")
    if (old := _activations(source)) != (new := _activations(target)):
        raise UserError(f"its activation, {' and '.join(sorted(old))}, is not that of the model, {' and '.join(sorted(new))}")
    target.load_state_dict(adapted)
    return target


def _fitted(name: str, given: Tensor, wanted: Tensor, target: Any, adaptation: Adaptation) -> Tensor | None:
    """The weight in the wanted shape, or None if there is no way."""
    if given.shape == wanted.shape:
        return given
    if given.ndim != wanted.ndim:
        return None
    given = given.float()  # stored weights may be in half precision, which is not for sums
    owner, first = target.get_submodule(name.rpartition(".")[0]), _first_convolution(target)
    if owner is first and given.shape[:2] == wanted.shape[:2]:
        size = (wanted.shape[2], wanted.shape[3])
        if first.stride != first.kernel_size:
            return centre_of_kernel(given, size)
        return sum_of_blocks(given, size) if adaptation == "sum" else resample_patch_embed(given, list(size))
    if name == "pos_embed" and given.ndim == 3 and given.shape[2] == wanted.shape[2]:
        return positions(given, target.patch_embed.grid_size, adaptation, wanted.shape[1])
    if name.endswith("relative_position_bias_table") and given.shape[1] == wanted.shape[1]:
        return relative_positions(given, owner.window_size)
    return None


def sum_of_blocks(kernel: Tensor, size: tuple[int, int]) -> Tensor | None:
    """A patch kernel [out, in, h, w] for patches a whole number of times smaller."""
    (height, width), (h, w) = kernel.shape[2:], size
    if height % h or width % w:
        return None
    return kernel.unflatten(3, (w, width // w)).unflatten(2, (h, height // h)).sum((3, 5))


def centre_of_kernel(kernel: Tensor, size: tuple[int, int]) -> Tensor | None:
    """The middle of an odd kernel: the same response, for a pattern that lies within it."""
    top, left = ((old - new) / 2 for old, new in zip(kernel.shape[2:], size, strict=True))
    if min(top, left) < 0 or top % 1 or left % 1:
        return None
    return kernel[:, :, int(top) : int(top) + size[0], int(left) : int(left) + size[1]]


def positions(embedding: Tensor, grid: tuple[int, int], adaptation: Adaptation, tokens: int) -> Tensor | None:
    """A position embedding [1, prefix + old grid, dim] for another grid; class tokens keep theirs."""
    prefix = tokens - grid[0] * grid[1]
    side = isqrt(max(0, embedding.shape[1] - prefix))
    if side**2 != embedding.shape[1] - prefix:  # another number of class tokens, or a grid that is no square
        return None
    smooth = adaptation == "resample"
    interpolation = "bicubic" if smooth else "bilinear"
    return resample_abs_pos_embed(embedding, list(grid), [side, side], prefix, interpolation, antialias=smooth)


def relative_positions(table: Tensor, window: tuple[int, int]) -> Tensor | None:
    """A table [distances, heads] of square windows for another window."""
    span, (rows, columns) = isqrt(table.shape[0]), (2 * side - 1 for side in window)
    if span**2 != table.shape[0]:
        return None
    if rows <= span and columns <= span:
        top, left = (span - rows) // 2, (span - columns) // 2
        return table.unflatten(0, (span, span))[top : top + rows, left : left + columns].flatten(0, 1)
    grid = table.T.unflatten(1, (span, span)).unsqueeze(0)
    return interpolate(grid, size=(rows, columns), mode="bicubic")[0].flatten(1).T


def _activations(model: nn.Module) -> set[str]:
    """Names of its elementwise functions: with another one the same weights are another model."""
    return {type(module).__name__ for module in model.modules() if type(module).__name__ in ACTIVATIONS}


def _first_convolution(model: nn.Module) -> Any:
    return next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)


def _head(model: Any) -> set[str]:
    """Names of the classifier's weights; a module from elsewhere than timm does not say which they are."""
    if not hasattr(model, "get_classifier"):
        return set()
    found = model.get_classifier()
    heads = found if isinstance(found, tuple) else (found,)
    own = {id(parameter) for head in heads for parameter in head.parameters()}
    return {name for name, parameter in model.named_parameters() if id(parameter) in own}


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "scalar"
