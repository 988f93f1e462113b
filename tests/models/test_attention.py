"""AttentionTap: one contract for all families, and closed forms for scales and records."""

import copy

import pytest
import torch
from torch import Tensor

from robustvit.models.attention import AttentionTap, attention_modules
from tests.models.attention_families import (
    FAMILIES,
    folded,
    pictures,
    scales,
    tiny,
    traces,
    without_position_bias,
)


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
