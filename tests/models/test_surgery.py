"""Surgery: which blocks a model has, what they put out, and that a lesion leaves the skip and nothing else."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import timm
import torch
from timm.models import metaformer
from torch import Tensor, nn

from robustvit.errors import UserError
from robustvit.models import Classifier
from robustvit.models.attention import AttentionTap
from robustvit.models.surgery import block_outputs, blocks, lesion
from tests.models.attention_families import FAMILIES, named, noisy, pictures, tiny, traces


def poolformer() -> nn.Module:
    """timm's entry points fix the depths."""
    return metaformer.MetaFormer(depths=(2, 1, 1, 1), dims=(8, 16, 16, 32), token_mixers=metaformer.Pooling, num_classes=5)


MODELS: dict[str, Callable[[], nn.Module]] = {family: make for family, (make, _) in FAMILIES.items()} | {
    "resnet": named("resnet18", channels=(8, 16, 16, 32)),
    "resnet_gelu": named("resnet50", layers=(2, 1, 1, 1), channels=(8, 8, 16, 16), act_layer="gelu"),
    "resnet_se": named("seresnet50", layers=(2, 1, 1, 1), channels=(8, 8, 16, 16), drop_path_rate=0.1),
    "resnetv2": named("resnetv2_50", layers=(2, 1, 1, 1), channels=(16, 32, 32, 64), stem_chs=8),
    "convnext": named("convnext_atto", depths=(2, 1, 1, 1), dims=(8, 16, 16, 32)),
    "poolformer": poolformer,
    "parallel": named("vit_small_patch16_18x2_224", img_size=32, patch_size=8, embed_dim=16, depth=2, num_heads=2),
    "regnet": named("regnetx_002"),
    "resnet_sk": named("skresnet18", channels=(32, 32, 64, 64)),
    "maxvit": named("maxvit_tiny_rw_224", img_size=32, embed_dim=(32, 32, 32, 64), depths=(1, 1, 1, 1), stem_width=8),
}
TWO = ["blocks.0", "blocks.1"]
DEEPER = ["stages.1.blocks.0", "stages.2.blocks.0", "stages.3.blocks.0"]
BLOCKS: dict[str, list[str]] = {
    **dict.fromkeys(("vit", "deit", "deit_distilled", "deit3", "beit", "eva", "siglip", "differential", "parallel"), TWO),
    "cait": [*TWO, "blocks_token_only.0", "blocks_token_only.1"],
    "xcit": [*TWO, "cls_attn_blocks.0", "cls_attn_blocks.1"],
    **{family: [f"layers.{stage}.{block}" for stage in (0, 1) for block in TWO] for family in ("swin", "swinv2")},
    "levit": [f"stages.{stage}.blocks.0" for stage in range(3)],
    "caformer": [f"stages.{stage}.blocks.0" for stage in range(4)],
    **{family: ["stages.0.blocks.0", "stages.0.blocks.1", *DEEPER] for family in ("resnetv2", "convnext", "poolformer")},
    **{family: [f"layer{stage}.{i}" for stage in (1, 2, 3, 4) for i in (0, 1)] for family in ("resnet", "resnet_sk")},
    "regnet": [f"s{stage}.b{i}" for stage, depth in ((1, 1), (2, 1), (3, 4), (4, 7)) for i in range(1, depth + 1)],
    "maxvit": [f"stages.{stage}.blocks.0" for stage in range(4)],
    **{family: ["layer1.0", "layer1.1", "layer2.0", "layer3.0", "layer4.0"] for family in ("resnet_gelu", "resnet_se")},
}


def shortcut(block: nn.Module, x: Tensor) -> Tensor:
    return x if getattr(block, "downsample", None) is None else block.downsample(x)


