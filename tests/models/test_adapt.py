"""Weights taken to another resolution and patch size: where a closed form says that the function stays, it stays."""

from collections.abc import Callable

import pytest
import timm
import torch
from timm.models.cait import Cait
from timm.models.convnext import ConvNeXt
from timm.models.resnet import BasicBlock, ResNet
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn.functional import conv2d, interpolate

from robustvit.errors import UserError
from robustvit.models.adapt import adapt, centre_of_kernel, positions, relative_positions, sum_of_blocks
from robustvit.models.architectures.hierarchical import poolformer, small_patch_convnext
from robustvit.models.architectures.resnet import small_image_resnet
from robustvit.models.architectures.xcit import small_patch_xcit

Make = Callable[..., nn.Module]

VIT = {"embed_dim": 16, "depth": 2, "num_heads": 2}
STAGES = {"depths": (1, 1, 1, 1), "dims": (8, 8, 16, 16)}
WINDOWS = {"depths": (1, 1, 2, 1), "embed_dim": 8, "num_heads": (1, 1, 2, 2), "window_size": 4}


def vit(size: int, patch: int, **shape: object) -> nn.Module:
    return VisionTransformer(**{"img_size": size, "patch_size": patch, "num_classes": 5, **VIT, **shape})


def cait(size: int, patch: int, **shape: object) -> nn.Module:
    return Cait(**{"img_size": size, "patch_size": patch, "num_classes": 5, **VIT, **shape})


def swin(size: int, patch: int, **shape: object) -> nn.Module:
    return SwinTransformer(**{"img_size": size, "patch_size": patch, "num_classes": 5, **WINDOWS, **shape})


def convnext(size: int, patch: int, **shape: object) -> nn.Module:
    return small_patch_convnext(**{"patch_size": patch, "num_classes": 5, **STAGES, **shape})


def resnet(make: Make, **shape: object) -> nn.Module:
    return make(**{"block": BasicBlock, "layers": (1, 1, 1, 1), "channels": (8, 8, 8, 8), "num_classes": 5, **shape})


def xcit(size: int, patch: int, **shape: object) -> nn.Module:
    return small_patch_xcit(**{"img_size": size, "patch_size": patch, "num_classes": 5, **VIT, **shape})


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def scrambled(model: nn.Module, seed: int = 1) -> nn.Module:
    """In eval mode with no weight left at a value that hides a difference, such as a layer scale of 1e-5."""
    for number, parameter in enumerate(model.parameters()):
        parameter.copy_(0.5 * normal(*parameter.shape, seed=1000 * seed + number))
    return model.eval()


def repeated(x: Tensor, times: int) -> Tensor:
    return x.repeat_interleave(times, 2).repeat_interleave(times, 3)


@pytest.mark.parametrize(
    ("make", "sizes", "patches"),
    [(vit, (64, 16), (16, 4)), (cait, (64, 16), (16, 4)), (swin, (128, 32), (4, 1)), (convnext, (128, 64), (4, 2))],
)
def test_a_model_with_summed_patches_is_the_old_one_on_repeated_pixels(make: Make, sizes: tuple, patches: tuple) -> None:
    old, times = scrambled(make(sizes[0], patches[0])), patches[0] // patches[1]
    new = adapt(old, make(sizes[1], patches[1]).eval(), "sum")
    x = normal(3, 3, sizes[1], sizes[1])
    torch.testing.assert_close(new(x), old(repeated(x, times)), rtol=1e-4, atol=1e-4)
    assert (new(x)[0] - new(x)[1]).abs().max() > 1e-2  # not the same for any image


def test_summed_blocks_are_the_blocks_sums() -> None:
    kernel = normal(2, 3, 4, 6)
    summed = sum_of_blocks(kernel, (2, 2))
    for row in range(2):
        for column in range(2):
            block = kernel[:, :, 2 * row : 2 * row + 2, 3 * column : 3 * column + 3]
            torch.testing.assert_close(summed[:, :, row, column], block.sum((2, 3)))


@pytest.mark.parametrize(("size", "adapted"), [((3, 3), False), ((2, 6), True), ((8, 6), False)])
def test_a_kernel_is_only_summed_into_whole_blocks(size: tuple[int, int], adapted: bool) -> None:
    assert (sum_of_blocks(normal(1, 1, 4, 6), size) is not None) is adapted


def test_resampled_patches_embed_a_resized_patch_as_before() -> None:
    """The pseudo-inverse is exact where patches grow: resizing then loses nothing."""
    old = scrambled(vit(16, 4))
    new = adapt(old, vit(32, 8), "resample")
    patch = normal(5, 3, 4, 4)
    larger = interpolate(patch, size=(8, 8), mode="bicubic", antialias=True)
    torch.testing.assert_close(new.patch_embed.proj(larger), old.patch_embed.proj(patch), rtol=1e-4, atol=1e-4)


def test_resampled_patches_may_have_any_size() -> None:
    assert adapt(vit(32, 16), vit(32, 3), "resample").patch_embed.proj.weight.shape == (16, 3, 3, 3)


