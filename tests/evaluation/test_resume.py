"""A killed evaluation goes on, processes share one, and the verdicts do not depend on either."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

from robustvit.attacks import APGD, PGD, Square, WorstOf
from robustvit.data import DataSpec
from robustvit.evaluation import Outcome, evaluate
from robustvit.models import Classifier
from robustvit.threat import Threat

THREAT = Threat("linf", 0.06)
ENSEMBLE = WorstOf((PGD(THREAT, steps=4, seed=0), APGD(THREAT, steps=25, seed=0), Square(THREAT, queries=60, seed=0)))
SCRIPT = """
import sys
from robustvit.evaluation import evaluate
from tests.evaluation.test_resume import ENSEMBLE
evaluate(sys.argv[1], "digits", [None, ENSEMBLE], sys.argv[2], images=90, window=10, device="cpu", checks=False)
"""
ROOT = Path(__file__).parents[2]
NAME = "worst-of_linf_0.06"


def command(run: Path, out: Path, *launcher: str) -> list[str]:
    script = out.parent / "script.py"
    script.write_text(SCRIPT)
    return [sys.executable, *launcher, str(script), str(run), str(out)]


def outcome(out: Path) -> Outcome:
    return Outcome.load(out / "outcomes" / f"{NAME}.json")


def same_verdicts(one: Outcome, other: Outcome) -> None:
    for name in ("index", "y", "clean_prediction", "attacked_prediction", "broken_by"):
        assert np.array_equal(one.arrays[name], other.arrays[name]), name
    assert np.array_equal(one.correct, other.correct)


@pytest.fixture(scope="module")
def undisturbed(trained_run: Path) -> Outcome:
    (found,) = evaluate(trained_run, "digits", [ENSEMBLE], images=90, window=10, device="cpu", checks=False)
    return found


def test_a_killed_evaluation_goes_on_with_the_same_verdicts(trained_run: Path, tmp_path: Path, undisturbed: Outcome) -> None:
    out, env = tmp_path / "out", os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command(trained_run, out), env=env, stderr=subprocess.DEVNULL)
    windows = out / "outcomes" / f"{NAME}.windows"
    deadline = time.monotonic() + 90
    while len(list(windows.glob("*.safetensors"))) < 3 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "outcomes" / f"{NAME}.json").exists()
    finished = sorted(windows.glob("*.safetensors"))[:2]
    written = [path.stat().st_mtime_ns for path in finished]

    subprocess.run(command(trained_run, out), env=env, check=True, stderr=subprocess.DEVNULL)
    assert [path.stat().st_mtime_ns for path in finished] == written
    same_verdicts(outcome(out), undisturbed)
    assert [stage["broken"] for stage in outcome(out).provenance["stages"]] == [
        stage["broken"] for stage in undisturbed.provenance["stages"]
    ]
    assert np.array_equal(outcome(out).arrays["example_attacked"], undisturbed.arrays["example_attacked"])


def test_two_processes_give_the_verdicts_of_one(trained_run: Path, tmp_path: Path, undisturbed: Outcome) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(command(trained_run, tmp_path / "out", *launcher), env=env, check=True, capture_output=True, timeout=120)
    same_verdicts(outcome(tmp_path / "out"), undisturbed)
    assert outcome(tmp_path / "out").provenance["processes"] == 2


@pytest.mark.parametrize(("window", "batch_size"), [(1, 1), (90, 7), (40, 200)])
def test_windows_and_micro_batches_do_not_change_a_verdict(
    window: int, batch_size: int, trained_run: Path, undisturbed: Outcome
) -> None:
    images = 90 if window > 1 else 12
    (found,) = evaluate(
        trained_run, "digits", [ENSEMBLE], images=images, window=window, batch_size=batch_size, device="cpu", checks=False
    )
    # Rounding differs with the batch: an image at the very boundary may fall on either side.
    assert (found.correct != undisturbed.correct[:images]).sum() <= images // 50


def test_a_finished_evaluation_is_not_made_again_but_another_one_is(trained_run: Path, tmp_path: Path) -> None:
    def run(seed: int) -> Outcome:
        attack = PGD(THREAT, steps=2, seed=seed)
        return evaluate(trained_run, "digits", [attack], tmp_path, images=20, device="cpu", checks=False)[0]

    first, again, other = run(0), run(0), run(1)
    assert again.provenance == first.provenance  # even the seconds: nothing was attacked
    assert other.provenance["seed"] == 1
    plan = json.loads((tmp_path / "outcomes" / "pgd-2_linf_0.06.windows" / "plan.json").read_text())
    assert plan["identity"]["seed"] == 1


class Around(nn.Module):
    """A model behind a step that has no weights of its own."""

    def __init__(self, model: nn.Module, step: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.step = model, step

    def forward(self, x: Tensor) -> Tensor:
        return self.model(self.step(x))


def rounded(x: Tensor) -> Tensor:
    return (8 * x).round() / 8


def straight_through(x: Tensor) -> Tensor:
    return x + (rounded(x) - x).detach()


def test_another_function_of_the_same_weights_is_another_evaluation(trained_vit: Classifier, tmp_path: Path) -> None:
    """Without its defence, or with a gradient where it had none: neither may inherit the other's verdicts."""

    def run(step: Callable[[Tensor], Tensor], out: Path | None) -> Outcome:
        attack, images = PGD(Threat("linf", 0.1), steps=5, seed=0), DataSpec("digits").load("test").subset(slice(20))
        return evaluate(Around(trained_vit, step), images, [attack], out, device="cpu", checks=False)[0]

    for step in (rounded, straight_through, lambda x: x):
        fresh = run(step, None)
        assert np.array_equal(run(step, tmp_path).correct, fresh.correct)
    assert run(rounded, None).accuracy > fresh.accuracy


def test_without_evidence_no_adversarial_image_is_kept(trained_run: Path, tmp_path: Path) -> None:
    attack = PGD(Threat("linf", 0.3), steps=3, seed=0)
    for evidence in (True, False):
        out = tmp_path / str(evidence)
        evaluate(trained_run, "digits", [attack], out, images=60, window=30, device="cpu", checks=False, evidence=evidence)
    sizes = [sum(f.stat().st_size for f in (tmp_path / str(e)).rglob("window-0001*")) for e in (True, False)]
    assert sizes[0] > 8 * 8 * 4 * 10 > sizes[1] / 2