# Block class -> what its skip makes of the input, where that is more than passing it on.
SKIPS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "BasicBlock": lambda block, x: block.act2(shortcut(block, x)),
    "Bottleneck": lambda block, x: block.act3(shortcut(block, x)),
    "PreActBottleneck": lambda block, x: x if block.downsample is None else block.downsample(block.norm1(x)),
    "SelectiveKernelBasic": lambda block, x: block.act(shortcut(block, x)),
    "MaxxVitBlock": lambda block, x: block.conv.shortcut(x),
    "MetaFormerBlock": lambda block, x: block.res_scale2(block.res_scale1(x)),
    "ClassAttentionBlock": lambda block, x: torch.cat([block.norm2(x[:, :1]), x[:, 1:]], dim=1),
}


def build(family: str) -> nn.Module:
    return noisy(MODELS[family])


# ------------------------------------------------------------------------------------------------------------- the contract


@pytest.mark.parametrize("family", MODELS)
def test_every_block_puts_out_what_it_returned(family: str) -> None:
    model, returned = build(family), []
    found = blocks(model)
    assert list(found) == BLOCKS[family]
    for block in found.values():
        block.register_forward_hook(lambda block, args, output: returned.append(output))
    before = traces(model)
    with block_outputs(model) as outputs:
        logits = model(pictures(model))
    assert traces(model) == before
    assert list(outputs) == BLOCKS[family]  # in the order of execution
    assert all(output is back for output, back in zip(outputs.values(), returned, strict=True))
    (grad,) = torch.autograd.grad(logits.sum(), next(iter(outputs.values())))
    assert grad.abs().sum() > 0


@pytest.mark.parametrize("family", MODELS)
def test_a_lesioned_block_is_its_skip(family: str) -> None:
    model = build(family)
    plain, before = model(pictures(model)), traces(model)
    for number, block in enumerate(blocks(model).values()):
        seen: dict[str, Any] = {}
        watch = block.register_forward_hook(lambda block, args, output, seen=seen: seen.update(given=args, output=output))
        with torch.no_grad(), lesion(model, number):
            logits = model(pictures(model))
            # CaiT's class attention is given the patches, then the class token, which alone goes on.
            x = seen["given"][-1] if type(block).__name__ == "LayerScaleBlockClassAttn" else seen["given"][0]
            expected = SKIPS.get(type(block).__name__, lambda block, x: x)(block, x)
            torch.testing.assert_close(seen["output"].where(seen["output"] != 0, 0), expected)
        assert (logits - plain).abs().max() > 1e-6
        watch.remove()
    assert traces(model) == before
    assert torch.equal(model(pictures(model)), plain)


@pytest.mark.parametrize("family", ["vit", "deit_distilled", "deit3", "beit", "eva", "differential"])
def test_block_outputs_are_what_timm_calls_intermediates(family: str) -> None:
    model = build(family)
    with torch.no_grad(), block_outputs(model) as outputs:
        arguments = {"return_prefix_tokens": True, "output_fmt": "NLC", "intermediates_only": True}
        intermediates = model.forward_intermediates(pictures(model), **arguments)
    for output, (patches, prefix) in zip(outputs.values(), intermediates, strict=True):
        assert torch.equal(output, torch.cat([prefix, patches], dim=1))


@pytest.mark.parametrize("family", ["swin", "swinv2", "resnet", "resnet_gelu", "convnext", "poolformer"])
def test_a_stage_puts_out_what_its_last_block_does(family: str) -> None:
    model = build(family)
    with torch.no_grad(), block_outputs(model) as outputs:
        theirs = model.forward_intermediates(pictures(model), intermediates_only=True)
    stages = {name.rpartition(".")[0]: output for name, output in outputs.items()}  # the last one of each
    for output, maps in zip(list(stages.values())[::-1], theirs[::-1], strict=False):
        assert torch.equal(output.permute(0, 3, 1, 2) if family.startswith("swin") else output, maps)


PARTED = ["vit", "deit_distilled", "deit3", "cait", "swin", "swinv2", "levit", "beit", "eva", "siglip", "differential"]


