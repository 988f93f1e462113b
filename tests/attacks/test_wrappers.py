"""Attacks round attacks, the worst of several, and the make-up of AutoAttack."""

import pytest
import torch
from torch import Tensor, nn

from robustvit.attacks import (
    APGD,
    EOT,
    FAB,
    FGSM,
    GAMA,
    PGD,
    Attack,
    InPrecision,
    LogitScaling,
    Queries,
    Restarts,
    Square,
    WorstOf,
    autoattack,
)
from robustvit.errors import UserError
from robustvit.models import Classifier
from robustvit.threat import Threat

Batch = tuple[Tensor, Tensor]
THREAT = Threat("linf", 0.05)


def test_the_worst_of_several_is_at_least_as_strong_as_each(trained_vit: Classifier, images: Batch) -> None:
    x, y = images
    attacks = (FGSM(THREAT), PGD(THREAT, steps=3, seed=0), PGD(THREAT, steps=10, loss="margin", seed=0))
    fooled = [trained_vit(attack(trained_vit, x, y)).argmax(1) != y for attack in (*attacks, WorstOf(attacks))]
    assert torch.equal(fooled[0] | fooled[1] | fooled[2], fooled[3])


def test_each_attack_sees_only_what_stands(trained_vit: Classifier, images: Batch) -> None:
    x, y = images
    first = FGSM(THREAT)
    standing = int((trained_vit(first(trained_vit, x, y)).argmax(1) == y).sum())
    ask = Queries(trained_vit)
    WorstOf((first, PGD(THREAT, steps=7, seed=0)))(ask, x, y)
    assert 0 < standing < len(x)
    assert ask.ledger.backward == len(x) + 7 * standing


class Coin(nn.Module):
    """Says class 0 on average, by 1 in logits, but any single answer may say anything."""

    def forward(self, x: Tensor) -> Tensor:
        mean = torch.stack([x.mean((1, 2, 3)) - 0.5 + 1.0, torch.zeros(len(x))], 1)
        return mean + 3 * torch.randn(len(x), 2)


def test_chance_alone_does_not_break_a_stochastic_model() -> None:
    """A single draw is wrong for many images; the averaged prediction is right within this eps."""
    x, y = torch.full((40, 1, 4, 4), 0.5), torch.zeros(40, dtype=torch.long)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x_adv = EOT(APGD(Threat("linf", 0.01), steps=10, seed=0), draws=400)(Coin(), x, y)
        averaged = Queries(Coin(), draws=2000)(x_adv)
    assert (averaged.argmax(1) == 0).all()


class Steep(nn.Module):
    """Averaged, class 0 at the image and class 1 from half of eps = 0.05 on; a few answers may say anything."""

    def forward(self, x: Tensor) -> Tensor:
        score = 1 - 40 * (x.flatten(1) - 0.5).abs().mean(1)
        return torch.stack([score, torch.zeros(len(x))], 1) + 3 * torch.randn(len(x), 2)


def averaged_falls(attack: Attack, count: int = 30) -> float:
    """The share of images that an attack makes fall on average over many answers."""
    x, y = torch.full((count, 1, 4, 4), 0.5), torch.zeros(count, dtype=torch.long)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x_adv = attack(Steep(), x, y)
        return float((Queries(Steep(), draws=3000)(x_adv).argmax(1) == 1).float().mean())


def test_a_lucky_draw_does_not_end_an_attack() -> None:
    """An image that left with the first wrong answer would hardly have moved, and its verdict would call it robust."""
    assert averaged_falls(EOT(APGD(THREAT, steps=20, seed=0), draws=5)) > 0.85


@pytest.mark.parametrize(
    "attack",
    [
        APGD(THREAT, steps=10, seed=0),
        APGD(THREAT, steps=10, loss="targeted_dlr", targets=3, seed=0),
        GAMA(THREAT, steps=20, seed=0),
        FAB(THREAT, steps=10, targets=3, seed=0),
        Square(THREAT, queries=60, seed=0),
    ],
    ids=lambda attack: attack.name,
)
def test_averaging_over_a_model_that_is_not_random_costs_more_and_loses_nothing(
    attack: Attack, trained_vit: Classifier, images: Batch
) -> None:
    x, y = images
    plain, averaged = Queries(trained_vit), Queries(trained_vit)
    fell = [trained_vit(x_adv).argmax(1) != y for x_adv in (attack(plain, x, y), EOT(attack, 2)(averaged, x, y))]
    assert fell[0].sum() > 3
    # They stay to the end: the best example then is at times not the one that fooled the model on the way.
    assert (fell[0] & ~fell[1]).sum() <= 1
    assert averaged.ledger.forward >= 2 * plain.ledger.forward
    assert averaged.ledger.forward + averaged.ledger.backward <= EOT(attack, 2).cost() * len(x)


def test_what_low_precision_takes_for_broken_still_meets_the_next_attack() -> None:
    """A lead of 0.01 on logits of 100 is nothing in bfloat16: there the first, powerless attack seems to have won."""

    class Close(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([[0.0], [1.0]]))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x.mean((1, 2, 3), dtype=torch.float32)[:, None] - 0.5, self.weight) + torch.tensor(
                [100.01, 100.0]
            ).to(torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32)

    x, y = torch.full((4, 1, 4, 4), 0.5), torch.zeros(4, dtype=torch.long)
    idle = PGD(THREAT, steps=1, step=1e-6, seed=0)
    both = InPrecision(WorstOf((idle, PGD(THREAT, steps=5, seed=0))), "bf16")
    assert (Close()(idle(Close(), x, y)).argmax(1) == y).all()
    assert (Close()(both(Close(), x, y)).argmax(1) != y).all()


