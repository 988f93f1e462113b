"""CUDA graphs change nothing but the time; only a GPU can show it, so elsewhere this is left out."""

import pytest
import torch
from torch import Tensor, nn

from robustvit.attacks import Queries
from robustvit.attacks.losses import cross_entropy
from robustvit.attacks.replay import Replay
from robustvit.models import ModelSpec, build

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def batch(count: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(count)
    return torch.rand(count, 3, 32, 32, device="cuda"), torch.randint(0, 10, (count,), device="cuda")


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("name", ["vit_mini", "xcit_mini", "resnet_mini"])
def test_answers_and_gradients_are_the_plain_ones(name: str, precision: str) -> None:
    model = build(ModelSpec(name)).cuda().eval().requires_grad_(False)
    plain, replayed = Queries(model, precision=precision), Queries(model, precision=precision, replay=Replay(after=1))
    tolerance = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}[precision]
    for count in (37, 33, 40, 5, 36, 34, 39):  # all but one share a graph
        x, y = batch(count)
        torch.testing.assert_close(replayed(x), plain(x), rtol=tolerance, atol=tolerance)
        ours, theirs = (ask.gradient(x, cross_entropy, y) for ask in (replayed, plain))
        torch.testing.assert_close(ours.loss, theirs.loss, rtol=tolerance, atol=tolerance)
        scale = float(theirs.grad.abs().amax())
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=tolerance * 5 * scale)
    assert len(replayed.replay.graphs) == 2
    assert not replayed.replay.refused


class Random(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :10] + torch.randn(10).to(x.device)


class Waiting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :10] * float(x.sum())


@pytest.mark.parametrize("model", [Random(), Waiting()], ids=["random", "waits"])
def test_what_cannot_be_replayed_is_asked_plainly_and_says_so(model: nn.Module, capsys: pytest.CaptureFixture[str]) -> None:
    ask = Queries(model, replay=Replay(after=1))
    for _ in range(4):
        assert ask(batch(8)[0]).isfinite().all()
    assert ask.replay.refused
    assert capsys.readouterr().err.startswith("cuda graphs: not for this model")
