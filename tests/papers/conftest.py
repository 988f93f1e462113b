"""A scale of seconds, and a grid of models that all tests of a process share."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robustvit.data import DataSpec
from robustvit.data.augment import PadCrop
from robustvit.papers.grid import Grid
from robustvit.papers.scale import Scale
from robustvit.papers.scales import TINY
from robustvit.papers.sets import Set


@pytest.fixture(scope="session")
def quick(few_digits: Path) -> Scale:
    few = Set("few", 200, 40, 8, 10, spec=DataSpec("npz", str(few_digits)), channels=1, basic=(PadCrop(1),))
    return replace(
        TINY,
        name="quick",
        sets=dict.fromkeys(TINY.sets, few),
        epochs=dict.fromkeys(TINY.epochs, 1),
        batch_size=64,
        images=16,
        attacked=12,
        climbed=8,
        iterations=2,
        restarts=1,
        queries=4,
        longest=3,
        points=2,
        starts=2,
        every=1,
    )


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Noise in the shape of digits, for what is to be generated."""
    path = tmp_path_factory.mktemp("generated") / "generated.npz"
    rng = np.random.default_rng(0)
    np.savez(path, image=rng.integers(0, 256, (64, 8, 8, 1), dtype=np.uint8), label=np.arange(64) % 10)
    return {"generated": str(path)}


@pytest.fixture(scope="session")
def grid(tmp_path_factory: pytest.TempPathFactory, quick: Scale, places: Mapping[str, str]) -> Grid:
    return Grid(quick, tmp_path_factory.mktemp("grid"), places, "cpu")


@pytest.fixture(scope="session")
def tiny_grid(tmp_path_factory: pytest.TempPathFactory) -> Grid:
    return Grid(TINY, tmp_path_factory.mktemp("tiny"), {}, "cpu")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"