@pytest.mark.parametrize("adaptation", ["sum", "resample"])
@pytest.mark.parametrize("make", [vit, cait, swin, convnext, xcit])
def test_the_same_shape_changes_nothing(make: Make, adaptation: str) -> None:
    old, new = scrambled(make(32, 4)), scrambled(make(32, 4), seed=2)
    adapt(old, new, adaptation)
    assert all(torch.equal(weight, old.state_dict()[name]) for name, weight in new.state_dict().items())


@pytest.mark.parametrize("adaptation", ["sum", "resample"])
def test_positions_on_the_same_grid_stay_as_they_are(adaptation: str) -> None:
    embedding = normal(1, 1 + 14 * 14, 6)
    assert torch.equal(positions(embedding, (14, 14), adaptation, 197), embedding)


@pytest.mark.parametrize("prefix", [0, 1, 2])
def test_bilinear_positions_read_a_ramp_at_the_new_places(prefix: int) -> None:
    rows, columns = torch.meshgrid(torch.arange(14.0), torch.arange(14.0), indexing="ij")
    grid = torch.stack([rows, columns, torch.ones(14, 14)], 2).reshape(1, 196, 3)
    tokens = normal(1, prefix, 3)
    resized = positions(torch.cat([tokens, grid], 1), (8, 8), "sum", prefix + 64)
    assert torch.equal(resized[:, :prefix], tokens)
    places = (torch.arange(8) + 0.5) * 14 / 8 - 0.5  # centres of the new cells, in old cells
    rows, columns = torch.meshgrid(places, places, indexing="ij")
    expected = torch.stack([rows, columns, torch.ones(8, 8)], 2).reshape(1, 64, 3)
    torch.testing.assert_close(resized[:, prefix:], expected)


def test_bicubic_positions_keep_a_constant_and_the_order_of_places() -> None:
    rows, columns = torch.meshgrid(torch.arange(14.0), torch.full((14,), 2.0), indexing="ij")
    resized = positions(torch.stack([rows, columns], 2).reshape(1, 196, 2), (8, 8), "resample", 64).unflatten(1, (8, 8))
    torch.testing.assert_close(resized[..., 1], torch.full((1, 8, 8), 2.0))
    assert (resized[0, :, :, 0].diff(dim=0) > 0).all()
    torch.testing.assert_close(resized[0, :, 0], resized[0, :, 7])


def test_positions_of_another_number_of_class_tokens_do_not_fit() -> None:
    assert positions(normal(1, 197, 6), (8, 8), "sum", 64) is None


def test_a_relative_position_keeps_its_distance_in_tokens() -> None:
    table = normal(13 * 13, 2)
    smaller = relative_positions(table, (4, 4))
    for dy in range(-3, 4):
        for dx in range(-3, 4):
            assert torch.equal(smaller[(dy + 3) * 7 + dx + 3], table[(dy + 6) * 13 + dx + 6])


