"""The twin: the same weights at every moment, another state."""

import pytest
import timm
import torch
from torch import Tensor, nn

from robustvit.attacks import PGD
from robustvit.models import ModelSpec, build
from robustvit.models.twin import Twin
from robustvit.threat import Threat

SPECS = {
    "transformer": ModelSpec("vit_nano", channels=1),
    "batch statistics": ModelSpec("resnet_mini", channels=1, args={"channels": (8, 8, 16, 16), "stem_width": 8}),
}


@pytest.fixture(params=SPECS)
def model(request: pytest.FixtureRequest) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build(SPECS[request.param]).train()


@pytest.fixture
def x() -> Tensor:
    return torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def test_it_takes_no_memory_of_its_own(model: nn.Module) -> None:
    twin = Twin(model).refresh()
    for own, others in ((model.parameters(), twin.parameters()), (model.buffers(), twin.buffers())):
        pairs = list(zip(own, others, strict=True))
        assert pairs
        assert all(a.data_ptr() == b.data_ptr() for a, b in pairs)


def test_it_is_frozen_and_in_eval_mode_while_the_model_trains(model: nn.Module) -> None:
    twin = Twin(model).refresh()
    assert not any(p.requires_grad for p in twin.parameters())
    assert not any(module.training for module in twin.modules())
    assert all(p.requires_grad for p in model.parameters())
    assert all(module.training for module in model.modules())


def test_it_follows_every_training_step(model: nn.Module, x: Tensor) -> None:
    twin = Twin(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    before = twin.refresh()(x)
    for _ in range(3):
        model(x).logsumexp(1).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    after = twin.refresh()(x)
    assert not torch.allclose(before, after)
    assert torch.equal(after, model.eval()(x))


def test_it_follows_loaded_weights(model: nn.Module, x: Tensor) -> None:
    twin = Twin(model)
    model.load_state_dict({name: w + 0.1 if w.is_floating_point() else w for name, w in model.state_dict().items()})
    assert torch.equal(twin.refresh()(x), model.eval()(x))


def test_an_attack_on_it_finds_what_an_attack_on_the_model_finds(model: nn.Module, x: Tensor) -> None:
    attack, y = PGD(Threat("linf", 0.1), steps=3, seed=0), torch.arange(4)
    assert torch.equal(attack(Twin(model).refresh(), x, y), attack(model, x, y))


def test_a_model_that_remembers_what_it_made_of_its_weights_forgets_it() -> None:
    """LeViT keeps its attention biases in eval mode until it is trained again."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = timm.create_model("levit_128s", num_classes=3)
        x = torch.rand(1, 3, 224, 224)
    twin = Twin(model)
    with torch.no_grad():
        twin.refresh()(x)
        for p in model.parameters():
            p.mul_(1.1)
        assert torch.equal(twin.refresh()(x), model.eval()(x))
