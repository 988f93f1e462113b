"""Perturbed weights: how far, which, against the authors' procedure, and that nothing stays behind."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustvit.errors import UserError
from robustvit.models import Classifier
from robustvit.objectives import AWP, Standard
from robustvit.objectives.awp import perturbed_weights

Images = tuple[Tensor, Tensor]


def loss_of(model: nn.Module, images: Images) -> Callable[[], Tensor]:
    x, y = images
    return lambda: Standard().loss(model, x, x, y).value


def bits(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def with_batch_norm() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10)
    return nn.Sequential(*layers).train()


def test_a_linear_loss_moves_the_weight_along_its_slope_by_gamma_times_its_norm():
    layer, slope = nn.Linear(3, 2), torch.tensor([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]])
    before = layer.weight.detach().clone()
    with perturbed_weights(layer, 0.1, [lambda: (layer.weight * slope).sum()]):
        torch.testing.assert_close(layer.weight.detach(), before + 0.1 * before.norm() * slope / 5)
    assert torch.equal(layer.weight.detach(), before)


def test_each_weight_moves_by_gamma_of_its_norm_and_nothing_else_moves(tiny_vit: Classifier, images: Images):
    before = bits(tiny_vit)
    with perturbed_weights(tiny_vit, 0.005, [loss_of(tiny_vit, images)]):
        moved = {name: tensor - before[name] for name, tensor in tiny_vit.state_dict().items()}
        moved = {name: change.clone() for name, change in moved.items() if change.any()}
    weights = {name for name, p in tiny_vit.named_parameters() if p.dim() > 1} - {"backbone.pos_embed", "backbone.cls_token"}
    assert moved.keys() == weights
    for name, change in moved.items():
        assert float(change.norm() / before[name].norm()) == pytest.approx(0.005, rel=1e-3), name


def test_the_loss_is_higher_inside(trained_vit: Classifier, images: Images):
    loss = loss_of(trained_vit, images)
    values = [float(loss().detach())]
    for gamma in (0.001, 0.005, 0.02):
        with perturbed_weights(trained_vit, gamma, [loss]):
            values.append(float(loss().detach()))
    assert values == sorted(values)
    assert values[1] > values[0]


def test_frozen_weights_do_not_move(tiny_vit: Classifier, images: Images):
    for name, parameter in tiny_vit.named_parameters():
        parameter.requires_grad_("head" in name)
    before = bits(tiny_vit)
    with perturbed_weights(tiny_vit, 0.01, [loss_of(tiny_vit, images)]):
        changed = {name for name, tensor in tiny_vit.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"backbone.head.weight"}


def test_it_is_the_perturbation_of_the_authors_procedure(images: Images):
    """They take an SGD step upwards on a copy, rescale the change of each weight to the weight's norm, and add γ of it."""
    model, gamma = with_batch_norm().double(), 0.01
    x, y = images[0].double(), images[1]
    proxy = copy.deepcopy(model)
    F.cross_entropy(proxy(x), y).neg().backward()
    torch.optim.SGD(proxy.parameters(), lr=0.01).step()
    expected = {}
    for (name, weight), stepped in zip(model.named_parameters(), proxy.parameters(), strict=True):
        own, change = weight.detach().clone(), (stepped - weight).detach()
        expected[name] = own + gamma * own.norm() / change.norm() * change if own.dim() > 1 else own
    with perturbed_weights(model, gamma, [lambda: F.cross_entropy(model(x), y)]):
        for name, weight in model.named_parameters():
            torch.testing.assert_close(weight.detach(), expected[name])


def test_micro_batches_perturb_like_the_whole_batch(images: Images):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).double()
    x, y = images[0].double(), images[1]
    inside = []
    for count in (1, 4):
        losses = [lambda a=a, b=b: F.cross_entropy(model(a), b) for a, b in zip(x.chunk(count), y.chunk(count), strict=True)]
        with perturbed_weights(model, 0.01, losses):
            inside.append(model[1].weight.detach().clone())
    torch.testing.assert_close(inside[0], inside[1])


def test_gradients_are_averaged_before_they_are_followed():
    layer, other = nn.Linear(2, 2), torch.tensor([[0.0, 4.0], [0.0, 0.0]])
    before, own = layer.weight.detach().clone(), torch.tensor([[3.0, 0.0], [0.0, 0.0]])
    with perturbed_weights(layer, 0.1, [lambda: (layer.weight * own).sum()], lambda gradient: gradient + other):
        torch.testing.assert_close(layer.weight.detach(), before + 0.1 * before.norm() * (own + other) / 5)


