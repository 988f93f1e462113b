"""Families of attention, tiny, for the tests of AttentionTap: how to make one, and what a tap has to equal."""

import copy
from collections.abc import Callable
from typing import Any

import timm
import torch
from timm.models import metaformer
from torch import Tensor, nn

from robustvit.models.attention import attention_modules

TINY = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
WINDOWS = {"img_size": 32, "patch_size": 4, "window_size": 4, "embed_dim": 16, "depths": (2, 2), "num_heads": (2, 4)}
LEVIT = {"img_size": 96, "embed_dim": (32, 48, 64), "num_heads": (2, 3, 4), "depth": (1, 1, 1)}


def named(name: str, **args: Any) -> Callable[[], nn.Module]:
    return lambda: timm.create_model(name, num_classes=5, **args)


def caformer() -> nn.Module:
    """timm's entry points fix the depths."""
    return metaformer.MetaFormer(
        depths=(1, 1, 1, 1),
        dims=(8, 16, 32, 64),
        token_mixers=[metaformer.SepConv] * 2 + [metaformer.Attention] * 2,
        norm_layers=[metaformer.LayerNorm2dNoBias] * 2 + [metaformer.LayerNormNoBias] * 2,
        num_classes=5,
    )


# Family -> how to make a tiny one, and the classes of its attention modules in the order in which they run.
FAMILIES: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {
    "vit": (named("vit_tiny_patch16_224", **TINY), ["Attention"] * 2),
    "deit": (named("deit_tiny_patch16_224", **TINY), ["Attention"] * 2),
    "deit_distilled": (named("deit_tiny_distilled_patch16_224", **TINY), ["Attention"] * 2),
    "deit3": (named("deit3_small_patch16_224", **TINY), ["Attention"] * 2),
    "cait": (named("cait_xxs24_224", **TINY), ["TalkingHeadAttn"] * 2 + ["ClassAttn"] * 2),
    "xcit": (named("xcit_nano_12_p16_224", img_size=64, embed_dim=32, depth=2, num_heads=2), ["XCA"] * 2 + ["ClassAttn"] * 2),
    "swin": (named("swin_tiny_patch4_window7_224", **WINDOWS), ["WindowAttention"] * 4),
    "swinv2": (named("swinv2_tiny_window8_256", **WINDOWS), ["WindowAttention"] * 4),
    "levit": (named("levit_128s", **LEVIT), ["Attention", "AttentionDownsample"] * 2 + ["Attention"]),
    "beit": (named("beit_base_patch16_224", **TINY), ["Attention"] * 2),
    "caformer": (caformer, ["Attention"] * 2),
    "eva": (named("eva02_tiny_patch14_224", **TINY), ["EvaAttention"] * 2),
    "siglip": (named("vit_base_patch16_siglip_224", **TINY), ["Attention"] * 2 + ["AttentionPoolLatent"]),
    "differential": (named("vit_dlittle_patch16_reg1_gap_256", **TINY), ["DiffAttention"] * 2),
}
SCALES = torch.tensor([0.02, 3.0, 0.4, 1.5, 0.1], dtype=torch.float64)


def tiny(family: str, fused: bool = False) -> nn.Module:
    return noisy(FAMILIES[family][0], fused)


def noisy(make: Callable[[], nn.Module], fused: bool = False) -> nn.Module:
    """In double precision, and with noise on all parameters: biases and layer scales of a fresh model are near 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = make().double().eval()
        for p in model.parameters():
            p.data += 0.2 * torch.randn_like(p)
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = fused
    return model


def pictures(model: nn.Module) -> Tensor:
    side = {"Xcit": 64, "MetaFormer": 64, "LevitDistilled": 96}.get(type(model).__name__, 32)
    return torch.rand(2, 3, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def scales(model: nn.Module) -> Tensor:
    return SCALES[: len(attention_modules(model))].clone()


def folded(model: nn.Module, scales: Tensor) -> nn.Module:
    """The model with scales in its own constants and biases: what a tap has to equal, without one."""
    model = copy.deepcopy(model)
    for module, scale in zip(attention_modules(model).values(), scales.tolist(), strict=True):
        if hasattr(module, "temperature"):
            module.temperature.data *= scale
        elif hasattr(module, "logit_scale"):
            module.logit_scale.data += torch.tensor(scale).log()
        else:
            assert not getattr(module, "fused_attn", False)
            module.scale *= scale
        for name, biases in module.named_parameters(recurse=False):
            if name in ("relative_position_bias_table", "attention_biases"):
                biases.data *= scale
    return model


def traces(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """What a tap might leave behind."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs")
    left = {name: (len(vars(m)), *(len(getattr(m, kind)) for kind in hooks)) for name, m in model.named_modules()}
    return left | {"modes": (torch._C._len_torch_function_stack(),)}


def without_position_bias(model: nn.Module) -> nn.Module:
    """SwinV2's is 16·sigmoid(…), which no constant scales; at 8 everywhere no softmax sees it."""
    for module in model.modules():
        if hasattr(module, "cpb_mlp"):
            module.cpb_mlp[-1].weight.data.zero_()
    return model
