"""AttentionTap: scale, mask or record the pre-softmax scores of every attention module of a timm model.

What counts is each softmax, written out or inside `scaled_dot_product_attention`, that the forward of a module of `ATTENTION`
asks for, and all that enters it: 1/√d, XCiT's temperature, SwinV2's cosine scale, relative position biases. CaiT's
self-attention has one softmax, after its first mixing of the heads. Class attention (CaiT, XCiT) counts like any other, and so
does attention that pools tokens. Differential attention has two softmaxes, and so has ConViT's gated attention (content,
position): both are tapped. What a module is handed as `mask` or `attn_mask` is no score and is not scaled: Swin hands −100
between parts of a window that do not touch in the image.
"""

import inspect
import math
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from robustvit.errors import UserError, unknown
from robustvit.models.surgery import eager, name_of

# What the scores of a class compare. By name, since timm moves classes between files; a subclass inherits its base's row.
ATTENTION: dict[str, str] = {
    **dict.fromkeys(("Attention", "AttentionRope", "EvaAttention", "Gemma4Attention", "RelPosAttention", "MHSA"), "tokens"),
    **dict.fromkeys(("TalkingHeadAttn", "GPSA", "DiffAttention", "ParallelScalingBlock", "DiffParallelScalingBlock"), "tokens"),
    **dict.fromkeys(("WindowAttention", "WindowMultiHeadAttention", "WindowAttentionGlobal", "MaskUnitAttention"), "tokens"),
    **dict.fromkeys(("LocallyGroupedAttn", "GlobalSubSampleAttn", "AttentionDownsample", "Attention2dDownsample"), "tokens"),
    **dict.fromkeys(("MultiScaleAttention", "MultiScaleAttentionPoolFirst", "MultiQueryAttention2d", "SHSA", "SHMA"), "tokens"),
    **dict.fromkeys(("Attention2d", "AttentionCl", "EfficientAttention", "CascadedGroupAttention"), "tokens"),
    **dict.fromkeys(("OutlookAttention", "AttentionPoolLatent"), "tokens"),
    **dict.fromkeys(("ClassAttn", "ClassAttention", "CrossAttention"), "class"),
    **dict.fromkeys(("XCA", "CrossCovarianceAttn", "ChannelAttention", "ChannelAttentionV2"), "channels"),
}
_ACCEPTED = f"accepted: models whose attention is in the {len(ATTENTION)} classes of ATTENTION, as ViT's, Swin's and XCiT's is"
_SOFTMAX = frozenset({torch.softmax, F.softmax, Tensor.softmax})
_FUSED = F.scaled_dot_product_attention
_FUSED_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def attention_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The attention modules by name, in the order of the model's definition: the order of scales."""
    found = {name: module for name, module in model.named_modules() if _compares(module)}
    if not found:
        raise UserError(f"model {name_of(model)}: no attention in it that is known; {_ACCEPTED}")
    return found


@dataclass(slots=True)
class _Call:
    """A forward pass under way: of the attention module `name`, or, with None, of the whole model."""

    name: str | None
    own_mask: Tensor | None = None
    softmaxes: int = 0


