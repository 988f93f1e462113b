"""What many tests share: the tiny ViT, a few real images, and one thread for each process."""

import os

# Before torch is loaded, and inherited by every process a test starts: more threads than cores make tiny models crawl.
os.environ["OMP_NUM_THREADS"] = "1"

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from robustvit.cli import main
from robustvit.config import Recipe, override
from robustvit.data import DataSpec
from robustvit.models import Classifier, ModelSpec, build, load_model
from robustvit.recipes import RECIPES
from robustvit.training.loop import fit

torch.set_num_threads(1)


@pytest.fixture
def tiny_vit() -> Classifier:
    """A freshly initialised `vit_nano` for 1×8×8 images; the caller's random state is kept."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build(ModelSpec("vit_nano", channels=1)).eval()


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder: `digits-standard`, shortened to some seconds."""
    recipe = override(RECIPES["digits-standard"](), ["phases.0.epochs=6", "optim.schedule.warmup=1"])
    with torch.random.fork_rng(devices=[]):
        return fit(recipe, tmp_path_factory.mktemp("runs") / "trained", "cpu")


@pytest.fixture
def trained_vit(trained_run: Path) -> Classifier:
    """A `vit_nano` that reads most digits: where an untrained one is too close to linear to tell attacks apart."""
    return load_model(trained_run)


@pytest.fixture(scope="session")
def digit_batch() -> tuple[Tensor, Tensor]:
    return DataSpec("digits").load("test").batch(slice(0, 16))


@pytest.fixture
def images(digit_batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Sixteen digits: x [16, 1, 8, 8] in [0, 1], y [16]."""
    x, y = digit_batch
    return x.clone(), y.clone()


@pytest.fixture(scope="session")
def few_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An .npz of 200 training and 40 test digits."""
    path = tmp_path_factory.mktemp("data") / "few.npz"
    train, test = (DataSpec("digits").load(split) for split in ("train", "test"))
    np.savez(
        path,
        x_train=train.x[:200, 0].numpy(),
        y_train=train.y[:200].numpy(),
        x_test=test.x[:40, 0].numpy(),
        y_test=test.y[:40].numpy(),
        classes=np.arange(10).astype(str),
    )
    return path


@pytest.fixture
def small(few_digits: Path) -> Recipe:
    """Two epochs of five steps on `few_digits`: 20 of the 200 images are held out, batches have 32."""
    overrides = ["data.source=npz", f"data.path={few_digits}", "batch_size=32", "phases.0.epochs=2", "model.args.depth=1"]
    return override(RECIPES["digits-standard"](), [*overrides, "optim.schedule.warmup=0"])


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: its exit status and its two streams."""

    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Ended]:
    """A `robustvit` command line in this process and in an empty folder; what escapes `main` would be a traceback."""
    monkeypatch.chdir(tmp_path)

    def run(line: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["robustvit", *shlex.split(line)])
        with torch.random.fork_rng(devices=[]), pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        told = isinstance(stop.value.code, str)  # sys.exit(TEXT) prints it and ends with 1
        return Ended(1 if told else stop.value.code or 0, out, err + (stop.value.code if told else ""))

    return run
