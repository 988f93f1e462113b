"""A killed evaluation goes on, processes share one, and the verdicts do not depend on either."""

import os
import shutil
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
from robustvit.errors import UserError
from robustvit.evaluation import Outcome, evaluate, verify
from robustvit.models import Classifier
from robustvit.threat import Threat

THREAT = Threat("linf", 0.06)
ENSEMBLE = WorstOf((PGD(THREAT, steps=4, seed=0), APGD(THREAT, steps=25, seed=0), Square(THREAT, queries=60, seed=0)))
SCRIPT = """
import os
import sys
from pathlib import Path
from robustvit.evaluation import evaluate
from tests.evaluation.test_resume import ENSEMBLE
window = 10 + 7 * int(os.environ.get("RANK", 0))  # as where a process has more memory free
given = {"images": 90, "window": window, "device": "cpu", "checks": False}
evaluate(sys.argv[1], "digits", [None, ENSEMBLE], sys.argv[2], **given)
if int(os.environ.get("RANK", 1)) == 0:
    evaluate(sys.argv[1], "digits", [ENSEMBLE], **given)[0].save(Path(sys.argv[2]) / "nowhere")
elif "RANK" in os.environ:
    evaluate(sys.argv[1], "digits", [ENSEMBLE], **given)
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
    same_verdicts(Outcome.load(tmp_path / "out" / "nowhere" / f"{NAME}.json"), undisturbed)  # made without a folder


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


def test_warnings_stay_when_the_same_evaluation_is_asked_for_without_checks(trained_vit: Classifier, tmp_path: Path) -> None:
    model = nn.Sequential(trained_vit, nn.Softmax(1))
    attack = PGD(THREAT, steps=2, seed=0)

    def warned(checks: bool) -> tuple[bool, list[str]]:
        (found,) = evaluate(model, "digits", attack, tmp_path, images=20, device="cpu", checks=checks)
        return found.provenance["checked"], [warning["name"] for warning in found.provenance["warnings"]]

    assert [warned(False), warned(True), warned(False)] == [(False, []), (True, ["softmax-output"]), (True, ["softmax-output"])]


def test_a_finished_evaluation_is_not_made_again_and_is_not_lost_to_another_one(trained_run: Path, tmp_path: Path) -> None:
    def run(seed: int, images: int = 20) -> Outcome:
        attack = PGD(THREAT, steps=2, seed=seed)
        return evaluate(trained_run, "digits", attack, tmp_path, images=images, device="cpu", checks=False)[0]

    first, again, other, fewer = run(0), run(0), run(1), run(0, 5)
    assert again.provenance == first.provenance  # even the seconds: nothing was attacked
    assert (first.name, other.name, fewer.name) == tuple(f"pgd-2 linf 0.06{number}" for number in ("", " #2", " #3"))
    assert run(1).provenance == other.provenance
    assert run(0, 5).provenance == fewer.provenance
    for number, (n, seed) in {"": (20, 0), "_#2": (20, 1), "_#3": (5, 0)}.items():
        kept = Outcome.load(tmp_path / "outcomes" / f"pgd-2_linf_0.06{number}.json")
        assert (kept.n, kept.provenance["seed"]) == (n, seed)
        assert verify(tmp_path / "outcomes" / f"pgd-2_linf_0.06{number}.json").violations == []


def test_a_folder_is_for_one_model_on_one_set(trained_run: Path, few_digits: Path, tmp_path: Path) -> None:
    def run(model: str | Path, data: str, out: Path) -> None:
        evaluate(model, data, [None], out, images=5, device="cpu")

    run(trained_run, "digits", tmp_path / "out")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"out: .* is for another model: .*Pass another --out"):
        run("zoo:digits-robust", "digits", tmp_path / "out")
    with pytest.raises(UserError, match=r"is for another set of images"):
        run(trained_run, f"npz:{few_digits}", tmp_path / "out")
    (tmp_path / "run").mkdir()
    shutil.copytree(trained_run / "checkpoints", tmp_path / "run" / "checkpoints")
    with pytest.raises(UserError, match=r"another model: the run's own is [0-9a-f]{16}"):
        run("zoo:digits-robust", "digits", tmp_path / "run")
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_set_that_was_changed_in_place_is_another_one(trained_run: Path, tmp_path: Path) -> None:
    """The same labels and the same first images; only the others are shuffled."""
    test = DataSpec("digits").load("test")
    x, y = test.x[:60, 0].numpy(), test.y[:60].numpy()
    for order in (np.arange(60), np.r_[np.arange(8), 59:7:-1]):
        np.savez(tmp_path / "set.npz", x_test=x[order], y_test=y)
        if order[-1] == 59:
            evaluate(trained_run, f"npz:{tmp_path / 'set.npz'}", [None], tmp_path / "out", device="cpu")
    with pytest.raises(UserError, match="another set of images"):
        evaluate(trained_run, f"npz:{tmp_path / 'set.npz'}", [None], tmp_path / "out", device="cpu")


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


def test_another_function_of_the_same_weights_is_another_model(trained_vit: Classifier, tmp_path: Path) -> None:
    """Without its defence, or with a gradient where it had none: neither may inherit the other's verdicts."""

    def run(step: Callable[[Tensor], Tensor], out: Path | None) -> Outcome:
        attack, images = PGD(Threat("linf", 0.1), steps=5, seed=0), DataSpec("digits").load("test").subset(slice(20))
        return evaluate(Around(trained_vit, step), images, [attack], out, device="cpu", checks=False)[0]

    run(rounded, tmp_path)
    for step in (straight_through, lambda x: x):
        with pytest.raises(UserError, match="another model: one of the same weights that answers differently"):
            run(step, tmp_path)
    assert run(rounded, None).accuracy > run(lambda x: x, None).accuracy


def test_without_evidence_no_adversarial_image_is_kept(trained_run: Path, tmp_path: Path) -> None:
    attack = PGD(Threat("linf", 0.3), steps=3, seed=0)
    for evidence in (True, False):
        out = tmp_path / str(evidence)
        evaluate(trained_run, "digits", [attack], out, images=60, window=30, device="cpu", checks=False, evidence=evidence)
    sizes = [sum(f.stat().st_size for f in (tmp_path / str(e)).rglob("window-0001*")) for e in (True, False)]
    assert sizes[0] > 8 * 8 * 4 * 10 > sizes[1] / 2
