"""The same recipe on two processes."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from robustvit import config, storage
from robustvit.attacks import PGD
from robustvit.config import Recipe
from robustvit.data.augment import Erasing, Flip, PadCrop
from robustvit.objectives import AWP, PGDAT, TRADES, Standard
from robustvit.threat import Threat
from robustvit.training import checkpoint
from robustvit.training.loop import fit
from robustvit.training.schedule import Constant, Phase


def launch(recipe: Path, out: Path, *overrides: str) -> subprocess.CompletedProcess:
    # accelerate's own launcher starts several CPU processes only through MPI; on GPUs it does what torchrun does.
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [*launcher, "-m", "robustvit", "train", str(recipe), *overrides, "--out", str(out), "--device", "cpu"]
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


def test_running_statistics_are_the_same_everywhere_so_that_a_run_goes_on_exactly(small: Recipe, tmp_path: Path) -> None:
    """Each process sees other images; without an exchange only the first one's statistics would come back."""
    args = {"channels": [8, 8, 16, 16], "stem_width": 8}
    adversary = PGD(Threat("linf", 0.1), steps=1)
    recipe = replace(
        small,
        model=replace(small.model, name="resnet_mini", args=args),
        phases=(Phase(PGDAT(adversary), 2),),
        optim=replace(small.optim, schedule=Constant()),  # which does not ask how long the run is
        ema=0.9,
        select=replace(adversary, seed=0),
    )
    config.save(recipe, tmp_path / "recipe.yaml")
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert launch(tmp_path / "recipe.yaml", whole).returncode == 0
    assert launch(tmp_path / "recipe.yaml", stopped, "phases.0.epochs=1").returncode == 0
    # A run of one epoch is what one of two looks like after its first, but for what its state says of itself.
    state = stopped / "checkpoints" / "resume.safetensors"
    tensors, meta = storage.read(state)
    meta["state"]["recipe"] = recipe.hash()
    storage.write(state, tensors, meta)
    config.save(recipe, stopped / "recipe.yaml")
    (stopped / "checkpoints" / "last.safetensors").unlink()
    result = launch(tmp_path / "recipe.yaml", stopped)
    assert result.returncode == 0, result.stderr
    a, b = (checkpoint.read(run / "checkpoints" / "last.safetensors")[0] for run in (whole, stopped))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_an_error_on_two_processes_is_told_without_hanging(phased: Recipe, tmp_path: Path) -> None:
    config.save(replace(phased, batch_size=34), tmp_path / "recipe.yaml")
    result = launch(tmp_path / "recipe.yaml", tmp_path / "two")
    assert result.returncode != 0
    assert "batch_size: 34 does not divide into accumulate 2 × 2 processes" in result.stderr
