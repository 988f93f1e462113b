"""AttentionTap: masks."""

import pytest
import torch

from robustvit.models.attention import AttentionTap
from tests.models.attention_families import pictures, scales, tiny


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
