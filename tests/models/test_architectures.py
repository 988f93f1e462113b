"""Models that timm lacks: a contract over all of them, and each family against timm's own network or one written out here."""

import sys

import pytest
import timm
import torch
from timm.models.convnext import ConvNeXt
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, relu, silu

from robustvit import listing
from robustvit.errors import UserError
from robustvit.models import ModelSpec, build
from robustvit.models.architectures import OWN
from robustvit.models.architectures.hierarchical import POOLFORMERS, poolformer, small_patch_convnext
from robustvit.models.architectures.wide_resnet import wide_resnet
from robustvit.models.architectures.xcit import small_patch_xcit

MINI = ["vit_mini", "resnet_mini", "xcit_mini"]


def side(name: str) -> int:
    if name == "vit_nano":
        return 8
    return 32 if name.endswith("_32") or name in MINI else 224


def seeded(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def scrambled(model: nn.Module) -> nn.Module:
    """In eval mode with no weight left at a value that hides a difference, such as a layer scale of 1e-5."""
    generator = torch.Generator().manual_seed(1)
    for tensor in model.state_dict().values():
        if tensor.ndim > 1:
            tensor.copy_(0.1 * torch.randn(tensor.shape, generator=generator))
        elif tensor.is_floating_point():  # of norms, where variances have to be positive
            tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
    return model.eval()


@pytest.mark.parametrize("name", OWN)
def test_images_of_the_size_in_the_name_become_logits(name: str) -> None:
    size = side(name)
    with torch.device("meta"), torch.no_grad():
        model = build(ModelSpec(name, num_classes=7, channels=1)).eval()
        assert model(torch.empty(2, 1, size, size)).shape == (2, 7)
    assert model.input_size in (None, (1, size, size))
    assert OWN[name].endswith(".")


def test_no_name_hides_one_of_timms_own() -> None:
    theirs = [module for name, module in list(sys.modules.items()) if name.startswith("timm.models")]
    assert not [name for name in OWN for module in theirs if hasattr(module, name)]


def test_they_are_listed_by_name() -> None:
    listed = list(listing.models("xcit*"))
    assert {"xcit_mini", "xcit_small_12_p4_32", "xcit_large_12_p2_32", "xcit_small_12_p16_224"} <= set(listed)


def test_none_claims_published_weights() -> None:
    with pytest.raises(ValueError, match="no published weights"):
        timm.create_model("xcit_mini", pretrained=True)


@pytest.mark.parametrize("name", MINI)
def test_the_minis_fit_into_six_megabytes_and_pass_gradients_to_the_image(name: str) -> None:
    model = build(ModelSpec(name)).eval()
    assert sum(2 * weight.numel() for weight in model.state_dict().values()) < 6e6
    x = seeded((2, 3, 32, 32)).requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).square().sum(), x)
    assert (gradient.flatten(1).abs().amax(1) > 0).all()


