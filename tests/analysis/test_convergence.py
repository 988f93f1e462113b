"""Final losses and the way to them: closed forms on a line, and the attack's own result."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustvit.analysis import Convergence
from robustvit.analysis.convergence import Recorded
from robustvit.attacks import PGD, Queries
from robustvit.data import Images
from robustvit.models import Classifier
from robustvit.threat import Threat

LINF = Threat("linf", 0.1)
SMALL = Convergence(LINF, steps=(1, 4, 16), long_steps=20, points=4, restarts=3)


def largest_loss(line: nn.Module, points: Images) -> np.ndarray:
    margin = line(points.x)[:, 1] * torch.where(points.y == 1, 1.0, -1.0)
    return F.softplus(-margin + 0.1 * 10).numpy()


def test_on_a_line_every_number_of_steps_ends_at_the_same_loss(line: nn.Module, points: Images) -> None:
    final = SMALL(line, points).arrays["final"][0]
    assert final == pytest.approx(np.repeat(final[:, :, :1], 3, 2), rel=1e-5)
    assert (np.ptp(final, axis=1) > 0).all()  # from starts that differ


def test_on_a_line_large_steps_climb_without_falling_to_the_largest_loss_in_eight(line: nn.Module, points: Images) -> None:
    """Eight quarters of eps cross the ball, wherever a run starts."""
    finding = SMALL(line, points)
    path, best = finding.arrays["path"][0], largest_loss(line, points)[:4, None, None]
    assert path.shape == (4, 3, 21)
    assert (np.diff(path, axis=2) >= -1e-6).all()
    assert path[:, :, 8:] == pytest.approx(np.broadcast_to(best, (4, 3, 13)), rel=1e-5)
    assert (path[:, :, 0] < best[:, :, 0]).all()
    (row,) = finding.data["models"]
    assert 1 <= row["steps_until_near"] <= 8
    assert row["path"][-1] == pytest.approx(best.mean(), rel=1e-5)


def test_steps_that_cross_the_ball_leave_no_spread_between_starts(line: nn.Module, points: Images) -> None:
    (row,) = Convergence(LINF, steps=(1, 5), step=2.0, long_steps=1, points=4, restarts=5)(line, points).data["models"]
    assert [attack["spread"] for attack in row["attacks"]] == pytest.approx([0, 0], abs=1e-5)
    assert row["attacks"][0]["loss"] == pytest.approx(largest_loss(line, points)[:4].mean(), rel=1e-5)


def test_the_summary_is_of_the_arrays(trained_vit: Classifier, images: tuple[Tensor, Tensor]) -> None:
    finding = SMALL(trained_vit, images)
    (row,), final = finding.data["models"], finding.arrays["final"][0]
    assert [attack["loss"] for attack in row["attacks"]] == pytest.approx(final.mean((0, 1)).tolist(), rel=1e-5)
    spread = (final.max(1) - final.min(1)).mean(0)
    assert [attack["spread"] for attack in row["attacks"]] == pytest.approx(spread.tolist(), rel=1e-5)
    assert np.std(finding.arrays["path"][0, :, :, 0], axis=1).min() > 0
    assert (row["n"], row["restarts"]) == (4, 3)


def test_recording_changes_nothing_and_tells_the_loss_at_every_step(
    trained_vit: Classifier, images: tuple[Tensor, Tensor]
) -> None:
    x, y = images
    attack = PGD(LINF, steps=5, seed=3)
    recorded = Recorded(trained_vit)
    recorded.ledger.size = 5  # micro-batches do not show
    assert torch.equal(attack(recorded, x, y), attack(trained_vit, x, y))
    with torch.no_grad():
        shorter = [PGD(LINF, steps=n, step=2.5 / 5, step_unit="eps", seed=3)(trained_vit, x, y) for n in (1, 2, 3, 4)]
        losses = [F.cross_entropy(trained_vit(x_adv), y, reduction="none") for x_adv in shorter]
    assert len(recorded.losses) == 5
    for told, own in zip(recorded.losses[1:], losses, strict=True):
        torch.testing.assert_close(told, own, rtol=1e-3, atol=1e-4)


def test_a_recorder_is_itself_the_model_that_an_attack_asks(trained_vit: Classifier) -> None:
    recorded = Recorded(trained_vit)
    assert Queries.of(recorded) is recorded


def test_of_fewer_images_all_are_looked_at(line: nn.Module, points: Images) -> None:
    few = points.subset(slice(3))
    (row,) = Convergence(LINF, steps=(1, 2), long_steps=2, points=4, restarts=2)(line, few).data["models"]
    assert row["n"] == 3
