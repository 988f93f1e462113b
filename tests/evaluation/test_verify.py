"""Evidence proves an outcome, and every way of tampering with it shows."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from robustvit import storage
from robustvit.attacks import PGD
from robustvit.cli import app
from robustvit.errors import UserError
from robustvit.evaluation import evaluate, verify
from robustvit.threat import Threat

NAME = "pgd-5_linf_0.03"


@pytest.fixture
def judged(trained_run: Path, tmp_path: Path) -> Path:
    attack = PGD(Threat("linf", 0.03), steps=5, seed=0)
    evaluate(trained_run, "digits", [attack], tmp_path, images=30, window=16, device="cpu", checks=False)
    return tmp_path / "outcomes" / f"{NAME}.json"


def change(path: Path, name: str, edit) -> None:
    """Edit one tensor of the first window's evidence."""
    window = path.with_name(f"{NAME}.windows") / "window-0000.safetensors"
    tensors, meta = storage.read(window)
    edit(tensors[name])
    storage.write(window, tensors, meta)


def test_an_honest_outcome_holds(judged: Path) -> None:
    result = verify(judged)
    assert result.violations == []
    assert 5 < (result.outcome.arrays["broken_by"] == 0).sum() < 29
    assert "adversarial examples inside ball and box" in str(result)


def edit_array(path: Path, name: str, edit) -> None:
    with np.load(path.with_suffix(".npz")) as file:
        arrays = dict(file)
    edit(arrays[name])
    np.savez(path.with_suffix(".npz"), **arrays)


def edit_summary(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def claim_fall(path: Path) -> None:
    """Call a robust image broken in all tables, with a grey image as its evidence."""
    with np.load(path.with_suffix(".npz")) as file:
        arrays = dict(file)
    row = int(np.flatnonzero(arrays["correct"][:16])[0])
    wrong = (arrays["y"][row] + 1) % 10
    arrays["correct"][row], arrays["attacked_prediction"][row], arrays["broken_by"][row] = False, wrong, 0
    np.savez(path.with_suffix(".npz"), **arrays)
    window = path.with_name(f"{NAME}.windows") / "window-0000.safetensors"
    tensors, meta = storage.read(window)
    before = int((tensors["broken_by"][:row] >= 0).sum())
    image = torch.full_like(tensors["examples"][:1], 0.5)
    tensors["examples"] = torch.cat([tensors["examples"][:before], image, tensors["examples"][before:]])
    tensors["broken_by"][row], tensors["attacked"][row] = 0, int(wrong)
    storage.write(window, tensors, meta)
    correct, n = int(arrays["correct"].sum()), len(arrays["correct"])
    from robustvit.evaluation.outcome import wilson

    edit_summary(path, correct=correct, accuracy=correct / n, interval_95=list(wilson(correct, n)))


TAMPERED = {
    "an example outside the ball": (lambda p: change(p, "examples", lambda t: t[0].copy_(1 - t[0])), "above eps"),
    "an example outside the box": (lambda p: change(p, "examples", lambda t: t[0].sub_(0.02)), "outside"),
    "a flipped prediction": (lambda p: change(p, "attacked", lambda t: t[0].add_(1)), "attacked_prediction differs"),
    "a flipped verdict": (lambda p: edit_array(p, "correct", lambda a: a.__setitem__(0, not a[0])), "the results beside it"),
    "a better summary": (lambda p: edit_summary(p, accuracy=1.0), "accuracy: 1.0 said"),
    "a larger count": (lambda p: edit_summary(p, correct=30), "says 30 of 30 correct"),
    "a wider threat": (lambda p: edit_summary(p, threat={"norm": "linf", "eps": 0.01}), "above eps 0.01"),
    "other images": (lambda p: edit_array(p, "index", lambda a: a.__iadd__(1)), "not the images that were judged"),
    "a fall that was none": (claim_fall, "above eps|classified correctly"),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_tampering_is_a_violation(how: str, judged: Path) -> None:
    tamper, message = TAMPERED[how]
    tamper(judged)
    # Files that contradict each other are not even read.
    found = CliRunner().invoke(app, ["verify", str(judged)])
    assert found.exit_code == 1
    assert any(part in found.output + str(found.exception) for part in message.split("|"))


def test_another_model_is_a_violation(judged: Path, trained_run: Path) -> None:
    result = verify(judged, model=str(trained_run / "checkpoints" / "last.safetensors"))
    assert any("fingerprint" in violation for violation in result.violations)


def test_the_command_exits_with_1_on_a_violation_alone(judged: Path) -> None:
    runner = CliRunner()
    honest = runner.invoke(app, ["verify", str(judged)])
    assert (honest.exit_code, "VIOLATION" in honest.output) == (0, False)
    TAMPERED["an example outside the ball"][0](judged)
    tampered = runner.invoke(app, ["verify", str(judged)])
    assert (tampered.exit_code, "VIOLATION" in tampered.output) == (1, True)


def test_what_cannot_be_verified_is_an_error(trained_run: Path, tmp_path: Path, judged: Path) -> None:
    evaluate(trained_run, "digits", [None], tmp_path / "clean", images=5, device="cpu")
    with pytest.raises(UserError, match="holds no evidence"):
        verify(tmp_path / "clean" / "outcomes" / "clean.json")
    (judged.with_name(f"{NAME}.windows") / "window-0001.safetensors").unlink()
    with pytest.raises(UserError, match="evidence of images 15 to 29"):
        verify(judged)
    with pytest.raises(UserError, match=r"nowhere\.json"):
        verify(tmp_path / "nowhere.json")