@pytest.mark.parametrize(("patch", "strides"), [(16, 2222), (8, 1222), (4, 1122), (2, 1112)])
def test_an_xcit_for_smaller_patches_changes_strides_from_the_first_convolution_on(patch: int, strides: int) -> None:
    model = small_patch_xcit(32, patch, embed_dim=32, depth=1, num_heads=2)
    convolutions = [module for module in model.patch_embed.modules() if isinstance(module, nn.Conv2d)]
    assert [c.stride[0] for c in convolutions] == [int(digit) for digit in str(strides)]
    tokens, grid = model.patch_embed(seeded((1, 3, 32, 32)))
    assert grid == (32 // patch, 32 // patch)
    assert tokens.shape[1] == model.patch_embed.num_patches
    assert (model.patch_embed.img_size, model.patch_embed.patch_size) == ((32, 32), patch)


def test_an_xcit_with_its_own_patches_is_timms() -> None:
    theirs = scrambled(timm.create_model("xcit_nano_12_p16_224", num_classes=4, img_size=32, depth=2))
    ours = small_patch_xcit(32, 16, embed_dim=128, num_heads=4, depth=2, num_classes=4).eval()
    ours.load_state_dict(theirs.state_dict())
    x = seeded((2, 3, 32, 32))
    torch.testing.assert_close(ours(x), theirs(x))


def test_a_patch_size_that_four_halvings_do_not_make_is_an_error() -> None:
    with pytest.raises(UserError, match="patch_size: 3; accepted: 1, 2, 4, 8, 16"):
        build(ModelSpec("xcit_mini", args={"patch_size": 3}))


def test_a_caller_changes_the_shape() -> None:
    assert build(ModelSpec("xcit_mini", args={"patch_size": 8, "depth": 1})).backbone.patch_embed.num_patches == 16


@pytest.mark.parametrize(("name", "grid"), [("resnet18_32", 4), ("resnet_mini", 4), ("wrn_28_10", 8)])
def test_residual_networks_keep_small_images_large(name: str, grid: int) -> None:
    with torch.device("meta"):
        assert build(ModelSpec(name)).backbone.forward_features(torch.empty(1, 3, 32, 32)).shape[-2:] == (grid, grid)


@pytest.mark.parametrize(("make", "grid"), [(1, 4), (2, 2)])
def test_hierarchical_networks_keep_small_images_from_shrinking_to_one_token(make: int, grid: int) -> None:
    with torch.device("meta"):
        x = torch.empty(1, 3, 32, 32)
        for name in (f"convnext_tiny_patch{make}_32", f"poolformer_s12_stride{make}_32"):
            assert build(ModelSpec(name)).backbone.forward_features(x).shape[2:] == (grid, grid)
        swin = build(ModelSpec(f"swin_tiny_patch{make}_window4_32")).backbone
        assert swin.forward_features(x).shape[1:3] == (grid, grid)


def test_a_convnext_with_its_own_patches_is_timms() -> None:
    shape = {"depths": (1, 1, 1, 1), "dims": (8, 8, 16, 16), "num_classes": 4}
    theirs, ours = scrambled(ConvNeXt(**shape)), small_patch_convnext(4, **shape).eval()
    ours.load_state_dict(theirs.state_dict())
    x = seeded((2, 3, 32, 32))
    torch.testing.assert_close(ours(x), theirs(x))


def test_a_poolformer_with_its_own_stride_is_timms() -> None:
    theirs = scrambled(timm.create_model("poolformer_s12", num_classes=4))
    ours = poolformer(**POOLFORMERS["s12"], num_classes=4).eval()
    ours.load_state_dict(theirs.state_dict())
    x = seeded((2, 3, 64, 64))
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize(("activation", "act"), [("relu", relu), ("silu", silu)])
def test_a_wide_resnet_is_the_one_written_out(activation: str, act) -> None:
    model = scrambled(wide_resnet(depth=16, width=1, num_classes=4, act_layer=activation))
    weights, x = model.state_dict(), seeded((2, 3, 32, 32))

    def normed(h: Tensor, name: str) -> Tensor:
        mean, var, weight, bias = (weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return act(batch_norm(h, mean, var, weight, bias))

    h = conv2d(x, weights["stem.conv.weight"], padding=1)
    for stage in range(3):
        for block in range(2):
            at, stride = f"stages.{stage}.blocks.{block}", 2 if stage > 0 and block == 0 else 1
            before = normed(h, f"{at}.norm1")
            inner = normed(conv2d(before, weights[f"{at}.conv1.weight"], stride=stride, padding=1), f"{at}.norm2")
            shortcut = weights.get(f"{at}.downsample.conv.weight")  # of the activated input, and only where shapes change
            assert (shortcut is not None) == (stage > 0 and block == 0)
            h = conv2d(inner, weights[f"{at}.conv2.weight"], padding=1) + (
                h if shortcut is None else conv2d(before, shortcut, stride=stride)
            )
    pooled = normed(h, "norm").mean((2, 3))
    expected = pooled @ weights["head.fc.weight"].flatten(1).T + weights["head.fc.bias"]
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=0)


def test_a_wide_resnet_of_an_impossible_depth_is_an_error() -> None:
    with pytest.raises(UserError, match="depth: 29; accepted: 10, 16"):
        build(ModelSpec("wrn_28_10", args={"depth": 29}))