class AttentionTap(TorchFunctionMode):
    """softmax(λ·(QKᵀ/√d + bias) + mask) in place of softmax(QKᵀ/√d + bias), and a record of what enters it.

    `scale`: λ, a number or a tensor: of one entry, [modules] or [modules, heads]; gradients reach it.
    `mask`: boolean (True: may attend) or additive, [tokens, tokens] or [patches, patches], where class and other prefix tokens
    attend to all and are seen by all; in window attention, positions in a window. One for all modules, or some by name.
    `record`: True keeps scores in `scores[name]`, one entry a softmax, without graph; a function keeps what it makes of them.

    Taps of one model nest: their scales multiply, and a mask belongs to the outermost one, so that no scale acts on it. A tap
    acts in the thread that entered it, and until it is left the model refuses to run in any other.
    """

    def __init__(
        self,
        model: nn.Module,
        scale: float | Tensor = 1.0,
        mask: Tensor | Mapping[str, Tensor] | None = None,
        record: bool | Callable[[Tensor], Any] = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.modules = attention_modules(model)
        self.scale = _checked_scale(scale, len(self.modules))
        self.masks = _checked_masks(mask, self.modules)
        self.record = record
        self.scores: dict[str, list[Any]] = {}
        self._rows = {name: row for row, name in enumerate(self.modules)}
        self._prefix = _prefix_tokens(model)
        self._fitted: dict[tuple[str, int, int], Tensor] = {}
        self._calls: list[_Call] = []
        self._exits: ExitStack | None = None

    def __enter__(self) -> Self:
        if self._exits is not None:
            raise UserError("AttentionTap: entered twice; accepted: another AttentionTap for the inner block")
        if self.masks and any(_is_tapped(module) for module in self.modules.values()):
            raise UserError("mask: the model is tapped already; accepted: the mask in the outermost AttentionTap")
        self.scores, self._fitted, self._thread = {}, {}, threading.get_ident()
        with ExitStack() as exits:
            exits.enter_context(eager(self.model))
            exits.callback(self._calls.clear)
            # The model is watched too, for attention outside of its attention modules; unless it is one itself.
            if "" not in self.modules:
                self._watch(None, self.model, exits)
            for name, module in self.modules.items():
                self._watch(name, module, exits)
            super().__enter__()
            exits.callback(super().__exit__, None, None, None)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._exits is not None
        exits, self._exits = self._exits, None
        exits.close()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if not self._calls or (func is not _FUSED and func not in _SOFTMAX):
            return func(*args, **given)
        call = self._calls[-1]
        call.softmaxes += 1
        if func is _FUSED:
            given = dict(zip(_FUSED_ARGUMENTS, args, strict=False)) | given
            return func(**self._through_query(call, given))
        scores, *rest = args or (given.pop("input"),)
        return func(self._through_scores(call, scores, given.get("dim", next(iter(rest), None))), *rest, **given)

    def _through_scores(self, call: _Call, scores: Tensor, over: int | None) -> Tensor:
        """The input of a softmax, tapped."""
        if call.name is None:
            # Other softmaxes weigh branches or channels, and have fewer dimensions or go over another one.
            if scores.dim() >= 4 and over in (-1, scores.dim() - 1):
                raise self._outside()
            return scores
        scale, mask = self._scale_of(call.name, scores), self._mask_of(call.name, scores.shape[-2], scores.shape[-1], scores)
        scores = _scaled(scores, scale, call.own_mask, len(scores))
        scores = scores if mask is None else scores + mask
        self._keep(call.name, scores)
        return scores

    def _through_query(self, call: _Call, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a fused attention, tapped: scaled queries and biases give scaled scores, whatever kernel runs."""
        if call.name is None:
            raise self._outside()
        query, key, bias = given["query"], given["key"], given.get("attn_mask")
        scale, mask = self._scale_of(call.name, query), self._mask_of(call.name, query.shape[-2], key.shape[-2], query)
        query = _scaled(query, scale)
        if bias is not None and bias.dtype != torch.bool:
            bias = _scaled(bias, scale, call.own_mask, len(query))
        if mask is not None:
            bias = mask if bias is None else _additive(bias, mask.dtype) + mask
        if self.record:
            if given.get("is_causal"):
                raise UserError(f"record: {call.name} is asked for causal attention; accepted: attention between all tokens")
            with torch.no_grad():
                factor = query.shape[-1] ** -0.5 if given.get("scale") is None else given["scale"]
                scores = (query * factor) @ key.transpose(-2, -1)
                self._keep(call.name, scores if bias is None else scores + _additive(bias, scores.dtype))
        return given | {"query": query, "attn_mask": bias}

    def _scale_of(self, name: str, scores: Tensor) -> float | Tensor | None:
        """λ of a module, shaped to multiply scores or queries; None for the number 1."""
        if not isinstance(self.scale, Tensor):
            return None if self.scale == 1 else self.scale
        # Looked up at each call: its graph must be fresh, and an optimiser may have changed it.
        scale = (self.scale if self.scale.numel() == 1 else self.scale[self._rows[name]]).to(scores.device)
        if scale.numel() == 1:
            return scale.reshape(())
        if scores.dim() != 4 or scores.shape[1] != len(scale):
            raise UserError(
                f"scale: shape {tuple(self.scale.shape)}, but {name} works on [batch, heads, …] = {tuple(scores.shape)}; "
                "accepted: as many columns as each module has heads, or one scale a module"
            )
        return scale[:, None, None]

    def _mask_of(self, name: str, queries: int, keys: int, like: Tensor) -> Tensor | None:
        if name not in self.masks:
            return None
        size = (name, queries, keys)
        if size not in self._fitted:
            of_class = _compares(self.modules[name]) == "class"
            mask = _fit(self.masks[name].to(like.device), queries, keys, of_class, self._prefix)
            if mask is None or bool((mask == -torch.inf).all(-1).any()):
                why = "fits none of them" if mask is None else "leaves a query with nothing to attend to"
                raise UserError(
                    f"mask: of shape {tuple(self.masks[name].shape)}, for {name} with {queries} queries, {keys} keys and "
                    f"{self._prefix} prefix tokens in the model: it {why}; accepted: [queries, keys], or without prefix tokens"
                )
            self._fitted[size] = mask
        return self._fitted[size].to(like.dtype)

    def _keep(self, name: str, scores: Tensor) -> None:
        if self.record:
            scores = scores.detach()
            self.scores.setdefault(name, []).append(self.record(scores) if callable(self.record) else scores)

    def _watch(self, name: str | None, module: nn.Module, exits: ExitStack) -> None:
        mask = None if name is None else _mask_parameter(module)
        exits.callback(module.register_forward_pre_hook(partial(self._open, name, mask), with_kwargs=True).remove)
        # Called after an error too: whoever catches it would find this module still marked as running.
        exits.callback(module.register_forward_hook(partial(self._close, name), always_call=True).remove)

    def _open(self, name: str | None, mask: tuple[str, int] | None, module: nn.Module, args: Any, kwargs: Any) -> None:
        if threading.get_ident() != self._thread:
            raise UserError(f"model {name_of(self.model)}: tapped in another thread; accepted: to run it there, or untapped")
        own = None if mask is None else kwargs.get(mask[0], args[mask[1]] if len(args) > mask[1] else None)
        self._calls.append(_Call(name, own))

    def _close(self, name: str | None, module: nn.Module, args: Any, output: Any) -> None:
        if threading.get_ident() != self._thread or not self._calls or self._calls[-1].name != name:
            return  # an error before `_open` had its turn
        call = self._calls.pop()
        if output is not None and name is not None and not call.softmaxes:
            raise UserError(f"model {name_of(self.model)}: {name} ran without a softmax that could be tapped: nothing was done")

    def _outside(self) -> UserError:
        """A model tapped in part would pass for a tapped one."""
        return UserError(f"model {name_of(self.model)}: attention outside of {', '.join(self.modules)}; {_ACCEPTED}")


def _scaled(scores: Tensor, scale: float | Tensor | None, own_mask: Tensor | None = None, batch: int = 0) -> Tensor:
    """λ·scores, with `own_mask`, which is part of them, left as it was: λ·(s + m) + (1 − λ)·m."""
    if scale is None:
        return scores
    if own_mask is None:
        return (scores * scale).to(scores.dtype)
    own = _additive(own_mask, scores.dtype)
    if own.dim() == 3:  # Swin's [windows, tokens, tokens]; the batch holds all windows of one image, then of the next
        own = own.repeat(batch // len(own), 1, 1)[:, None]
    hidden = own == -torch.inf  # set aside: −∞ times 0 is no number, nor is its gradient
    seen, own = scores.masked_fill(hidden, 0), own.masked_fill(hidden, 0)
    return (seen * scale + (1 - scale) * own).to(scores.dtype).masked_fill(hidden, -torch.inf)


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else mask.to(dtype)


def _fit(mask: Tensor, queries: int, keys: int, of_class: bool, prefix: int) -> Tensor | None:
    """An additive mask between tokens or patches as [queries, keys]; None if it is of another size."""
    if mask.shape == (queries, keys):
        return mask
    if mask.shape == (keys - prefix, keys - prefix):
        mask = F.pad(mask, (prefix, 0, prefix, 0))  # 0: prefix tokens see all and are seen by all
    elif mask.shape == (keys + prefix, keys + prefix):
        mask = mask[prefix:, prefix:]  # the class token comes later, as in CaiT
    if mask.shape != (keys, keys):
        return None
    return mask[:queries] if of_class or queries == keys else None


def _compares(module: nn.Module) -> str | None:
    """What the module's scores compare; None if it is no attention."""
    return next((ATTENTION[base.__name__] for base in type(module).__mro__ if base.__name__ in ATTENTION), None)


def _prefix_tokens(model: nn.Module) -> int:
    """How many class, distillation and register tokens stand before the patches."""
    for module in model.modules():
        given: Any = getattr(module, "num_prefix_tokens", None)
        if given is not None:
            return given
        if isinstance(getattr(module, "cls_token", None), Tensor):
            return 1  # timm 1.0.30 has no number for CaiT
    return 0


def _mask_parameter(module: nn.Module) -> tuple[str, int] | None:
    """Name and place of the parameter of its forward that takes a mask."""
    names = enumerate(inspect.signature(module.forward).parameters)
    return next(((name, place) for place, name in names if name in ("mask", "attn_mask")), None)


def _is_tapped(module: nn.Module) -> bool:
    hooks = module._forward_pre_hooks.values()
    return any(isinstance(getattr(getattr(hook, "func", None), "__self__", None), AttentionTap) for hook in hooks)


def _checked_scale(scale: float | Tensor, modules: int) -> float | Tensor:
    if not isinstance(scale, Tensor):
        if not math.isfinite(scale):
            raise UserError(f"scale: {scale}; accepted: a finite number, or a tensor")
        return float(scale)
    if scale.dim() > 2 or (scale.numel() != 1 and len(scale) != modules):
        raise UserError(f"scale: shape {tuple(scale.shape)}; accepted: a number, [{modules}] or [{modules}, heads]")
    return scale


def _checked_masks(mask: Tensor | Mapping[str, Tensor] | None, modules: dict[str, nn.Module]) -> dict[str, Tensor]:
    """An additive mask for each module that is to have one."""
    if mask is None:
        return {}
    masks = dict.fromkeys(modules, mask) if isinstance(mask, Tensor) else dict(mask)
    for name, each in masks.items():
        if name not in modules:
            raise unknown("attention module in mask", name, modules)
        if each.dim() != 2:
            raise UserError(f"mask: shape {tuple(each.shape)} for {name}; accepted: [tokens, tokens] or [patches, patches]")
        if _compares(modules[name]) == "channels":
            raise UserError(f"mask: {name} compares channels, not tokens; accepted: masks by name for the other modules")
    return {name: _additive(each, torch.float32) for name, each in masks.items()}
