"""The same recipe on two processes."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from robustvit import config
from robustvit.attacks import PGD
from robustvit.config import Recipe
from robustvit.data.augment import Erasing, Flip, PadCrop
from robustvit.objectives import AWP, TRADES, Standard
from robustvit.threat import Threat
from robustvit.training import checkpoint
from robustvit.training.loop import fit
from robustvit.training.schedule import Phase


def launch(recipe: Path, out: Path) -> subprocess.CompletedProcess:
    # accelerate's own launcher starts several CPU processes only through MPI; on GPUs it does what torchrun does.
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [*launcher, "-m", "robustvit", "train", str(recipe), "--out", str(out), "--device", "cpu"]
    command += ["--track", "tensorboard"]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=90)


@pytest.fixture
def phased(small: Recipe) -> Recipe:
    """What is random inside a step belongs to the image, so that the number of processes may change rounding alone."""
    adversary = PGD(Threat("linf", 0.1), steps=1, random_start=False, loss="cross_entropy")
    phases = (Phase(Standard(), 1), Phase(TRADES(adversary), 1, trainable="*blocks*", awp=AWP(0.01, 0)))
    data = replace(small.data, augment=(PadCrop(1), Flip(), Erasing()))
    return replace(small, phases=phases, data=data, accumulate=2, optim=replace(small.optim, type="sgd", lr=0.1), ema=0.9)


def test_two_processes_train_the_model_that_one_does(phased: Recipe, tmp_path: Path) -> None:
    config.save(phased, tmp_path / "recipe.yaml")
    result = launch(tmp_path / "recipe.yaml", tmp_path / "two")
    assert result.returncode == 0, result.stderr
    one, two = (fit(phased, tmp_path / "one", "cpu"), tmp_path / "two")
    for name in ("best", "last"):
        a, b = (checkpoint.read(run / "checkpoints" / f"{name}.safetensors")[0] for run in (one, two))
        for key in a:
            torch.testing.assert_close(a[key], b[key], rtol=1e-4, atol=1e-5)
    lines = [(run / "metrics.jsonl").read_text().splitlines() for run in (one, two)]
    assert len(lines[0]) == len(lines[1])
    assert len(list((two / "tensorboard").glob("events.out.*"))) == 1  # only the main process tells


def test_an_error_on_two_processes_is_told_without_hanging(phased: Recipe, tmp_path: Path) -> None:
    config.save(replace(phased, batch_size=34), tmp_path / "recipe.yaml")
    result = launch(tmp_path / "recipe.yaml", tmp_path / "two")
    assert result.returncode != 0
    assert "batch_size: 34 does not divide into accumulate 2 × 2 processes" in result.stderr
