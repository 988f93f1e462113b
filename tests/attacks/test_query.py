"""How attacks ask a model: gradients, micro-batches, memory, precision, draws."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from robustvit.attacks import PGD, Queries
from robustvit.attacks.losses import cross_entropy
from robustvit.errors import UserError
from robustvit.models import Classifier
from robustvit.precision import arithmetic, exact
from robustvit.threat import Threat

Batch = tuple[Tensor, Tensor]


class Watched(nn.Module):
    """A linear model that notes the batches it is asked about and fails above `memory` images, as a full GPU does."""

    def __init__(self, memory: int = 10**9) -> None:
        super().__init__()
        self.weight = torch.randn(10, 64, generator=torch.Generator().manual_seed(0))
        self.memory, self.sizes = memory, []

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        if len(x) > self.memory:
            raise torch.OutOfMemoryError("out of memory")
        return x.flatten(1) @ self.weight.to(x).T


class Noisy(Watched):
    """Random logits round a mean, from torch's generator."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.randn(len(x), 10)


NO_MEMORY = ("[enforce fail] DefaultCPUAllocator: can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED when calling")


@pytest.mark.parametrize("told", NO_MEMORY)
def test_memory_that_ran_out_by_another_name_halves_the_batch_too(told: str) -> None:
    sizes = []

    def narrow(x: Tensor) -> Tensor:
        sizes.append(len(x))
        if len(x) > 3:
            raise RuntimeError(told)
        return x.flatten(1)[:, :4]

    assert Queries(narrow)(torch.rand(8, 1, 2, 2)).shape == (8, 4)
    assert sizes == [8, 4, 2, 2, 2, 2]


def test_another_runtime_error_is_nobodys_memory() -> None:
    def broken(x: Tensor) -> Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        Queries(broken)(torch.rand(8, 1, 2, 2))


def test_the_input_gradient_of_an_image_does_not_depend_on_the_others() -> None:
    model, x = Watched(), torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(1)).double()
    ascent = Queries(model).gradient(x, lambda logits: logits[:, 3].square())
    w = model.weight.double()[3]
    torch.testing.assert_close(ascent.loss, (x.flatten(1) @ w).square())
    torch.testing.assert_close(ascent.grad.flatten(1), 2 * (x.flatten(1) @ w)[:, None] * w)


@pytest.mark.parametrize("size", [1, 3, 16, 100])
def test_micro_batches_change_neither_answers_nor_the_pairing_with_labels(size: int, images: Batch) -> None:
    x, y = images[0].double(), images[1]
    whole, parts = Queries(Watched()), Queries(Watched())
    parts.ledger.size = size
    a, b = (ask.gradient(x, cross_entropy, y) for ask in (whole, parts))
    for name in ("loss", "logits", "grad"):
        torch.testing.assert_close(getattr(a, name), getattr(b, name))
    torch.testing.assert_close(whole(x), parts(x))
    assert max(parts.model.sizes) == min(size, 16)
    assert (parts.ledger.forward, parts.ledger.backward) == (32, 16)


def test_a_batch_that_does_not_fit_is_halved_until_it_does_and_stays_so(images: Batch) -> None:
    ask = Queries(Watched(memory=5))
    torch.testing.assert_close(ask(images[0]), Queries(Watched())(images[0]))
    assert ask.model.sizes == [16, 8, 4, 4, 4, 4]
    assert ask.ledger.forward == 16
    ask(images[0])
    assert ask.model.sizes[6:] == [4, 4, 4, 4]


def test_an_attack_survives_a_full_device(images: Batch) -> None:
    attack = PGD(Threat("linf", 0.1), seed=0)
    assert torch.equal(attack(Watched(memory=3), *images), attack(Watched(), *images))


@pytest.mark.parametrize(("answer", "kind"), [(lambda z: (z, None), "tuple"), (lambda z: {"logits": z}, "dict")])
def test_an_answer_that_is_no_tensor_is_an_error(answer, kind: str, images: Batch) -> None:
    with pytest.raises(UserError, match=f"answers with a {kind}; accepted: one tensor of logits"):
        Queries(lambda x: answer(Watched()(x)))(images[0])


def test_a_device_too_small_for_one_image_is_an_error(images: Batch) -> None:
    with pytest.raises(UserError, match="not even one image"):
        Queries(Watched(memory=0))(images[0])


def test_draws_average_probabilities_and_gradients(images: Batch) -> None:
    x, y = images
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ask = Queries(Noisy(), draws=400)
        ascent = ask.gradient(x, cross_entropy, y)
        torch.manual_seed(0)
        answers = torch.stack([ask.model(x) for _ in range(400)])
    torch.testing.assert_close(ascent.logits.exp(), answers.softmax(2).mean(0))
    torch.testing.assert_close(ascent.loss, -answers.log_softmax(2)[:, range(16), y].mean(0))
    assert ask.ledger.forward == 400 * 16


def test_scaled_logits_keep_the_prediction(tiny_vit: Classifier, images: Batch) -> None:
    plain, scaled = Queries(tiny_vit)(images[0]), Queries(tiny_vit, scale=0.25)(images[0])
    torch.testing.assert_close(scaled, plain / 4)


def test_precision_is_that_of_the_query_and_the_callers_returns(tiny_vit: Classifier, images: Batch) -> None:
    ask = Queries(tiny_vit, precision="bf16")
    full = Queries(tiny_vit)(images[0])
    assert 0 < (ask(images[0]) - full).abs().max() < 0.05
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(replace(ask, precision="fp32")(images[0]), full)
        assert torch.is_autocast_enabled("cpu")
    assert ask.approximate
    assert not Queries(tiny_vit).approximate


def test_exact_arithmetic_switches_tf32_and_autocast_off_and_back() -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    with arithmetic("tf32"):
        assert matmul.allow_tf32
        assert cudnn.allow_tf32
        with torch.autocast("cpu", torch.bfloat16), exact():
            assert not matmul.allow_tf32
            assert not cudnn.allow_tf32
            assert not torch.is_autocast_enabled("cpu")
        assert matmul.allow_tf32
    assert (matmul.allow_tf32, cudnn.allow_tf32) == before
