"""Attack losses against torch's own distributions."""

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from robustvit.attacks import PGD
from robustvit.attacks.losses import LOSSES, cross_entropy, kl
from robustvit.models import Classifier
from robustvit.threat import Threat


def logits(seed: int, scale: float = 3.0) -> Tensor:
    return scale * torch.randn(12, 10, generator=torch.Generator().manual_seed(seed))


def test_kl_is_the_divergence_from_the_clean_to_the_perturbed_prediction() -> None:
    clean, perturbed = logits(0), logits(1)
    expected = kl_divergence(Categorical(logits=clean), Categorical(logits=perturbed))
    torch.testing.assert_close(kl(perturbed, clean), expected)
    assert not torch.allclose(kl(clean, perturbed), expected)  # it is not symmetric


def test_kl_is_zero_at_the_clean_prediction_and_finite_at_extreme_logits() -> None:
    torch.testing.assert_close(kl(logits(0), logits(0)), torch.zeros(12))
    assert kl(logits(0, 1e4), logits(1, 1e4)).isfinite().all()


def test_cross_entropy_is_the_negative_log_probability_of_the_label() -> None:
    y = torch.arange(12) % 10
    torch.testing.assert_close(cross_entropy(logits(0), y), -Categorical(logits=logits(0)).log_prob(y))


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_gives_one_fp32_value_an_image_also_for_half_precision_logits(name: str) -> None:
    target = logits(1) if name == "kl" else torch.arange(12) % 10
    value = LOSSES[name](logits(0).bfloat16(), target)
    assert value.shape == (12,)
    assert value.dtype == torch.float32


@pytest.mark.parametrize("name", LOSSES)
def test_an_attack_computes_its_reference_once(name: str, tiny_vit: Classifier, images: tuple[Tensor, Tensor]) -> None:
    x, y = images
    seen: list[Tensor] = []
    tiny_vit.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach().clone()))
    PGD(Threat("linf", 0.1), steps=4, loss=name, seed=0)(tiny_vit, x, y)
    assert len(seen) == 4 + (name == "kl")
    assert sum(torch.equal(z, x) for z in seen) == (name == "kl")


def test_pgd_on_kl_moves_the_prediction_away_from_the_clean_one(tiny_vit: Classifier, images: tuple[Tensor, Tensor]) -> None:
    x, y = images
    start = Threat("linf", 0.1).sample(x, torch.rand(x.shape, generator=torch.Generator().manual_seed(0)))
    x_adv = PGD(Threat("linf", 0.1), loss="kl", seed=0)(tiny_vit, x, y)
    with torch.no_grad():
        clean = tiny_vit(x)
        assert (kl(tiny_vit(x_adv), clean) > 2 * kl(tiny_vit(start), clean)).all()
