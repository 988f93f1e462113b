"""d_k: zero where one step says all, positive where few steps lag, negative where they win."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustvit.analysis import Effectiveness, Subject
from robustvit.attacks import PGD
from robustvit.data import Images
from robustvit.errors import UserError
from robustvit.models import Classifier
from robustvit.threat import Threat

LINF = Threat("linf", 0.1)


class Curve(nn.Module):
    """Two classes on single pixels: the loss of class 0 is −log σ(−height(x))."""

    def height(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        height = self.height(x.flatten())
        return torch.stack([torch.zeros_like(height), height], 1)


class Ridge(Curve):
    """Rises to ½ and falls again: a large step overshoots."""

    def height(self, x: Tensor) -> Tensor:
        return -20 * (x - 0.5).abs()


class Valley(Curve):
    """Two peaks, at 0.3 and, higher, at 0.9: small steps are caught by the lower one."""

    def height(self, x: Tensor) -> Tensor:
        return torch.maximum(-10 * (x - 0.3).abs(), 8 - 40 * (x - 0.9).abs())


def pixels(*values: float) -> Images:
    return Images("pixels", torch.tensor(values).view(-1, 1, 1, 1), torch.zeros(len(values), dtype=torch.long))


def test_on_a_line_one_step_is_as_good_as_many(line: nn.Module, points: Images) -> None:
    """Every gradient has the same sign, so the same reach from the same start ends at the same point."""
    finding = Effectiveness(LINF, oracle=50)(line, points)
    for attack in finding.data["models"][0]["attacks"]:
        assert attack["difference"] == pytest.approx([0.0] * 3, abs=1e-5)
        assert attack["median_of_images"] == pytest.approx([0.0] * 3, abs=1e-5)


def test_attacks_that_reach_across_the_ball_find_a_line_s_largest_loss(line: nn.Module, points: Images) -> None:
    finding = Effectiveness(LINF, steps=(1,), oracle=2, step=2.0, seeds=1)(line, points)
    margin = line(points.x)[:, 1] * torch.where(points.y == 1, 1.0, -1.0)
    expected = F.softplus(-margin + 0.1 * 10).numpy()  # ‖w‖₁ = 10
    assert finding.arrays["loss"][0, 0] == pytest.approx(np.stack([expected, expected]), rel=1e-5)


def test_few_steps_that_lag_have_a_positive_difference() -> None:
    finding = Effectiveness(Threat("linf", 0.3), steps=(1, 5), oracle=100)(Ridge(), pixels(0.5, 0.45, 0.55))
    one, five = finding.data["models"][0]["attacks"]
    assert one["mean"] > five["mean"] > 0


def test_an_oracle_that_is_beaten_has_a_negative_difference() -> None:
    model, images = Valley(), pixels(0.5)
    finding = Effectiveness(Threat("linf", 0.45), steps=(1,), oracle=200, seeds=12)(model, images)
    (one,) = finding.data["models"][0]["attacks"]
    assert min(one["difference"]) < -1
    assert one["mean"] < 0


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_numbers_are_those_of_the_attacks_run_one_by_one(
    trained_vit: Classifier, images: tuple[Tensor, Tensor], norm: str
) -> None:
    threat = Threat(norm, {"linf": 0.1, "l2": 0.8}[norm])
    (row,) = Effectiveness(threat, steps=(1, 3), oracle=8, seeds=2, seed=7)(trained_vit, images).data["models"]
    x, y = images
    for number, seed in enumerate((7, 8)):

        def loss(steps: int, seed: int = seed) -> Tensor:
            x_adv = PGD(threat, steps=steps, step=1.5, seed=seed)(trained_vit, x, y)
            with torch.no_grad():
                return F.cross_entropy(trained_vit(x_adv), y, reduction="none").double()

        strong = loss(8)
        for attack, steps in zip(row["attacks"], (1, 3), strict=True):
            few = loss(steps)
            assert attack["loss"][number] == pytest.approx(float(few.mean()), rel=1e-5)
            assert attack["difference"][number] == pytest.approx(float((strong.mean() - few.mean()) / strong.mean()), abs=1e-5)
            median = float(((strong - few) / strong).quantile(0.5))
            assert attack["median_of_images"][number] == pytest.approx(median, abs=1e-4)
    for attack in row["attacks"]:
        assert attack["mean"] == pytest.approx(np.mean(attack["difference"]))
        assert attack["std"] == pytest.approx(np.std(attack["difference"], ddof=1))


def test_a_model_without_any_loss_has_no_difference() -> None:
    class Sure(Curve):
        def height(self, x: Tensor) -> Tensor:
            return x * 0 - 1000

    finding = Effectiveness(LINF, oracle=5, seeds=1)(Sure(), pixels(0.5, 0.6))
    for attack in finding.data["models"][0]["attacks"]:
        assert (attack["mean"], attack["std"], attack["median_of_images"]) == (None, None, [None])
    assert "d_1 unknown" in finding.data["summary"][0]


def test_checkpoints_are_told_apart_by_their_epochs(line: nn.Module, points: Images) -> None:
    quick = Effectiveness(LINF, steps=(1,), oracle=2, seeds=1)
    by_epoch = quick({10: line, 20: line}, points)
    assert [(row["model"], row["epoch"]) for row in by_epoch.data["models"]] == [("model", 10), ("model", 20)]
    model = Classifier(line)
    subjects = [Subject("light", model, 10), Subject("light", model, 20), Subject("canonical", model, 10)]
    rows = quick(subjects, points).data["models"]
    assert [(row["model"], row["epoch"]) for row in rows] == [("light", 10), ("light", 20), ("canonical", 10)]
    with pytest.raises(UserError, match="'light, epoch 10' is given twice"):
        quick([*subjects, subjects[0]], points)


def test_the_attacks_may_ask_in_another_precision(trained_vit: Classifier, images: tuple[Tensor, Tensor]) -> None:
    full, short = (
        Effectiveness(LINF, steps=(2,), oracle=4, seeds=1, precision=precision)(trained_vit, images).arrays["loss"]
        for precision in ("fp32", "bf16")
    )
    assert not np.array_equal(full, short)
    assert short.mean() == pytest.approx(full.mean(), rel=0.1)