def test_without_gamma_no_loss_is_asked_and_no_bit_moves(tiny_vit: Classifier):
    before = bits(tiny_vit)

    def never() -> Tensor:
        raise AssertionError("asked")

    with perturbed_weights(tiny_vit, 0.0, [never]):
        assert same_bits(before, bits(tiny_vit))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_bit_returns(tiny_vit: Classifier, images: Images, dtype: torch.dtype):
    model = tiny_vit.to(dtype)
    x, y = images[0].to(dtype), images[1]
    before = bits(model)
    for _ in range(3):
        with perturbed_weights(model, 0.3, [loss_of(model, (x, y))]):
            assert not same_bits(before, bits(model))
    assert same_bits(before, bits(model))


def test_every_bit_returns_after_an_error_inside_or_in_the_ascent(images: Images):
    model = with_batch_norm()
    before = bits(model)
    with pytest.raises(KeyboardInterrupt), perturbed_weights(model, 0.01, [loss_of(model.eval(), images)]):
        raise KeyboardInterrupt
    assert same_bits(before, bits(model.train()))

    def breaks() -> Tensor:
        model(images[0])
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"), perturbed_weights(model, 0.01, [breaks]):
        pass
    assert same_bits(before, bits(model))


def test_the_ascent_leaves_running_statistics_and_gradients_alone(images: Images):
    model = with_batch_norm()
    before = bits(model)
    model[4].weight.grad = torch.ones_like(model[4].weight)
    with perturbed_weights(model, 0.01, [loss_of(model, images)]):
        assert torch.equal(model[1].running_mean, before["1.running_mean"])
        assert model[1].num_batches_tracked == 0
        assert [p.grad is None for p in model.parameters()] == [True] * 4 + [False, True]
        assert torch.equal(model[4].weight.grad, torch.ones_like(model[4].weight))
        model(images[0])
    assert model[1].num_batches_tracked == 1  # what the training step itself does stays


def test_gradients_taken_inside_are_those_at_the_perturbed_weights():
    """L = ½‖w‖²: the gradient is w, so the perturbed weight is (1 + γ)·w, and so is the gradient there."""
    layer = nn.Linear(3, 2)
    before = layer.weight.detach().clone()
    with perturbed_weights(layer, 0.2, [lambda: layer.weight.square().sum() / 2]):
        (layer.weight.square().sum() / 2).backward()
    torch.testing.assert_close(layer.weight.grad, 1.2 * before)
    assert torch.equal(layer.weight.detach(), before)


def test_a_weight_that_the_loss_does_not_reach_stays():
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    before = bits(model)
    with perturbed_weights(model, 0.1, [lambda: model[0].weight.sum() + 0 * model[1].weight.sum()]):
        assert torch.equal(model[1].weight.detach(), before["1.weight"])
        assert not torch.equal(model[0].weight.detach(), before["0.weight"])
    with perturbed_weights(model, 0.1, [lambda: model[0].weight.sum()]):
        assert torch.equal(model[1].weight.detach(), before["1.weight"])


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_only_the_direction_of_the_gradient_counts(size: float):
    """Squares of such gradients underflow or overflow in float32."""
    layer = nn.Linear(2, 2)
    before = layer.weight.detach().clone()
    with perturbed_weights(layer, 0.1, [lambda: (layer.weight * size).sum()]):
        torch.testing.assert_close(layer.weight.detach(), before + 0.1 * before.norm() / 2)


def test_a_gradient_that_is_not_a_number_shows_in_the_loss_and_not_in_the_weights_afterwards():
    layer = nn.Linear(2, 2)
    before = bits(layer)
    with perturbed_weights(layer, 0.1, [lambda: (layer.weight * math.nan).sum()]):
        assert layer(torch.ones(1, 2)).isnan().all()
    assert same_bits(before, bits(layer))


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"gamma": -0.1}, "gamma: -0.1"), ({"gamma": math.nan}, "gamma: nan"), ({"start_epoch": -1}, "start_epoch: -1")],
)
def test_settings_that_mean_nothing_are_refused(fields: dict[str, float], message: str):
    with pytest.raises(UserError, match=message):
        AWP(**fields)
