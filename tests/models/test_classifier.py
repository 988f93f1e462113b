"""Classifier: normalisation inside, models from modules and names, and the fingerprint that says which model it was."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from robustvit.errors import UserError
from robustvit.models import Classifier, ModelSpec, build, fingerprint, load_model
from robustvit.training.checkpoint import save_weights


def test_normalisation_happens_inside() -> None:
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)
    x = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    seen = Classifier(nn.Identity(), mean=mean, std=std)(x)
    for channel in range(3):
        torch.testing.assert_close(seen[:, channel], (x[:, channel] - mean[channel]) / std[channel])


def test_one_mean_serves_all_channels() -> None:
    x = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(Classifier(nn.Identity(), mean=(0.5,), std=(0.5,))(x), 2 * x - 1)


def test_a_built_model_maps_images_to_logits_and_knows_its_shape(images: tuple[Tensor, Tensor]) -> None:
    model = build(ModelSpec("vit_nano", num_classes=7, channels=1))
    assert model(images[0]).shape == (16, 7)
    assert (model.num_classes, model.input_size) == (7, (1, 8, 8))
    assert sum(p.numel() for p in model.parameters()) < 300_000


def test_a_convolutional_network_insists_on_no_size() -> None:
    assert build(ModelSpec("resnet18")).input_size is None


def test_normalisation_is_not_among_the_weights(tiny_vit: Classifier) -> None:
    assert tiny_vit.state_dict().keys() == {f"backbone.{name}" for name in tiny_vit.backbone.state_dict()}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"num_classes": 1}, "model.num_classes: 1"),
        ({"mean": (0.1, 0.2)}, "model.mean"),
        ({"std": (0.1, 0.2)}, "model.std"),
        ({"std": (0.0,)}, "model.std"),
    ],
)
def test_a_bad_specification_is_an_error_that_names_the_field(spec: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ModelSpec("vit_nano", **spec)


@pytest.mark.parametrize("make", [lambda name: build(ModelSpec(name)), load_model])
def test_an_unknown_model_is_an_error_with_the_nearest_name(make) -> None:
    with pytest.raises(UserError, match="'vit_nanno': did you mean 'vit_nano'"):
        make("vit_nanno")


def test_arguments_the_model_does_not_take_are_an_error() -> None:
    with pytest.raises(UserError, match=r"model.args: \{'wings': 2\} is not accepted by vit_nano"):
        build(ModelSpec("vit_nano", args={"wings": 2}))


def test_arguments_reach_the_model() -> None:
    assert len(build(ModelSpec("vit_nano", args={"depth": 1})).backbone.blocks) == 1


def test_a_module_is_wrapped_once_and_put_in_eval_mode() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))
    model = load_model(module)
    assert model.backbone is module
    assert not any(part.training for part in model.modules())
    assert load_model(model) is model


def test_weights_come_back_from_a_checkpoint_file(tmp_path: Path, images: tuple[Tensor, Tensor]) -> None:
    spec = ModelSpec("vit_nano", channels=1, mean=(0.3,), std=(0.4,))
    model = build(spec).eval()
    save_weights(tmp_path / "best.safetensors", spec, model.state_dict(), {})
    loaded = load_model(tmp_path / "best.safetensors")
    assert not loaded.training
    assert torch.equal(loaded(images[0]), model(images[0]))
    assert fingerprint(loaded) == fingerprint(model)


def test_weights_of_another_shape_of_model_are_refused(tmp_path: Path) -> None:
    spec = ModelSpec("vit_nano", channels=1)
    weights = build(spec).state_dict()
    save_weights(tmp_path / "shallow.safetensors", ModelSpec("vit_nano", channels=1, args={"depth": 2}), weights, {})
    save_weights(tmp_path / "wide.safetensors", ModelSpec("vit_nano", channels=3), weights, {})
    for name in ("shallow", "wide"):
        with pytest.raises(UserError, match="do not fit vit_nano"):
            load_model(tmp_path / f"{name}.safetensors")


def test_a_folder_that_is_no_run_and_a_run_without_checkpoint_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no recipe\.yaml"):
        load_model(tmp_path)
    (tmp_path / "recipe.yaml").write_text("model: {name: vit_nano}\n")
    with pytest.raises(UserError, match="no such checkpoint"):
        load_model(tmp_path)


def test_a_model_without_published_weights_says_so() -> None:
    with pytest.raises(UserError, match=r"'vit_nano': one of the project's own, .*accepted: a run, zoo:NAME"):
        load_model("vit_nano")


def test_a_run_that_is_yet_to_be_trained_says_how() -> None:
    with pytest.raises(UserError, match="train it first: robustvit train imagenet-light-eps8 --out runs/imagenet-light-eps8"):
        load_model("runs/imagenet-light-eps8")


@pytest.mark.parametrize(
    ("name", "args", "seen"),
    [
        ("deit_tiny_patch16_224", {}, ((3, 224, 224), 0.9)),
        ("deit_tiny_patch16_224", {"img_size": 64}, ((3, 64, 64), 1.0)),
        ("levit_128s", {}, ((3, 224, 224), 0.9)),
        ("resnet18", {}, (None, 0.95)),
        ("vit_mini", {}, ((3, 32, 32), 1.0)),
    ],
)
def test_the_size_and_crop_that_timm_publishes_travel_with_a_model_that_is_trained(name: str, args: dict, seen: tuple) -> None:
    with torch.device("meta"):
        model = build(ModelSpec(name, args=args))
    assert (model.input_size, model.crop) == seen


def test_the_fingerprint_changes_with_one_weight_a_buffer_and_the_mean(tiny_vit: Classifier) -> None:
    seen = {fingerprint(tiny_vit)}
    assert fingerprint(tiny_vit) in seen
    with torch.no_grad():
        tiny_vit.backbone.head.bias[0] += 1e-3
    seen.add(fingerprint(tiny_vit))
    tiny_vit.mean += 0.1
    seen.add(fingerprint(tiny_vit))
    tiny_vit.std *= 2
    seen.add(fingerprint(tiny_vit))
    assert len(seen) == 4


def test_the_fingerprint_takes_scalar_and_half_precision_tensors() -> None:
    model = nn.Sequential(nn.BatchNorm2d(2), nn.Linear(2, 2).bfloat16())
    before = fingerprint(model)
    model[0].num_batches_tracked += 1
    assert fingerprint(model) != before