def test_restarts_within_restarts_are_different_runs() -> None:
    nested = Restarts(Restarts(PGD(THREAT, seed=0), 3), 2)
    outer = [nested.inner.restarted(attempt) for attempt in range(nested.count)]
    seeds = [each.inner.restarted(attempt).seed for each in outer for attempt in range(each.count)]
    assert len(set(seeds)) == 6


def test_between_the_attacks_too_the_averaged_prediction_counts() -> None:
    """One answer about what the first, powerless attack returned is often wrong: the second must still have its turn."""
    idle = EOT(PGD(THREAT, steps=1, step=1e-6, random_start=False, seed=0), 20)
    strong = EOT(PGD(THREAT, steps=5, seed=0), 20)
    assert averaged_falls(idle) == 0
    assert averaged_falls(strong) > 0.9
    assert averaged_falls(WorstOf((idle, strong))) > 0.8
    assert averaged_falls(Restarts(strong, 2)) > 0.9


def test_an_ensemble_s_success_is_judged_over_as_many_answers_as_its_attacks_average() -> None:
    attacks = (FGSM(THREAT), Restarts(EOT(FGSM(THREAT, random_start=True), 7)))
    assert [attack.draws for attack in (*attacks, WorstOf(attacks), EOT(WorstOf(attacks[:1]), 3))] == [1, 7, 7, 3]


def test_restarts_of_an_ensemble_are_new_attempts_of_each_part(trained_vit: Classifier, images: Batch) -> None:
    parts = (PGD(Threat("linf", 0.02), steps=2, seed=0), PGD(Threat("linf", 0.02), steps=2, loss="margin", seed=1))
    one, other = (WorstOf(parts).restarted(attempt) for attempt in (1, 2))
    assert len({part.seed for attack in (WorstOf(parts), one, other) for part in attack.attacks}) == 6
    once, thrice = (attack(trained_vit, *images) for attack in (WorstOf(parts), Restarts(WorstOf(parts), 3)))
    fell = [trained_vit(x_adv).argmax(1) != images[1] for x_adv in (once, thrice)]
    assert not (fell[0] & ~fell[1]).any()


def test_logit_scaling_finds_the_gradient_that_saturation_hides(trained_vit: Classifier, images: Batch) -> None:
    """At logits times 1e4 the cross-entropy's gradient is zero; scaled back the attack works as on the model itself."""
    x, y = images

    def saturated(z: Tensor) -> Tensor:
        return 1e4 * trained_vit(z)

    attack = PGD(Threat("linf", 0.1), seed=0)
    plain, hidden, found = (
        (trained_vit(a(m, x, y)).argmax(1) != y).sum()
        for a, m in ((attack, trained_vit), (attack, saturated), (LogitScaling(attack, 1e-4), saturated))
    )
    assert hidden < plain
    assert found == plain


@pytest.mark.parametrize(
    ("norm", "version", "names"),
    [
        ("linf", "standard", ["apgd-ce", "apgd-t", "fab-t", "square"]),
        ("l2", "standard", ["apgd-ce", "apgd-t", "fab-t", "square"]),
        ("l1", "standard", ["apgd-cex5", "apgd-t", "fab-t", "square"]),
        ("linf", "plus", ["apgd-cex5", "apgd-dlrx5", "fab", "square", "apgd-t", "fab-t"]),
        ("linf", "rand", ["apgd-ce-eot20", "apgd-dlr-eot20"]),
    ],
)
def test_autoattack_is_made_as_published(norm: str, version: str, names: list[str]) -> None:
    ensemble = autoattack(Threat(norm, 0.1), version, seed=3)
    assert [attack.name for attack in ensemble.stages] == names
    assert ensemble.name == f"autoattack-{version}"
    assert ensemble.seed == 3
    if version == "standard":
        ce, targeted, fab, square = ensemble.attacks
        assert (getattr(ce, "inner", ce).steps, targeted.steps, fab.steps, square.queries) == (100, 100, 100, 5000)
        assert (targeted.targets, fab.targets) == (5 if norm == "l1" else 9, 9)


def test_every_stage_names_its_precision_and_in_bf16_gradients_are_climbed_in_tf32() -> None:
    for precision, names in {
        "tf32": ["apgd-ce-tf32", "apgd-t-tf32", "fab-t-tf32", "square-tf32"],
        "bf16": ["apgd-ce-tf32", "apgd-t-tf32", "fab-t-bf16", "square-bf16"],
    }.items():
        assert [stage.name for stage in autoattack(THREAT, precision=precision).stages] == names


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: autoattack(THREAT, "standrad"), "did you mean 'standard'"),
        (lambda: autoattack(THREAT, precision="fp16"), "'fp16'"),
        (lambda: WorstOf(()), "worst_of.attacks: empty"),
        (lambda: WorstOf((FGSM(THREAT), FGSM(Threat("l2", 1.0)))), "the same for all"),
        (lambda: WorstOf((FGSM(THREAT, targeted=True),)), "one is targeted"),
        (lambda: WorstOf((Restarts(PGD(THREAT)),), precision="fp8"), "'fp8'"),
        (lambda: EOT(FGSM(THREAT), draws=0), "eot.draws: 0"),
        (lambda: LogitScaling(FGSM(THREAT), factor=0.0), "logit_scaling.factor: 0.0"),
    ],
)
def test_settings_that_make_no_attack_are_errors(make, message: str) -> None:
    with pytest.raises(UserError) as error:
        make()
    assert message in str(error.value)
