"""AttentionTap in company: attacks, other taps, half precision, compiled code."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from robustvit.attacks import PGD
from robustvit.models import Classifier
from robustvit.models.attention import AttentionTap, attention_modules
from robustvit.threat import Threat
from tests.models.attention_families import folded, pictures, scales, tiny, traces


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
