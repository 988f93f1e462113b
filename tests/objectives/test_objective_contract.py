"""The contract of every objective, and closed forms of each."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from robustvit.attacks import FGSM, PGD
from robustvit.errors import UserError
from robustvit.objectives import MART, OBJECTIVES, PGDAT, TRADES, Objective, Standard
from robustvit.threat import Threat

THREAT = Threat("linf", 0.1)
CASES: dict[str, Objective] = {
    "standard": Standard(),
    "pgd_at": PGDAT(PGD(THREAT, steps=2)),
    "trades": TRADES(PGD(THREAT, steps=2, loss="kl"), beta=6.0),
    "mart": MART(PGD(THREAT, steps=2)),
}
ADVERSARIAL = [name for name, objective in CASES.items() if hasattr(objective, "adversary")]


def test_every_objective_has_its_row():
    assert {name: type(objective) for name, objective in CASES.items()} == OBJECTIVES


@pytest.mark.parametrize("objective", CASES.values(), ids=CASES)
class TestEveryObjective:
    def test_gradients_reach_every_parameter(self, objective, tiny_vit, images):
        x, y = images
        objective.loss(tiny_vit, x, objective.attack(tiny_vit, x, y), y).value.backward()
        missing = [name for name, p in tiny_vit.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
        assert not missing
        assert any(p.grad.abs().sum() > 0 for p in tiny_vit.parameters())

    def test_value_is_a_scalar_and_metrics_are_detached_scalars(self, objective, tiny_vit, images):
        x, y = images
        loss = objective.loss(tiny_vit, x, objective.attack(tiny_vit, x, y), y)
        assert loss.value.shape == ()
        assert loss.metrics["loss"] == loss.value
        assert all(m.shape == () and not m.requires_grad for m in loss.metrics.values())

    @pytest.mark.parametrize("training", [True, False])
    def test_model_is_left_as_it_was(self, objective, tiny_vit, images, training):
        x, y = images
        tiny_vit.train(training)
        before = {name: tensor.clone() for name, tensor in tiny_vit.state_dict().items()}
        x_adv = objective.attack(tiny_vit, x, y)
        objective.loss(tiny_vit, x, x_adv, y)
        assert all(module.training is training for module in tiny_vit.modules())
        assert all(p.requires_grad and p.grad is None for p in tiny_vit.parameters())
        assert all(torch.equal(tensor, before[name]) for name, tensor in tiny_vit.state_dict().items())
        assert not x_adv.requires_grad

    def test_loss_does_not_care_for_the_order_of_the_batch(self, objective, tiny_vit, images):
        x, y = images
        x_adv, order = objective.attack(tiny_vit, x, y), torch.randperm(len(x))
        one, other = objective.loss(tiny_vit, x, x_adv, y), objective.loss(tiny_vit, x[order], x_adv[order], y[order])
        torch.testing.assert_close(one.value, other.value)

    def test_shares_that_are_all_of_one_class_are_that_class(self, objective, tiny_vit, images):
        x, y = images
        x_adv, shares = objective.attack(tiny_vit, x, F.one_hot(y, 10).float()), F.one_hot(y, 10).float()
        one, other = objective.loss(tiny_vit, x, x_adv, y), objective.loss(tiny_vit, x, x_adv, shares)
        torch.testing.assert_close(one.value, other.value)
        assert one.metrics.keys() == other.metrics.keys()
        for name, metric in one.metrics.items():
            torch.testing.assert_close(metric, other.metrics[name])

    def test_same_generator_state_gives_the_same_attack(self, objective, tiny_vit, images):
        torch.manual_seed(3)
        one = objective.attack(tiny_vit, *images)
        torch.manual_seed(3)
        assert torch.equal(one, objective.attack(tiny_vit, *images))

    def test_scaling_by_one_changes_nothing(self, objective):
        assert objective.scaled(1.0) == objective


@pytest.mark.parametrize("name", ADVERSARIAL)
class TestEveryAdversarialObjective:
    def test_attack_moves_inside_the_ball(self, name, tiny_vit, images):
        x, y = images
        x_adv = CASES[name].attack(tiny_vit, x, y)
        assert THREAT.contains(x_adv, x).all()
        assert not torch.equal(x_adv, x)

    def test_scaled_attacks_a_smaller_ball(self, name, tiny_vit, images):
        x, y = images
        half = CASES[name].scaled(0.5)
        assert half.adversary.threat == Threat("linf", 0.05)
        assert half.adversary.threat.contains(half.attack(tiny_vit, x, y), x).all()

    def test_scaled_to_nothing_leaves_the_images(self, name, tiny_vit, images):
        assert torch.equal(CASES[name].scaled(0.0).attack(tiny_vit, *images), images[0])

    def test_adversary_with_a_seed_is_refused(self, name):
        with pytest.raises(UserError, match=r"adversary\.seed: 3"):
            type(CASES[name])(PGD(THREAT, seed=3))

    def test_adversary_that_helps_the_model_is_refused(self, name):
        with pytest.raises(UserError, match=r"adversary\.targeted: True"):
            type(CASES[name])(PGD(THREAT, targeted=True))


def test_trades_without_beta_is_cross_entropy_on_clean_images(tiny_vit, images):
    x, y = images
    loss = TRADES(PGD(THREAT), beta=0.0).loss(tiny_vit, x, torch.rand_like(x), y)
    torch.testing.assert_close(loss.value, F.cross_entropy(tiny_vit(x), y))


def test_trades_without_a_perturbation_has_no_distance(tiny_vit, images):
    x, y = images
    assert TRADES(PGD(THREAT)).loss(tiny_vit, x, x, y).metrics["kl"].abs() < 1e-6


def test_trades_on_two_classes_by_hand():
    logits = {0.0: torch.tensor([[0.0, math.log(3.0)]]), 1.0: torch.tensor([[0.0, 0.0]])}
    x, x_adv = torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1)
    loss = TRADES(PGD(THREAT), beta=2.0).loss(lambda image: logits[float(image)], x, x_adv, torch.tensor([1]))
    # p(x) = (1/4, 3/4), p(x') = (1/2, 1/2)
    distance = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert float(loss.value) == pytest.approx(-math.log(0.75) + 2 * distance, rel=1e-6)


def test_adversarial_training_in_an_empty_ball_is_standard_training(tiny_vit, images):
    x, y = images
    objective = PGDAT(PGD(Threat("linf", 0.0), steps=2))
    x_adv = objective.attack(tiny_vit, x, y)
    assert torch.equal(x_adv, x)
    torch.testing.assert_close(objective.loss(tiny_vit, x, x_adv, y).value, Standard().loss(tiny_vit, x, x, y).value)


def test_label_smoothing_mixes_in_the_uniform_distribution(tiny_vit, images):
    x, y = images
    log_p = tiny_vit(x).log_softmax(1)
    expected = -(0.8 * log_p[torch.arange(len(y)), y] + 0.2 * log_p.mean(1)).mean()
    for objective in (Standard(0.2), PGDAT(FGSM(THREAT), 0.2), TRADES(FGSM(THREAT), beta=0.0, label_smoothing=0.2)):
        torch.testing.assert_close(objective.loss(tiny_vit, x, x, y).value, expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_with_mixed_labels_is_the_mix_of_cross_entropies(tiny_vit, images, smoothing):
    x, y = images
    partner = y.roll(1)
    mixed = 0.7 * F.one_hot(y, 10) + 0.3 * F.one_hot(partner, 10)
    for objective in (Standard(smoothing), PGDAT(FGSM(THREAT), smoothing), TRADES(FGSM(THREAT), 0.0, smoothing)):
        whole = objective.loss(tiny_vit, x, x, mixed)
        parts = [objective.loss(tiny_vit, x, x, labels).value for labels in (y, partner)]
        torch.testing.assert_close(whole.value, 0.7 * parts[0] + 0.3 * parts[1])
        (accuracy,) = {float(m) for name, m in whole.metrics.items() if name.endswith("accuracy")}
        assert accuracy == pytest.approx(float((tiny_vit(x).argmax(1) == y).float().mean()))


def test_the_adversary_climbs_the_mixed_label_without_smoothing(tiny_vit, images):
    x, y = images
    mixed = 0.6 * F.one_hot(y, 10) + 0.4 * F.one_hot(y.roll(1), 10)
    adversary = PGD(THREAT, steps=2, random_start=False)
    expected = adversary(tiny_vit, x, mixed)
    assert torch.equal(PGDAT(adversary, label_smoothing=0.5).attack(tiny_vit, x, mixed), expected)
    assert not torch.equal(expected, adversary(tiny_vit, x, y))


@pytest.mark.parametrize("beta", [-1.0, math.nan])
def test_beta_that_is_no_weight_is_refused(beta):
    with pytest.raises(UserError, match=rf"beta: {beta}"):
        TRADES(PGD(THREAT), beta=beta)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_label_smoothing_that_is_no_share_is_refused(share):
    for make in (Standard, lambda label_smoothing: PGDAT(PGD(THREAT), label_smoothing), partial(TRADES, PGD(THREAT))):
        with pytest.raises(UserError, match=rf"label_smoothing: {share}; accepted: 0 to 1"):
            make(label_smoothing=share)