def test_a_larger_window_keeps_the_middle_of_its_relative_positions() -> None:
    table = normal(7 * 7, 2)
    larger = relative_positions(table, (7, 7))
    assert larger.shape == (13 * 13, 2)
    torch.testing.assert_close(larger[13 * 13 // 2], table[7 * 7 // 2])


def test_every_weight_of_a_swin_with_another_window_and_patch_is_taken_over() -> None:
    old, new = scrambled(swin(224, 4, window_size=7)), scrambled(swin(32, 1), seed=2)
    adapt(old, new)
    x = normal(2, 3, 32, 32)
    assert new(x).isfinite().all()
    same = [name for name, weight in new.state_dict().items() if weight.shape == old.state_dict()[name].shape]
    assert all(torch.equal(new.state_dict()[name], old.state_dict()[name]) for name in same)
    assert len(new.state_dict()) - len(same) == 1 + 5  # the patch kernel, and a table a block


def test_the_centre_of_a_kernel_answers_alike_to_a_pattern_that_lies_within_it() -> None:
    kernel = torch.zeros(4, 3, 7, 7)
    kernel[:, :, 2:5, 2:5] = normal(4, 3, 3, 3)
    x = normal(2, 3, 32, 32)
    old = conv2d(x, kernel, stride=2, padding=3)
    new = conv2d(x, centre_of_kernel(kernel, (3, 3)), padding=1)
    torch.testing.assert_close(new[:, :, ::2, ::2], old)


@pytest.mark.parametrize("size", [(4, 4), (9, 9)])
def test_a_kernel_without_that_centre_does_not_fit(size: tuple[int, int]) -> None:
    assert centre_of_kernel(normal(1, 1, 7, 7), size) is None


def test_a_residual_network_for_small_images_takes_over_all_but_the_rim_of_its_first_kernel() -> None:
    old, new = scrambled(resnet(ResNet)), resnet(small_image_resnet)
    adapt(old, new)
    assert torch.equal(new.conv1.weight, old.conv1.weight[:, :, 2:5, 2:5])
    rest = new.state_dict().keys() - {"conv1.weight"}
    assert all(torch.equal(new.state_dict()[name], old.state_dict()[name]) for name in rest)


@pytest.mark.parametrize("patch", [2, 4, 8])
def test_an_xcit_keeps_all_its_weights_and_only_looks_more_often(patch: int) -> None:
    old = scrambled(timm.create_model("xcit_nano_12_p16_224", num_classes=5, **VIT))
    new = adapt(old, xcit(32, patch).eval())
    assert all(torch.equal(weight, old.state_dict()[name]) for name, weight in new.state_dict().items())
    x = normal(1, 3, 32, 32)
    once, often = old.patch_embed.proj[0](x), new.patch_embed.proj[0](x)
    torch.testing.assert_close(often[:, :, ::2, ::2], once)
    assert new(x).isfinite().all()


def test_a_poolformer_keeps_all_its_weights() -> None:
    old, new = scrambled(poolformer(**STAGES, num_classes=5)), poolformer(stride=1, **STAGES, num_classes=5)
    adapt(old, new)
    assert all(torch.equal(weight, old.state_dict()[name]) for name, weight in new.state_dict().items())


@pytest.mark.parametrize("make", [vit, cait, swin, convnext, xcit])
@pytest.mark.parametrize("classes", [0, 9])
def test_the_classifier_starts_anew_where_class_counts_differ(make: Make, classes: int) -> None:
    old, new = scrambled(make(32, 4, num_classes=classes)), scrambled(make(32, 4), seed=2)
    before = {name: weight.clone() for name, weight in new.get_classifier().state_dict().items()}
    adapt(old, new)
    assert all(torch.equal(weight, before[name]) for name, weight in new.get_classifier().state_dict().items())
    rest = [name for name in new.state_dict() if name in old.state_dict() and not name.startswith("head")]
    assert len(rest) > 20
    assert all(torch.equal(new.state_dict()[name], old.state_dict()[name]) for name in rest)


def test_a_model_without_classifier_can_be_wanted() -> None:
    old = scrambled(vit(32, 4))
    new = adapt(old, vit(32, 4, num_classes=0))
    assert torch.equal(new.blocks[1].mlp.fc1.weight, old.blocks[1].mlp.fc1.weight)


def test_weights_in_half_precision_are_summed_in_full() -> None:
    old = scrambled(vit(64, 16))
    halved = adapt(vit(64, 16).half().eval().requires_grad_(False), vit(16, 4))
    assert halved.patch_embed.proj.weight.dtype == torch.float32
    rounded = old.half().patch_embed.proj.weight
    new = adapt(old, vit(16, 4))
    torch.testing.assert_close(new.patch_embed.proj.weight, sum_of_blocks(rounded.float(), (4, 4)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            vit(32, 4),
            vit(32, 4, depth=3),
            r"12 of its tensors cannot be adapted to VisionTransformer: blocks.2.\S+ \S+ is missing",
        ),
        (vit(32, 4, depth=3), vit(32, 4), r"12 of .*blocks.2.\S+ \S+ has no place"),
        (vit(32, 4), vit(32, 4, embed_dim=8), r"blocks.0.attn.proj.bias 16 cannot become 8; .*; …"),
        (vit(32, 4, in_chans=1), vit(32, 4), r"1 of .*patch_embed.proj.weight 16×1×4×4 cannot become 16×3×4×4"),
        (vit(32, 8), vit(32, 3), r"patch_embed.proj.weight 16×3×8×8 cannot become 16×3×3×3"),
        (vit(32, 4), vit(32, 8), r"patch_embed.proj.weight 16×3×4×4 cannot become 16×3×8×8"),
        (vit(32, 4, class_token=False, global_pool="avg"), vit(16, 4, global_pool="avg"), r"cls_token 1×1×16 is missing; pos"),
        (resnet(small_image_resnet), resnet(ResNet), r"1 of .*conv1.weight 64×3×3×3 cannot become 64×3×7×7"),
        (ConvNeXt(**STAGES, stem_type="overlap"), convnext(32, 4), r"ConvNeXt: .*stem"),
        (
            timm.create_model("xcit_nano_12_p8_224", **VIT),
            xcit(32, 4),
            r"patch_embed.proj.0.0.weight 4×3×3×3 cannot become 2×3×3×3",
        ),
    ],
)
def test_what_cannot_be_adapted_is_named(old: nn.Module, new: nn.Module, message: str) -> None:
    before = {name: weight.clone() for name, weight in new.state_dict().items()}
    with pytest.raises(UserError, match=message):
        adapt(old, new)
    assert all(torch.equal(weight, before[name]) for name, weight in new.state_dict().items())


def test_the_same_weights_with_another_activation_are_another_model() -> None:
    old, new = (timm.create_model("resnet_mini", channels=(8, 8, 8, 8), act_layer=act) for act in ("relu", "gelu"))
    with pytest.raises(UserError, match="its activation, ReLU, is not that of the model, GELU"):
        adapt(old, new)


def test_an_unknown_way_to_adapt_is_an_error() -> None:
    with pytest.raises(UserError, match="adaptation: 'crop'; accepted: sum, resample"):
        adapt(vit(32, 4), vit(32, 4), "crop")
