"""Optimisers: what is decayed, how fast each layer learns, and that Lion is Lion."""

import math

import pytest
import torch

from robustvit.config import Optim
from robustvit.errors import UserError
from robustvit.models import Classifier, ModelSpec, build
from robustvit.objectives import Standard
from robustvit.training.checkpoint import State, load_state, save_state
from robustvit.training.optimizer import make_optimizer, set_lr
from robustvit.training.schedule import Phase


def settings(optimizer: torch.optim.Optimizer, model: Classifier, key: str) -> dict[str, float]:
    """A setting of each parameter, by its name in the backbone."""
    names = {id(p): name for name, p in model.backbone.named_parameters()}
    return {names[id(p)]: group[key] for group in optimizer.param_groups for p in group["params"]}


@pytest.mark.parametrize("layer_decay", [None, 0.5])
def test_weights_are_decayed_but_not_norms_biases_positions_and_class_tokens(tiny_vit: Classifier, layer_decay: float | None):
    optimizer = make_optimizer(Optim(weight_decay=0.3, layer_decay=layer_decay), tiny_vit)
    for name, decay in settings(optimizer, tiny_vit, "weight_decay").items():
        exempt = name.endswith("bias") or "norm" in name or name in ("pos_embed", "cls_token")
        assert decay == (0.0 if exempt else 0.3), name


def test_each_layer_learns_at_its_power_of_the_rate(tiny_vit: Classifier):
    optimizer = make_optimizer(Optim(layer_decay=0.5), tiny_vit)
    set_lr(optimizer, 0.08)
    rates, depth = settings(optimizer, tiny_vit, "lr"), len(tiny_vit.backbone.blocks)
    assert rates.keys() == {name for name, _ in tiny_vit.backbone.named_parameters()}
    for name, rate in rates.items():
        part, place = name.split(".")[:2] if "." in name else (name, "")
        layer = {"blocks": place, "fc_norm": depth, "head": depth}.get(part, -1)  # what comes before the blocks
        assert rate == pytest.approx(0.08 * 0.5 ** (depth - int(layer))), name


@pytest.mark.parametrize("name", ["poolformer_s12_stride2_32", "vit_tiny_patch4_32", "resnet_mini", "xcit_mini"])
def test_layer_decay_tells_layers_of_our_own_models_apart(name: str):
    with torch.device("meta"):
        optimizer = make_optimizer(Optim(layer_decay=0.5), build(ModelSpec(name)))
    assert len({group["lr_scale"] for group in optimizer.param_groups}) > 3


def test_layer_decay_that_would_do_nothing_is_refused():
    flat = Classifier(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)), 10)
    with pytest.raises(UserError, match=r"optim\.layer_decay: 0\.5; .*does not tell its layers"):
        make_optimizer(Optim(layer_decay=0.5), flat)


def test_without_layer_decay_all_learn_at_the_rate(tiny_vit: Classifier):
    optimizer = make_optimizer(Optim(), tiny_vit)
    set_lr(optimizer, 0.08)
    assert set(settings(optimizer, tiny_vit, "lr").values()) == {0.08}


def test_frozen_parameters_are_in_no_group_and_the_others_keep_their_layer(tiny_vit: Classifier):
    Phase(Standard(), 1, trainable="blocks.0, head").select_parameters(tiny_vit)
    optimizer = make_optimizer(Optim(layer_decay=0.5), tiny_vit)
    scales, depth = settings(optimizer, tiny_vit, "lr_scale"), len(tiny_vit.backbone.blocks)
    assert {name.split(".")[0] for name in scales} == {"blocks", "head"}
    assert scales["blocks.0.attn.qkv.weight"] == 0.5**depth
    assert scales["head.weight"] == 1.0


def test_lion_steps_by_the_sign_of_its_interpolated_momentum():
    """Chen et al., 2023, algorithm 2, over three steps by hand."""
    model = build(ModelSpec("vit_nano", channels=1, args={"depth": 1}))
    Phase(Standard(), 1, trainable="head.weight").select_parameters(model)
    optim = Optim("lion", lr=0.01, weight_decay=0.5, args={"betas": [0.9, 0.99]})
    optimizer, weight = make_optimizer(optim, model), model.backbone.head.weight
    expected, momentum = weight.detach().clone().double(), torch.zeros_like(weight).double()
    for step in range(3):
        gradient = torch.randn(weight.shape, generator=torch.Generator().manual_seed(step))
        weight.grad = gradient.clone()
        optimizer.step()
        expected -= 0.01 * ((0.9 * momentum + 0.1 * gradient).sign() + 0.5 * expected)
        momentum = 0.99 * momentum + 0.01 * gradient
    torch.testing.assert_close(weight.detach().double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["lion", "adamw", "momentum"])
def test_state_with_layer_decay_survives_a_checkpoint(tiny_vit: Classifier, kind: str, tmp_path):
    optim = Optim(kind, layer_decay=0.75)

    def step(optimizer: torch.optim.Optimizer) -> None:
        for i, p in enumerate(tiny_vit.parameters()):
            p.grad = torch.full_like(p, 0.1 * (-1) ** i)
        optimizer.step()

    optimizer = make_optimizer(optim, tiny_vit)
    set_lr(optimizer, 1e-3)
    step(optimizer)
    save_state(tmp_path / "state.safetensors", State("recipe", "data", step=1), tiny_vit, {}, optimizer)
    weights = {name: tensor.clone() for name, tensor in tiny_vit.state_dict().items()}
    step(optimizer)
    onward = {name: tensor.clone() for name, tensor in tiny_vit.state_dict().items()}
    tiny_vit.load_state_dict(weights)
    again = make_optimizer(optim, tiny_vit)
    again.load_state_dict(load_state(tmp_path / "state.safetensors").optimizer)
    step(again)
    assert all(torch.equal(tensor, onward[name]) for name, tensor in tiny_vit.state_dict().items())


@pytest.mark.parametrize("bad", [0.0, -0.5, 1.5, math.nan])
def test_layer_decay_outside_its_range_is_refused(bad: float):
    with pytest.raises(UserError, match=r"optim\.layer_decay: .*null, or a number above 0"):
        Optim(layer_decay=bad)