@pytest.mark.parametrize("family", PARTED)
def test_attention_and_mlp_together_are_the_block(family: str) -> None:
    model = build(family)
    x, last = pictures(model), len(blocks(model)) - 1
    with torch.no_grad():
        with lesion(model, last):
            block = model(x)
        with lesion(model, last, "mlp"):
            without_mlp = model(x)
            with lesion(model, last, "attention"):
                torch.testing.assert_close(model(x), block)
        with lesion(model, last, "attention"):
            without_attention = model(x)
        different = [block, without_mlp, without_attention, model(x)]
    assert all((a - b).abs().max() > 1e-6 for i, a in enumerate(different) for b in different[:i])


# ------------------------------------------------------------------------------------------------------------ closed forms


def test_a_vit_without_blocks_is_embedding_norm_and_head() -> None:
    model = tiny("vit")
    x = pictures(model)
    with torch.no_grad(), lesion(model, range(2)):
        tokens = model.pos_embed + torch.cat([model.cls_token.expand(2, -1, -1), model.patch_embed(x)], dim=1)
        torch.testing.assert_close(model(x), model.head(model.norm(tokens)[:, 0]))


def silent(module: nn.Module) -> None:
    for p in module.parameters():
        p.data.zero_()


@pytest.mark.parametrize(
    ("family", "part", "last"),
    [
        ("vit", "attention", "attn.proj"),
        ("vit", "mlp", "mlp.fc2"),
        ("cait", "attention", "attn.proj"),
        ("xcit", "attention", "attn.proj"),
        ("xcit", "mlp", "mlp.fc2"),
        ("swin", "attention", "attn.proj"),
        ("swin", "mlp", "mlp.fc2"),
        ("swinv2", "attention", "norm1"),  # its norms come after: a branch without input still gives their bias
        ("swinv2", "mlp", "norm2"),
        ("beit", "attention", "attn.proj"),
        ("eva", "attention", "attn.proj"),
    ],
)
def test_a_cut_part_is_one_whose_last_layer_is_zero(family: str, part: str, last: str) -> None:
    model = tiny(family)
    zeroed = copy.deepcopy(model)
    for block in list(blocks(zeroed).values())[:2]:
        silent(block.get_submodule(last))
    with torch.no_grad(), lesion(model, [0, 1], part):
        torch.testing.assert_close(model(pictures(model)), zeroed(pictures(model)))


def test_a_poolformer_has_an_mlp_to_cut() -> None:
    model = build("poolformer")
    zeroed = copy.deepcopy(model)
    silent(next(iter(blocks(zeroed).values())).mlp)
    with torch.no_grad(), lesion(model, 0, "mlp"):
        torch.testing.assert_close(model(pictures(model)), zeroed(pictures(model)))


# --------------------------------------------------------------------------------------------------------------- in company


def test_names_and_numbers_hold_through_a_classifier() -> None:
    model = tiny("vit")
    wrapped = Classifier(model, mean=(0.5,), std=(0.5,)).double()
    with torch.no_grad(), block_outputs(wrapped) as outputs, lesion(wrapped, 1):
        wrapped(pictures(model))
    assert list(outputs) == ["backbone.blocks.0", "backbone.blocks.1"]
    assert torch.equal(outputs["backbone.blocks.0"], outputs["backbone.blocks.1"])


def test_outputs_are_those_of_the_latest_pass_and_carry_gradients_to_a_tapped_scale() -> None:
    model, scale = tiny("vit"), torch.ones(2, dtype=torch.float64, requires_grad=True)
    x = pictures(model)
    with block_outputs(model) as outputs, AttentionTap(model, scale):
        model(x[:1])
        model(x)
        distance = sum(output.norm(dim=(1, 2)).sum() for output in outputs.values())
    assert [len(output) for output in outputs.values()] == [2, 2]
    assert (torch.autograd.grad(distance, scale)[0] != 0).all()


