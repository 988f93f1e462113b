"""A run that is killed and started again ends bit for bit where an undisturbed one does."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from robustvit import config
from robustvit.attacks import PGD
from robustvit.config import Recipe
from robustvit.data import DataSpec, hold_out
from robustvit.data.augment import Flip, MixupOrCutMix, PadCrop
from robustvit.evaluation.judge import judge
from robustvit.models import ModelSpec, load_model
from robustvit.objectives import AWP, PGDAT, TRADES
from robustvit.threat import Threat
from robustvit.training import checkpoint
from robustvit.training.loop import fit
from robustvit.training.schedule import Linear, Phase

FIT = "import sys; from robustvit.config import load; from robustvit.training.loop import fit; "
FIT += "fit(load(__import__('pathlib').Path(sys.argv[1])), sys.argv[2], 'cpu', save_every=int(sys.argv[3]))"


@pytest.fixture
def hard(small: Recipe) -> Recipe:
    """Everything that comes and goes: phases, warm-ups, augmentation, perturbed weights, accumulation, clipping, selection."""
    adversary = PGD(Threat("linf", 0.1), steps=1)
    return replace(
        small,
        phases=(
            Phase(PGDAT(adversary), 3, eps=Linear(2), augment=Linear(1), awp=AWP(0.01, start_epoch=1)),
            Phase(TRADES(replace(adversary, loss="kl")), 2, trainable="*blocks*", awp=AWP(0.005, start_epoch=0)),
        ),
        data=replace(small.data, augment=(PadCrop(1), Flip(), MixupOrCutMix(prob=0.5))),
        ema=0.9,
        accumulate=2,
        clip=1.0,
        select=replace(adversary, seed=0),
    )


def start(recipe: Path, out: Path, save_every: int) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", FIT, recipe, out, str(save_every)], stderr=subprocess.PIPE, text=True)


def steps_done(out: Path) -> int:
    """As the log says; it may be a little ahead of the checkpoint."""
    log = out / "metrics.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return json.loads(lines[-1])["step"] if lines and lines[-1].endswith("}") else 0


def kill_after(process: subprocess.Popen, out: Path, step: int) -> None:
    deadline = time.monotonic() + 120
    while steps_done(out) < step and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def same(one: Path, other: Path) -> None:
    for name in ("best", "last", "resume"):
        (a, meta_a), (b, meta_b) = (checkpoint.read(f / "checkpoints" / f"{name}.safetensors") for f in (one, other))
        assert meta_a == meta_b, name
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a), name
    assert (one / "metrics.jsonl").read_text() == (other / "metrics.jsonl").read_text()


def test_killed_at_many_moments_the_run_ends_with_the_same_bits(hard: Recipe, tmp_path: Path) -> None:
    """25 steps, saved at every one: kills fall into phases, between them, and wherever a save happens to be."""
    recipe, whole, broken = tmp_path / "recipe.yaml", tmp_path / "whole", tmp_path / "broken"
    config.save(hard, recipe)
    fit(hard, whole, "cpu", save_every=1)
    kills = 0
    for step in (1, 4, 5, 9, 15, 16, 24):
        process = start(recipe, broken, save_every=1)
        kill_after(process, broken, step)
        kills += process.returncode == -signal.SIGKILL
    assert kills >= 5
    assert start(recipe, broken, save_every=1).wait() == 0
    same(whole, broken)


def test_killed_between_two_saves_the_run_repeats_the_lost_steps_exactly(hard: Recipe, tmp_path: Path) -> None:
    """Saved at the ends of epochs only: after the log says step 5, the kill loses part of the next epoch."""
    recipe, whole, broken = tmp_path / "recipe.yaml", tmp_path / "whole", tmp_path / "broken"
    config.save(hard, recipe)
    fit(hard, whole, "cpu")
    process = start(recipe, broken, save_every=500)
    kill_after(process, broken, 5)
    assert process.returncode == -signal.SIGKILL
    assert not (broken / "checkpoints" / "last.safetensors").exists()
    fit(hard, broken, "cpu")
    same(whole, broken)


REMEMBERING = ModelSpec(
    "levit_128s", channels=1, args={"img_size": 64, "embed_dim": [32, 48, 64], "num_heads": [2, 3, 4], "depth": [1, 1, 1]}
)


def test_a_model_that_remembers_its_weights_in_eval_mode_is_judged_by_those_it_has(small: Recipe, tmp_path: Path) -> None:
    """LeViT keeps its attention biases between forward passes, until it is told to train."""
    x, y = DataSpec("digits").load("train").batch(slice(0, 120))
    large = interpolate(x, 64).permute(0, 2, 3, 1).numpy()
    np.savez(tmp_path / "large.npz", x_train=large, y_train=y, x_test=large[:8], y_test=y[:8])
    adversary = PGD(Threat("linf", 0.1), steps=1)
    recipe = replace(
        small,
        model=REMEMBERING,
        data=DataSpec("npz", str(tmp_path / "large.npz")),
        phases=(Phase(PGDAT(adversary), 2),),
        optim=replace(small.optim, lr=0.05),  # far enough for old biases to be wrong ones
        ema=0.5,
        select=replace(adversary, seed=0),
    )
    whole, broken = fit(recipe, tmp_path / "whole", "cpu"), tmp_path / "broken"
    config.save(recipe, tmp_path / "recipe.yaml")
    kill_after(start(tmp_path / "recipe.yaml", broken, save_every=1), broken, 2)
    fit(recipe, broken, "cpu", save_every=1)
    a, b = (checkpoint.read(folder / "checkpoints" / "last.safetensors")[0] for folder in (whole, broken))
    assert all(torch.equal(a[name], b[name]) for name in a)
    _, held_out = hold_out(recipe.data.load("train"), recipe.seed)
    logged = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    last = [line["held_out_accuracy"] for line in logged if "held_out_accuracy" in line][-1]
    assert last == judge(load_model(whole, "last"), held_out, recipe.select).correct.float().mean()


def test_killed_while_a_file_is_being_written_the_old_one_counts(hard: Recipe, tmp_path: Path) -> None:
    """What a kill in the middle of a save leaves: a partial file and a log that is ahead, its last line cut short."""
    whole, broken = fit(hard, tmp_path / "whole", "cpu", save_every=1), tmp_path / "broken"
    recipe = tmp_path / "recipe.yaml"
    config.save(hard, recipe)
    kill_after(start(recipe, broken, save_every=1), broken, 7)
    (broken / "checkpoints" / "resume.safetensors.partial").write_bytes(b"half a file")
    with open(broken / "metrics.jsonl", "ab") as log:
        log.write(b'{"step": 8, "epo\xff')
    fit(hard, broken, "cpu", save_every=1)
    same(whole, broken)
    assert {path.name for path in (broken / "checkpoints").iterdir()} == {
        f"{name}.safetensors" for name in ("best", "last", "resume")
    }
