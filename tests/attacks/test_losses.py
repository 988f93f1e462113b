"""Attack losses against torch's own distributions."""

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from robustvit.attacks import PGD
from robustvit.attacks.losses import LOSSES, cross_entropy, cw, dlr, gama, hard_labels, kl, margin, mifpe, targeted_dlr
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


LABELS = torch.arange(12) % 10
SHARES = torch.eye(10)[LABELS] * 0.7 + torch.eye(10)[(LABELS + 3) % 10] * 0.3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cross_entropy_takes_shares_of_classes_as_they_are(dtype: torch.dtype) -> None:
    z = logits(0).to(dtype)
    expected = 0.7 * cross_entropy(z, LABELS) + 0.3 * cross_entropy(z, (LABELS + 3) % 10)
    torch.testing.assert_close(cross_entropy(z, SHARES), expected)


@pytest.mark.parametrize("loss", [margin, cw, dlr])
def test_what_compares_classes_takes_the_one_of_largest_share(loss) -> None:
    assert torch.equal(hard_labels(SHARES), LABELS)
    assert hard_labels(LABELS) is LABELS
    assert torch.equal(loss(logits(0), SHARES), loss(logits(0), LABELS))
    target = (LABELS + 5) % 10
    assert torch.equal(targeted_dlr(logits(0), SHARES, target), targeted_dlr(logits(0), LABELS, target))


def sorted_others(z: Tensor) -> tuple[list[float], list[list[float]]]:
    """Plain Python: the true class's logit, and all logits in falling order, of each row."""
    rows = z.tolist()
    return [row[y] for row, y in zip(rows, LABELS.tolist(), strict=True)], [sorted(row, reverse=True) for row in rows]


def largest_other(z: Tensor) -> list[float]:
    return [max(v for k, v in enumerate(row) if k != y) for row, y in zip(z.tolist(), LABELS.tolist(), strict=True)]


def test_the_margin_is_positive_exactly_where_the_prediction_is_wrong() -> None:
    z = logits(0)
    true, _ = sorted_others(z)
    expected = [other - own for other, own in zip(largest_other(z), true, strict=True)]
    torch.testing.assert_close(margin(z, LABELS), torch.tensor(expected))
    assert torch.equal(margin(z, LABELS) > 0, z.argmax(1) != LABELS)


def test_cw_stops_climbing_at_kappa() -> None:
    z = logits(0, scale=40.0).requires_grad_()
    value = cw(z, LABELS, kappa=50.0)
    torch.testing.assert_close(value, margin(z, LABELS).clamp(max=50))
    (grad,) = torch.autograd.grad(value.sum(), z)
    beyond = margin(z, LABELS) > 50
    assert beyond.any()
    assert not grad[beyond].any()
    assert grad[~beyond].any(1).all()


def test_dlr_is_the_margin_over_the_span_of_the_first_three_logits() -> None:
    z = logits(0)
    true, order = sorted_others(z)
    expected = [-(own - other) / (top[0] - top[2]) for own, other, top in zip(true, largest_other(z), order, strict=True)]
    torch.testing.assert_close(dlr(z, LABELS), torch.tensor(expected))


def test_targeted_dlr_is_as_published() -> None:
    z, target = logits(0), (LABELS + 3) % 10
    true, order = sorted_others(z)
    goals = z.gather(1, target[:, None]).squeeze(1).tolist()
    expected = [-(o - g) / (t[0] - (t[2] + t[3]) / 2) for o, g, t in zip(true, goals, order, strict=True)]
    torch.testing.assert_close(targeted_dlr(z, LABELS, target), torch.tensor(expected))


@pytest.mark.parametrize("loss", [dlr, mifpe])
def test_scale_and_shift_of_the_logits_mask_neither_dlr_nor_mifpe(loss) -> None:
    z = logits(0)
    torch.testing.assert_close(loss(1e4 * z + 7, LABELS), loss(z, LABELS), atol=1e-3, rtol=1e-3)


def test_mifpe_has_a_gradient_where_cross_entropy_has_none() -> None:
    z = (1e4 * torch.eye(10)[LABELS]).requires_grad_()
    (plain,) = torch.autograd.grad(cross_entropy(z, LABELS).sum(), z)
    (scaled,) = torch.autograd.grad(mifpe(z, LABELS).sum(), z)
    assert not plain.any()
    assert scaled.any(1).all()


def test_gama_is_the_margin_of_probabilities_plus_the_weighted_distance() -> None:
    z, start = logits(0), logits(1).softmax(1)
    p = z.softmax(1)
    expected = margin(p, LABELS) + 50 * ((start - p) ** 2).sum(1)
    torch.testing.assert_close(gama(z, LABELS, start, torch.full((12,), 50.0)), expected)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_gives_one_finite_value_an_image_also_at_extreme_logits(name: str) -> None:
    for scale in (1e-3, 3.0, 1e4):
        target = logits(1) if name == "kl" else LABELS
        value = LOSSES[name](logits(0, scale), target)
        assert value.shape == (12,)
        assert value.isfinite().all()


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