@pytest.mark.parametrize("surgery", [lambda model: lesion(model, 0), lambda model: AttentionTap(model, 0.0)])
def test_compiled_code_is_operated_on_too(surgery: Callable[[nn.Module], AbstractContextManager]) -> None:
    model = tiny("vit")
    x, compiled = pictures(model), torch.compile(model, backend="eager")
    with torch.no_grad():
        plain = compiled(x)
        with surgery(model):
            inside, expected = compiled(x), model(x)
        assert torch.equal(compiled(x), plain)
    torch.testing.assert_close(inside, expected)
    assert (inside - plain).abs().max() > 1e-3


# ---------------------------------------------------------------------------------------------------------------- refusals


def test_nothing_is_left_after_an_error() -> None:
    model = tiny("swin")
    before = traces(model)
    fails = model.norm.register_forward_pre_hook(lambda module, args: 1 / 0)
    with pytest.raises(ZeroDivisionError), block_outputs(model), lesion(model, [0, 1, 2]):
        model(pictures(model))
    fails.remove()
    assert traces(model) == before


@pytest.mark.parametrize(
    ("family", "given", "message"),
    [
        ("vit", {"block": 2}, "block: 2; accepted: 0 to 1 for model vit_tiny_patch16_224"),
        ("vit", {"block": [0, -1]}, "block: -1"),
        ("vit", {"block": 0, "part": "head"}, "unknown part of a block 'head'"),
        ("resnet", {"block": 0, "part": "attention"}, r"model resnet18: layer1.0 \(BasicBlock\) has no part 'attention'"),
        (
            "convnext",
            {"block": 0, "part": "mlp"},
            r"model convnext_atto: stages.0.blocks.0 \(ConvNeXtBlock\) has no part 'mlp'",
        ),
        ("poolformer", {"block": 0, "part": "attention"}, "model MetaFormer: stages.0.blocks.0 .* has no part 'attention'"),
        ("caformer", {"block": 0, "part": "attention"}, "model MetaFormer: stages.0.blocks.0 .* has no part 'attention'"),
    ],
)
def test_what_cannot_be_cut_is_refused(family: str, given: dict[str, Any], message: str) -> None:
    model = build(family)
    before = traces(model)
    with pytest.raises(UserError, match=message), lesion(model, **given):
        pass
    assert traces(model) == before


def test_models_whose_blocks_are_not_known_are_refused_by_name() -> None:
    model = timm.create_model("densenet121", growth_rate=4, num_classes=2)
    for operate in (block_outputs(model), lesion(model, 0)):
        with pytest.raises(UserError, match="model densenet121: no blocks found"), operate:
            pass


def test_a_block_without_a_skip_is_refused_when_it_runs() -> None:
    model = timm.create_model("mobilenetv3_small_050", num_classes=2).eval()
    with lesion(model, 0), pytest.raises(UserError, match="ran without a skip"):
        model(torch.rand(1, 3, 32, 32))


def test_checkpointed_blocks_are_refused() -> None:
    model = tiny("vit")
    model.set_grad_checkpointing()
    for operate in (block_outputs(model), lesion(model, 0)):
        with pytest.raises(UserError, match=r"model vit_tiny_patch16_224: grad_checkpointing"), operate:
            pass


def test_a_model_of_which_blocks_are_the_lesser_part_is_refused() -> None:
    """HRNet's first stage looks like a ResNet's; a lesion of all blocks that are found would leave the most in place."""
    with pytest.raises(UserError, match=r"hrnet_w18_small: most of it is outside of layer1\.0"):
        blocks(timm.create_model("hrnet_w18_small", num_classes=5))


def test_of_several_things_that_a_block_puts_out_the_tensor_counts() -> None:
    model = timm.create_model("mvitv2_tiny", img_size=64, num_classes=5).eval()
    with block_outputs(model) as outputs, torch.no_grad():
        model(torch.rand(2, 3, 64, 64))
    assert [output.dim() for output in outputs.values()] == [3] * len(outputs)
