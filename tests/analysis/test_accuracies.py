"""The eps sweep and the table of PGD steps, on a line where the accuracy at every eps is known."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustvit.analysis import EpsSweep, PGDSteps
from robustvit.attacks import FGSM, PGD, Attack, WorstOf, autoattack
from robustvit.data import Images
from robustvit.errors import UserError
from robustvit.threat import Threat

LINF = Threat("linf", 0.1)


class Ridge(nn.Module):
    """Single pixels are of class 1 within 0.05 of ½, else of class 0: one large step leaps over."""

    def forward(self, x: Tensor) -> Tensor:
        height = 1 - 20 * (x.flatten() - 0.5).abs()
        return torch.stack([torch.zeros_like(height), height], 1)


def robust_at(line: nn.Module, points: Images, eps: float) -> np.ndarray:
    """Where the box does not interfere, a point stands as long as its margin exceeds eps · ‖w‖₁."""
    margin = line(points.x)[:, 1] * torch.where(points.y == 1, 1.0, -1.0)
    return (margin > eps * 10).numpy()


def test_on_a_line_the_sweep_is_the_share_of_margins_beyond_reach(line: nn.Module, points: Images) -> None:
    attack = PGD(LINF, steps=2, seed=0)
    finding = EpsSweep(LINF, factors=(0.1, 0.5, 1.0, 2.0), attack=attack)(line, points)
    (row,) = finding.data["models"]
    assert [point["eps"] for point in row["points"]] == pytest.approx([0, 0.01, 0.05, 0.1, 0.2])
    for point, correct in zip(row["points"], finding.arrays["correct"][0], strict=True):
        expected = robust_at(line, points, point["eps"])
        assert correct.tolist() == expected.tolist()
        assert (point["correct"], point["n"]) == (int(expected.sum()), 12)
    assert row["points"][0]["accuracy"] == 1
    assert row["falls_monotonically"]
    assert row["reaches_zero"] == (row["points"][-1]["correct"] == 0)
    assert row["broken_by_less"] == 0
    assert finding.data["attack"] == "pgd-2"


def test_a_sweep_that_rises_again_is_reported_with_its_images() -> None:
    images = Images("pixels", torch.tensor([0.44, 0.43, 0.1]).view(3, 1, 1, 1), torch.zeros(3, dtype=torch.long))
    small = Threat("linf", 0.04)
    finding = EpsSweep(small, factors=(1.0, 2.0, 6.0), attack=FGSM(small))(Ridge(), images)
    (row,) = finding.data["models"]
    assert finding.arrays["correct"][0].tolist() == [[True] * 3, [False, False, True], [False, False, True], [True] * 3]
    assert (row["falls_monotonically"], row["reaches_zero"], row["broken_by_less"]) == (False, False, 2)
    assert (
        "DOES NOT FALL monotonically, does not reach 0, 2 images stand that a smaller eps had broken"
        in (finding.data["summary"][0])
    )


def test_what_stands_after_each_stage_is_counted(line: nn.Module, points: Images) -> None:
    weak, strong = PGD(LINF, steps=1, step=0.1, random_start=False), PGD(LINF, steps=2, seed=0)
    (row,) = EpsSweep(LINF, factors=(1.0,), attack=WorstOf((weak, strong)))(line, points).data["models"]
    stages = {stage["name"]: stage["standing"] for stage in row["points"][1]["stages"]}
    assert stages == {
        weak.name: int(robust_at(line, points, 0.01).sum()),
        strong.name: int(robust_at(line, points, 0.1).sum()),
    }
    assert stages[weak.name] > stages[strong.name]


def test_autoattack_is_the_default(templates: nn.Module, rows: Images) -> None:
    few = Images("few", rows.x[:2], rows.y[:2], rows.classes)
    finding = EpsSweep(Threat("linf", 0.2), factors=(1.0,))(templates, few)
    (row,) = finding.data["models"]
    assert finding.data["attack"] == autoattack(LINF).name
    assert [point["accuracy"] for point in row["points"]] == [1.0, 0.0]
    assert [s["name"] for s in row["points"][1]["stages"]] == ["apgd-ce", "apgd-t", "fab-t", "square"]
    assert [s["standing"] for s in row["points"][1]["stages"]] == [0, 0, 0, 0]
    assert (row["falls_monotonically"], row["reaches_zero"]) == (True, True)


def test_factors_beyond_the_range_of_a_pixel_are_left_out(line: nn.Module, points: Images) -> None:
    half = Threat("linf", 0.5)
    finding = EpsSweep(half, factors=(1.0, 2.0, 3.0), attack=PGD(half, steps=1, seed=0))(line, points)
    assert [point["eps"] for point in finding.data["models"][0]["points"]] == [0, 0.5, 1.0]


@pytest.mark.parametrize("factors", [(), (0.0, 1.0), (1.0, 0.5), (1.0, 1.0)])
def test_factors_that_make_no_sweep_are_refused(factors: tuple[float, ...]) -> None:
    with pytest.raises(UserError, match=r"eps_sweep\.factors: .*; accepted: rising numbers above 0"):
        EpsSweep(LINF, factors=factors)


@pytest.mark.parametrize("attack", [PGD(Threat("linf", 0.2)), PGD(Threat("l2", 0.1))])
def test_an_attack_of_another_threat_is_refused(attack: Attack) -> None:
    with pytest.raises(UserError, match=r"eps_sweep\.attack: is for Threat.*accepted: the analysis' own threat"):
        EpsSweep(LINF, attack=attack)


def test_the_table_of_steps_is_what_each_attack_leaves(line: nn.Module, points: Images) -> None:
    finding = PGDSteps(LINF, steps=(1, 2, 8), step=2.0)(line, points)
    (row,) = finding.data["models"]
    expected = robust_at(line, points, 0.1)
    assert row["clean"]["accuracy"] == 1
    assert [attack["steps"] for attack in row["attacks"]] == [1, 2, 8]
    assert [attack["correct"] for attack in row["attacks"]] == [int(expected.sum())] * 3
    assert finding.arrays["correct"][0, 1:].tolist() == [expected.tolist()] * 3
    assert finding.data["summary"][0].startswith("Line: clean 100.00%, PGD-1 ")


def test_a_shorter_reach_breaks_fewer(line: nn.Module, points: Images) -> None:
    rows = {step: PGDSteps(LINF, steps=(10,), step=step)(line, points).data["models"][0] for step in (0.1, 2.0)}
    assert rows[0.1]["attacks"][0]["correct"] > rows[2.0]["attacks"][0]["correct"]
