"""AttentionTap: one contract for all families, closed forms for scales and masks, and what it refuses."""

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from timm.layers import Attention
from timm.models import metaformer
from torch import Tensor, nn
from torch.nn import functional as F

from robustvit.attacks import PGD
from robustvit.errors import UserError
from robustvit.models import Classifier
from robustvit.models.attention import AttentionTap, attention_modules
from robustvit.threat import Threat

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


# ---------------------------------------------------------------------------------------------------------------- the contract


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_scales_act_as_if_they_were_the_models_own(family: str, fused: bool) -> None:
    plain = without_position_bias(tiny(family))
    model, x = without_position_bias(tiny(family, fused)), pictures(plain)
    with torch.no_grad():
        expected = folded(plain, scales(plain))(x)
        with AttentionTap(model, scales(model)):
            tapped = model(x)
        assert (tapped - model(x)).abs().max() > 1e-4  # they matter
        with AttentionTap(model, 0.3):
            number = model(x)
    torch.testing.assert_close(tapped, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(number, folded(plain, torch.full_like(scales(plain), 0.3))(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_scale_of_one_changes_nothing_and_nothing_is_left(family: str, fused: bool) -> None:
    model = tiny(family, fused)
    x = pictures(model)
    with torch.no_grad():
        before, plain = traces(model), model(x)
        with AttentionTap(model, torch.ones(len(FAMILIES[family][1])), record=True) as tap:
            tapped = model(x)
        assert torch.equal(tapped, plain)
        assert torch.equal(model(x), plain)
    assert traces(model) == before
    assert [type(tap.modules[name]).__name__ for name in tap.scores] == FAMILIES[family][1]  # in the order of execution
    assert list(tap.scores) == list(attention_modules(model))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_reach_scales_and_images(family: str, fused: bool) -> None:
    model = tiny(family, fused)
    x, scale, step = pictures(model).requires_grad_(), scales(model).requires_grad_(), 1e-5

    def loss(scale: Tensor) -> Tensor:
        with AttentionTap(model, scale):
            return model(x).square().sum()

    of_x, of_scale = torch.autograd.grad(loss(scale), (x, scale))
    assert of_x.abs().sum() > 0
    with torch.no_grad():
        moves = step * torch.eye(len(scale), dtype=torch.float64)
        numeric = torch.stack([(loss(scale + move) - loss(scale - move)) / (2 * step) for move in moves])
    torch.testing.assert_close(of_scale, numeric, rtol=1e-4, atol=1e-6)
    assert (of_scale != 0).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_fused_and_written_out_attention_record_the_same_scores(family: str) -> None:
    written = tiny(family)
    with torch.no_grad():
        with AttentionTap(written, scales(written), record=True) as one:
            written(pictures(written))
        fused = tiny(family, fused=True)
        with AttentionTap(fused, scales(fused), record=True) as other:
            fused(pictures(fused))
    for name, (scores, *_) in one.scores.items():
        # Differential attention asks for one softmax over all heads, or for two fused ones over the even and the odd.
        both = torch.stack(other.scores[name], 2).flatten(1, 2)
        torch.testing.assert_close(scores, both, rtol=1e-9, atol=1e-9)


# ------------------------------------------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("fused", [False, True])
def test_without_scale_attention_is_the_mean_of_the_values(fused: bool) -> None:
    model = tiny("vit", fused)
    module, seen = model.blocks[1].attn, {}
    module.register_forward_hook(lambda module, args, output: seen.update(tokens=args[0], output=output))
    with torch.no_grad(), AttentionTap(model, 0.0):
        model(pictures(model))
        value = module.qkv(seen["tokens"])[..., 2 * 32 :]
        torch.testing.assert_close(seen["output"], module.proj(value.mean(1, keepdim=True)).expand_as(seen["output"]))


@pytest.mark.parametrize("fused", [False, True])
def test_doubling_the_scale_doubles_the_rows_of_the_queries(fused: bool) -> None:
    model = tiny("vit", fused)
    twice = copy.deepcopy(model)
    twice.blocks[0].attn.qkv.weight.data[:32] *= 2
    twice.blocks[0].attn.qkv.bias.data[:32] *= 2
    with torch.no_grad():
        with AttentionTap(model, torch.tensor([2.0, 1.0])):
            tapped = model(pictures(model))
        torch.testing.assert_close(tapped, twice(pictures(model)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("fused", [False, True])
def test_a_head_may_have_a_scale_of_its_own(fused: bool) -> None:
    model = tiny("vit", fused)
    second_head = copy.deepcopy(model)
    second_head.blocks[0].attn.qkv.weight.data[16:32] *= 2
    second_head.blocks[0].attn.qkv.bias.data[16:32] *= 2
    with torch.no_grad():
        with AttentionTap(model, torch.tensor([[1.0, 2.0], [1.0, 1.0]])):
            tapped = model(pictures(model))
        torch.testing.assert_close(tapped, second_head(pictures(model)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("family", ["swin", "swinv2"])
def test_the_mask_between_shifted_windows_is_not_scaled(family: str, fused: bool) -> None:
    model = tiny(family, fused)
    with torch.no_grad():
        with AttentionTap(model, record=True) as plain:
            model(pictures(model))
        with AttentionTap(model, 0.01, record=True) as tap:
            model(pictures(model))
    # Up to the first shifted block the tap has changed nothing but the scores of the first; so compare within one pass.
    mask = model.layers[0].blocks[1].attn_mask
    (scores,) = tap.scores["layers.0.blocks.1.attn"]
    apart = (mask == -100).repeat(2, 1, 1)[:, None].expand_as(scores)
    assert apart.any()
    assert (scores[apart] + 100).abs().max() < 1
    assert scores[~apart].abs().max() < 1
    (first,), (scaled,) = plain.scores["layers.0.blocks.0.attn"], tap.scores["layers.0.blocks.0.attn"]
    torch.testing.assert_close(scaled, 0.01 * first)


@pytest.mark.parametrize("fused", [False, True])
def test_records_are_what_enters_the_softmax(fused: bool) -> None:
    model = tiny("vit", fused)
    tokens: list[Tensor] = []
    model.blocks[1].attn.register_forward_pre_hook(lambda module, args: tokens.append(args[0]))
    with torch.no_grad(), AttentionTap(model, 0.5, record=True) as tap:
        model(pictures(model))
        qkv = model.blocks[1].attn.qkv(tokens[0]).reshape(2, 17, 3, 2, 16)
        expected = 0.5 * torch.einsum("bqhd,bkhd->bhqk", qkv[:, :, 0], qkv[:, :, 1]) / 16**0.5
        torch.testing.assert_close(tap.scores["blocks.1.attn"], [expected], rtol=1e-9, atol=1e-9)


def test_a_function_keeps_what_it_makes_of_the_scores() -> None:
    model = tiny("cait")

    def gap(scores: Tensor) -> Tensor:
        first, second = scores.topk(2).values.unbind(-1)
        return first - second

    with AttentionTap(model, record=True) as tap:
        model(pictures(model))
    with AttentionTap(model, record=gap) as reduced:
        model(pictures(model))
        model(pictures(model))
    for name, (scores,) in tap.scores.items():
        assert not scores.requires_grad
        torch.testing.assert_close(reduced.scores[name], [gap(scores)] * 2)


# -------------------------------------------------------------------------------------------------------------------- masks


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("family", "prefix"),
    [("vit", 1), ("deit_distilled", 2), ("deit3", 1), ("cait", 1), ("beit", 1), ("eva", 1), ("differential", 1)],
)
def test_a_mask_that_allows_all_changes_nothing(family: str, prefix: int, fused: bool) -> None:
    model = tiny(family, fused)
    with torch.no_grad():
        plain = model(pictures(model))
        for tokens in (16, 16 + prefix):
            with AttentionTap(model, mask=torch.ones(tokens, tokens, dtype=torch.bool)):
                torch.testing.assert_close(model(pictures(model)), plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("fused", [False, True])
def test_a_token_that_only_sees_itself_puts_out_its_value(fused: bool) -> None:
    model = tiny("vit", fused)
    module, seen = model.blocks[1].attn, {}
    module.register_forward_hook(lambda module, args, output: seen.update(tokens=args[0], output=output))
    with torch.no_grad(), AttentionTap(model, mask=torch.eye(17, dtype=torch.bool)):
        model(pictures(model))
        torch.testing.assert_close(seen["output"], module.proj(module.qkv(seen["tokens"])[..., 2 * 32 :]))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("family", "prefix"), [("vit", 1), ("deit_distilled", 2), ("beit", 1), ("eva", 1)])
def test_a_mask_between_patches_leaves_prefix_tokens_alone(family: str, prefix: int, fused: bool) -> None:
    model, near = tiny(family, fused), torch.eye(16, dtype=torch.bool)
    with torch.no_grad(), AttentionTap(model, scales(model), mask=near, record=True) as tap:
        logits = model(pictures(model))
    for (scores,) in tap.scores.values():
        hidden = scores == -torch.inf
        assert not hidden[..., :prefix, :].any()
        assert not hidden[..., :prefix].any()
        assert torch.equal(hidden[..., prefix:, prefix:], (~near).expand(2, 2, 16, 16))
    additive = torch.zeros(16, 16).masked_fill(~near, -torch.inf)
    with torch.no_grad(), AttentionTap(model, scales(model), mask=additive):
        assert torch.equal(model(pictures(model)), logits)


@pytest.mark.parametrize("fused", [False, True])
def test_class_attention_takes_the_row_of_the_class_token(fused: bool) -> None:
    model, mask = tiny("cait", fused), torch.ones(17, 17, dtype=torch.bool)
    mask[0, 5] = mask[3, 7] = False
    with torch.no_grad(), AttentionTap(model, mask=mask, record=True) as tap:
        model(pictures(model))
    for name, (scores,) in tap.scores.items():
        rows = mask[1:, 1:] if "token_only" not in name else mask[:1]
        assert torch.equal(scores == -torch.inf, ~rows.expand_as(scores))


def test_masks_go_to_the_modules_that_are_named() -> None:
    model = tiny("xcit")
    mask = torch.ones(1, 17, dtype=torch.bool)
    mask[0, 3] = False
    with torch.no_grad(), AttentionTap(model, mask={"cls_attn_blocks.1.attn": mask}, record=True) as tap:
        model(pictures(model))
    hidden = {name: (scores == -torch.inf).sum().item() for name, (scores,) in tap.scores.items()}
    assert hidden == dict.fromkeys(hidden, 0) | {"cls_attn_blocks.1.attn": 2 * 2}


def test_an_additive_mask_is_added_after_the_scale() -> None:
    model, mask = tiny("vit"), torch.randn(17, 17, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        with AttentionTap(model, 0.5, mask=mask, record=True) as masked:
            model(pictures(model))
        with AttentionTap(model, 0.5, record=True) as plain:
            model(pictures(model))
    expected = plain.scores["blocks.0.attn"][0] + mask
    torch.testing.assert_close(masked.scores["blocks.0.attn"][0], expected, rtol=1e-6, atol=1e-6)


def test_what_a_model_masks_itself_stays_masked_at_any_scale() -> None:
    for fused in (False, True):
        model = tiny("vit", fused)
        own = torch.ones(17, 17, dtype=torch.bool)
        own[:, 4] = False
        tokens = torch.rand(2, 17, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        for mask in (own, torch.zeros(17, 17, dtype=torch.float64).masked_fill(~own, -torch.inf)):
            scale = torch.zeros(1, dtype=torch.float64, requires_grad=True)
            with AttentionTap(model.blocks[0], scale) as tap:
                out = model.blocks[0].attn(tokens, attn_mask=mask)
            value = tap.modules["attn"].qkv(tokens)[..., 2 * 32 :]
            seen = torch.cat([value[:, :4], value[:, 5:]], 1).mean(1, keepdim=True)
            torch.testing.assert_close(out, tap.modules["attn"].proj(seen).expand_as(out))
            assert torch.autograd.grad(out.square().sum(), scale)[0].isfinite()


# ------------------------------------------------------------------------------------------- in company: attacks, taps, compile


def test_attacks_run_through_a_tapped_classifier(tiny_vit: Classifier, images: tuple[Tensor, Tensor]) -> None:
    x, y = images
    scale = torch.tensor([0.1, 2.0, 0.5], requires_grad=True)
    attack = PGD(Threat("linf", 0.1), steps=3, seed=0)
    for module in tiny_vit.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
    with AttentionTap(tiny_vit, scale):
        x_adv = attack(tiny_vit, x, y)
    assert list(attention_modules(tiny_vit)) == [f"backbone.blocks.{i}.attn" for i in range(3)]
    expected = attack(folded(tiny_vit, scale.detach()), x, y)
    assert ((x_adv - expected).abs() > 1e-4).float().mean() < 0.01  # signs of gradients that are almost 0 may differ
    assert (x_adv - attack(tiny_vit, x, y)).abs().max() > 1e-3
    assert scale.grad is None


def test_a_scale_that_changes_inside_is_seen() -> None:
    model, scale = tiny("vit"), torch.ones(2, dtype=torch.float64)
    with torch.no_grad(), AttentionTap(model, scale):
        before = model(pictures(model))
        scale *= 0.5
        after = model(pictures(model))
    assert torch.equal(before, model(pictures(model)))
    with torch.no_grad(), AttentionTap(model, 0.5):
        assert torch.equal(after, model(pictures(model)))


@pytest.mark.parametrize("fused", [False, True])
def test_nested_taps_multiply_and_the_outer_one_sees_what_enters_the_softmax(fused: bool) -> None:
    model, near = tiny("swin", fused), torch.eye(16, dtype=torch.bool)
    before = traces(model)
    with torch.no_grad():
        with AttentionTap(model, 0.5, mask=near, record=True) as outer, AttentionTap(model, 0.2, record=True) as inner:
            nested = model(pictures(model))
        with AttentionTap(model, 0.1, mask=near, record=True) as single:
            torch.testing.assert_close(model(pictures(model)), nested, rtol=1e-9, atol=1e-9)
    for name in single.scores:
        torch.testing.assert_close(outer.scores[name], single.scores[name], rtol=1e-9, atol=1e-9)
        assert inner.scores[name][0].isfinite().all()
    assert traces(model) == before


def test_other_models_and_softmaxes_are_left_alone() -> None:
    model, other = tiny("vit"), tiny("deit3", fused=True)
    scores = torch.rand(2, 2, 3, 3)
    with torch.no_grad():
        expected = other(pictures(other))
        with AttentionTap(model, 0.1):
            assert torch.equal(other(pictures(other)), expected)
            assert torch.equal(scores.softmax(-1), torch.softmax(scores, -1))


@pytest.mark.parametrize("fused", [False, True])
def test_half_precision_keeps_its_type(fused: bool) -> None:
    model = tiny("beit", fused).float()
    x = pictures(model).float()
    scale = scales(model).float()
    with torch.no_grad(), AttentionTap(model, scale, mask=torch.eye(16, dtype=torch.bool)):
        exact = model(x)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = model(x)
        half = model.bfloat16()(x.bfloat16())
    assert half.dtype == torch.bfloat16
    for other in (mixed.float(), half.float()):
        assert F.cosine_similarity(other, exact).min() > 0.99


@pytest.mark.parametrize("in_place", [False, True])
def test_what_was_compiled_before_is_tapped_too(in_place: bool) -> None:
    model = tiny("vit")
    x = pictures(model)
    with torch.no_grad():
        plain = model(x)
        if in_place:
            model.compile(backend="eager")
        compiled = model if in_place else torch.compile(model, backend="eager")
        torch.testing.assert_close(compiled(x), plain)
        with AttentionTap(model, 0.1):
            inside, expected = compiled(x), tiny("vit")
        torch.testing.assert_close(compiled(x), plain)
        torch.testing.assert_close(inside, folded(expected, torch.tensor([0.1, 0.1], dtype=torch.float64))(x))


@pytest.mark.filterwarnings("ignore:Dynamo does not know")
def test_a_tap_inside_compiled_code_is_an_error() -> None:
    model = tiny("vit")

    @torch.compile(backend="eager")
    def tapped(x: Tensor) -> Tensor:
        with AttentionTap(model, 0.1):
            return model(x)

    before = traces(model)
    with pytest.raises(RuntimeError, match=r"torch\.compile"):
        tapped(pictures(model))
    assert traces(model) == before


# ----------------------------------------------------------------------------------------------------------------- accidents


def test_nothing_is_left_after_an_error() -> None:
    model = tiny("swin", fused=True)
    before, plain = traces(model), model(pictures(model))
    fails = model.layers[1].register_forward_pre_hook(lambda module, args: 1 / 0)
    with pytest.raises(ZeroDivisionError), AttentionTap(model, 0.1):
        model(pictures(model))
    fails.remove()
    assert traces(model) == before
    assert torch.equal(model(pictures(model)), plain)


def test_an_error_inside_attention_that_is_caught_leaves_other_softmaxes_alone() -> None:
    model = tiny("vit")
    with torch.no_grad(), AttentionTap(model, 0.1):
        expected = model(pictures(model))
        fails = model.blocks[1].attn.proj.register_forward_pre_hook(lambda module, args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(pictures(model))
        fails.remove()
        scores = torch.rand(2, 2, 3, 3)
        torch.testing.assert_close(scores.softmax(-1), scores.exp() / scores.exp().sum(-1, keepdim=True))
        assert torch.equal(model(pictures(model)), expected)


def test_another_thread_may_not_run_a_tapped_model() -> None:
    model, errors = tiny("vit"), []

    def run() -> None:
        try:
            model(pictures(model))
        except UserError as error:
            errors.append(str(error))

    with torch.no_grad(), AttentionTap(model, 0.1):
        inside = model(pictures(model))
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert torch.equal(model(pictures(model)), inside)
    assert len(errors) == 1
    assert "another thread" in errors[0]


class Bare(nn.Module):
    """Attention of a known class, and more of it beside."""

    def __init__(self, beside: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.attn, self.beside = Attention(8, num_heads=2), beside

    def forward(self, x: Tensor) -> Tensor:
        return self.beside(self.attn(x)[:, None])


@pytest.mark.parametrize(
    "beside",
    [
        lambda x: F.scaled_dot_product_attention(x, x, x),
        lambda x: (x @ x.mT).softmax(-1) @ x,
        lambda x: torch.softmax(input=x @ x.mT, dim=3) @ x,
        lambda x: nn.Softmax(-1)(x @ x.mT) @ x,
    ],
)
def test_attention_outside_of_the_known_modules_is_an_error(beside: Callable[[Tensor], Tensor]) -> None:
    model = Bare(beside)
    with AttentionTap(model, 0.5), pytest.raises(UserError, match="model Bare: attention outside of attn"):
        model(torch.rand(2, 3, 8))


def test_softmaxes_over_other_things_are_no_attention() -> None:
    model = Bare(lambda x: x.softmax(1) + x.flatten(1).softmax(-1)[:, :8].view(-1, 1, 1, 8))
    with AttentionTap(model, 0.5):
        assert model(torch.rand(2, 3, 8)).isfinite().all()


def test_an_attention_module_without_a_softmax_is_an_error() -> None:
    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.relu()

    model = nn.Sequential(Attention())
    with AttentionTap(model, 0.5), pytest.raises(UserError, match="model Sequential: 0 ran without a softmax"):
        model(torch.rand(2, 3))


@pytest.mark.parametrize("name", ["poolformer_s12", "convnext_atto", "resnet18", "resnet_mini", "poolformer_m12"])
def test_models_without_attention_are_refused_by_name(name: str) -> None:
    model = Classifier(timm.create_model(name))
    for refuse in (attention_modules, AttentionTap):
        with pytest.raises(UserError, match=f"model {name}: no attention"):
            refuse(model)


@pytest.mark.parametrize(
    ("family", "given", "message"),
    [
        ("vit", {"scale": torch.ones(3)}, r"scale: shape \(3,\); accepted: a number, \[2\] or \[2, heads\]"),
        ("vit", {"scale": torch.ones(2, 2, 2)}, "scale: shape"),
        ("vit", {"mask": torch.ones(2, 17, 17)}, r"mask: shape \(2, 17, 17\)"),
        ("vit", {"mask": {"blocks.0.atn": torch.ones(17, 17)}}, "did you mean 'blocks.0.attn'"),
        ("xcit", {"mask": torch.ones(16, 16)}, "mask: blocks.0.attn compares channels"),
    ],
)
def test_bad_arguments_are_refused_at_once(family: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        AttentionTap(tiny(family), **given)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("family", "given", "message"),
    [
        ("vit", {"scale": torch.ones(2, 3)}, r"scale: shape \(2, 3\), but blocks.0.attn"),
        ("swin", {"scale": torch.ones(4, 2)}, "as many columns as each module has heads"),
        ("vit", {"mask": torch.ones(9, 9)}, "17 queries, 17 keys and 1 prefix tokens in the model: it fits none"),
        ("vit", {"mask": torch.arange(17)[:, None].ne(3).expand(17, 17)}, "leaves a query with nothing to attend to"),
        ("siglip", {"mask": torch.ones(16, 16)}, "attn_pool with 1 queries"),
    ],
)
def test_what_does_not_fit_is_refused_when_it_shows(family: str, given: dict[str, Any], message: str, fused: bool) -> None:
    model = tiny(family, fused)
    with AttentionTap(model, **given), pytest.raises(UserError, match=message):
        model(pictures(model))


def test_a_tap_is_entered_once_at_a_time_and_may_be_used_again() -> None:
    model = tiny("vit")
    tap = AttentionTap(model, 0.5, record=True)
    for _ in range(2):
        with tap:
            model(pictures(model))
            with pytest.raises(UserError, match="entered twice"):
                tap.__enter__()
        assert len(tap.scores["blocks.0.attn"]) == 1


def test_a_mask_inside_another_tap_is_refused() -> None:
    model = tiny("vit")
    with AttentionTap(model, 0.5), pytest.raises(UserError, match="outermost"), AttentionTap(model, mask=torch.ones(17, 17)):
        pass


def test_checkpointed_blocks_are_refused() -> None:
    model = tiny("swin")
    model.set_grad_checkpointing()
    with pytest.raises(UserError, match="grad_checkpointing"), AttentionTap(model, 0.5):
        pass
