"""AttentionTap: what it survives, and what it refuses."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from timm.layers import Attention
from torch import Tensor, nn
from torch.nn import functional as F

from robustvit.errors import UserError
from robustvit.models import Classifier
from robustvit.models.attention import AttentionTap, attention_modules
from tests.models.attention_families import (
    pictures,
    tiny,
    traces,
)


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
