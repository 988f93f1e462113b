"""MART by hand, against its formula written out image by image, and where probabilities round."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from robustvit.attacks import PGD
from robustvit.errors import UserError
from robustvit.objectives import MART
from robustvit.objectives.mart import boosted_cross_entropy
from robustvit.threat import Threat

ADVERSARY = PGD(Threat("linf", 0.1))


def loss(objective: MART, clean: Tensor, adversarial: Tensor, y: Tensor) -> Tensor:
    """The objective on given logits: the "model" looks them up."""
    x = torch.zeros(len(clean), 1, 1, 1)
    return objective.loss(lambda image: clean if image is x else adversarial, x, x + 1, y).value


def by_definition(clean: Tensor, adversarial: Tensor, y: Tensor, weight: float) -> Tensor:
    """The formula of the paper, one image after the other."""
    values = []
    for p, q, truth in zip(clean.softmax(1), adversarial.softmax(1), y.tolist(), strict=True):
        rival = max(q[k] for k in range(len(q)) if k != truth)
        divergence = sum(p[k] * (p[k] / q[k]).log() for k in range(len(p)))
        values.append(-q[truth].log() - (1 - rival).log() + weight * divergence * (1 - p[truth]))
    return torch.stack(values).mean()


@pytest.fixture
def logits() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    clean, adversarial = torch.randn(2, 32, 7, generator=generator, dtype=torch.float32) * 3
    return clean, adversarial, torch.randint(7, (32,), generator=generator)


def test_three_classes_by_hand():
    clean, adversarial = torch.tensor([[0.5, 0.25, 0.25]]).log(), torch.tensor([[0.3, 0.6, 0.1]]).log()
    boosted = -math.log(0.3) - math.log(1 - 0.6)
    divergence = 0.5 * math.log(0.5 / 0.3) + 0.25 * math.log(0.25 / 0.6) + 0.25 * math.log(0.25 / 0.1)
    expected = boosted + 5 * divergence * (1 - 0.5)
    assert float(loss(MART(ADVERSARY), clean, adversarial, torch.tensor([0]))) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("weight", [0.0, 5.0])
def test_value_and_gradients_are_those_of_the_formula_image_by_image(logits, weight):
    clean, adversarial, y = logits
    results = []
    for function, dtype in ((loss, torch.float32), (by_definition, torch.float64)):
        c, a = clean.to(dtype).requires_grad_(), adversarial.to(dtype).requires_grad_()
        value = loss(MART(ADVERSARY, weight), c, a, y) if function is loss else by_definition(c, a, y, weight)
        gradients = torch.autograd.grad(value, [c, a], materialize_grads=True)
        results.append([tensor.detach().double() for tensor in (value, *gradients)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_without_weight_it_is_the_boosted_cross_entropy_and_clean_images_play_no_part(logits):
    clean, adversarial, y = logits
    value = loss(MART(ADVERSARY, weight=0.0), clean, adversarial, y)
    torch.testing.assert_close(value, boosted_cross_entropy(adversarial, y).mean())
    assert torch.equal(value, loss(MART(ADVERSARY, weight=0.0), clean.flip(0), adversarial, y))


def test_of_two_classes_the_boost_doubles_the_cross_entropy():
    logits, y = torch.randn(16, 2, generator=torch.Generator().manual_seed(0)), torch.arange(16) % 2
    torch.testing.assert_close(boosted_cross_entropy(logits, y), 2 * F.cross_entropy(logits, y, reduction="none"))


def test_uniform_prediction_costs_log_k_and_what_one_rival_takes():
    expected = math.log(10) - math.log(1 - 0.1)
    torch.testing.assert_close(boosted_cross_entropy(torch.zeros(3, 10), torch.arange(3)), torch.full((3,), expected))


def test_an_image_read_with_certainty_is_not_pulled_towards_its_clean_prediction():
    sure, adversarial, y = torch.tensor([[200.0, 0.0, 0.0]]), torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0])
    torch.testing.assert_close(loss(MART(ADVERSARY), sure, adversarial, y), boosted_cross_entropy(adversarial, y).mean())


def test_a_rival_whose_probability_rounds_to_one_still_has_a_finite_loss_and_a_gradient():
    logits = torch.tensor([[0.0, 150.0, -3.0]], requires_grad=True)
    value = boosted_cross_entropy(logits, torch.tensor([0])).sum()
    # −log p_y = 150, and 1 − p_rival = (1 + e⁻³)·e⁻¹⁵⁰.
    assert float(value.detach()) == pytest.approx(300 - math.log(1 + math.exp(-3)), rel=1e-6)
    (gradient,) = torch.autograd.grad(value, logits)
    torch.testing.assert_close(gradient, torch.tensor([[-1 - 0.9526, 2.0, -0.0474]]), rtol=1e-3, atol=1e-4)


def test_a_mixed_image_counts_as_of_its_largest_share(logits):
    clean, adversarial, y = logits
    shares = 0.6 * F.one_hot(y, 7) + 0.4 * F.one_hot((y + 1) % 7, 7)
    assert torch.equal(loss(MART(ADVERSARY), clean, adversarial, shares), loss(MART(ADVERSARY), clean, adversarial, y))


@pytest.mark.parametrize("bad", [-1.0, math.nan])
def test_weight_below_zero_is_refused(bad):
    with pytest.raises(UserError, match=r"mart\.weight: (-1|nan)"):
        MART(ADVERSARY, weight=bad)
