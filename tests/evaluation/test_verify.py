"""Evidence proves an outcome, and every way of tampering with it shows."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from robustvit import storage
from robustvit.attacks import EOT, PGD
from robustvit.cli import app
from robustvit.data import DataSpec
from robustvit.errors import UserError
from robustvit.evaluation import evaluate, verify
from robustvit.evaluation.outcome import wilson
from robustvit.models import Classifier
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


class Coin(nn.Module):
    """A digit model whose answers are random, and so another's when another image is asked about with it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x + 0.1 * torch.randn_like(x))


@pytest.mark.parametrize("draws", [1, 4])
def test_a_random_model_s_outcome_holds(draws: int, trained_vit: Classifier, tmp_path: Path) -> None:
    attack = EOT(PGD(Threat("linf", 0.1), steps=3, seed=0), draws)
    (outcome,) = evaluate(Coin(trained_vit), "digits", attack, tmp_path, images=100, window=70, device="cpu", checks=False)
    assert 20 < (outcome.arrays["broken_by"] >= 0).sum() < 90
    (path,) = (tmp_path / "outcomes").glob("*.json")
    assert verify(path, Coin(trained_vit), device="cpu").violations == []


def replace(path: Path, name: str, make) -> None:
    window = path.with_name(f"{NAME}.windows") / "window-0000.safetensors"
    tensors, meta = storage.read(window)
    storage.write(window, tensors | {name: make(tensors[name])}, meta)


def edit_plan(path: Path, **changes) -> None:
    plan = path.with_name(f"{NAME}.windows") / "plan.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | changes))


def edit_array(path: Path, name: str, edit, keep: int | None = None) -> None:
    with np.load(path.with_suffix(".npz")) as file:
        arrays = dict(file)
    edit(arrays[name])
    arrays[name] = arrays[name][:keep]
    np.savez(path.with_suffix(".npz"), **arrays)


def edit_summary(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def claim_smaller_eps(path: Path) -> None:
    smaller = {"threat": {"norm": "linf", "eps": 0.01}}
    edit_summary(path, **smaller)
    held = json.loads((path.with_name(f"{NAME}.windows") / "plan.json").read_text())["identity"]
    edit_plan(path, identity=held | smaller)


def claim_fewer_passes(path: Path) -> None:
    stages = json.loads(path.read_text())["stages"]
    edit_summary(path, stages=[stages[0] | {"backward": 1}])


def fallen(path: Path) -> int:
    with np.load(path.with_suffix(".npz")) as file:
        return int(np.flatnonzero(file["broken_by"][:15] >= 0)[0])


def claim_other_class(path: Path) -> None:
    row = fallen(path)
    with np.load(path.with_suffix(".npz")) as file:
        y, attacked = int(file["y"][row]), int(file["attacked_prediction"][row])
    other = next(k for k in range(10) if k not in (y, attacked))
    edit_array(path, "attacked_prediction", lambda a: a.__setitem__(row, other))
    change(path, "attacked", lambda t: t[row].fill_(other))


def claim_stand(path: Path) -> None:
    """In all tables: what gives it away is that the stage counted one more."""
    row = fallen(path)
    with np.load(path.with_suffix(".npz")) as file:
        y, before = int(file["y"][row]), int((file["broken_by"][:row] >= 0).sum())
        correct, n = int(file["correct"].sum()) + 1, len(file["correct"])
    for name, value in {"attacked_prediction": y, "broken_by": -1, "correct": True}.items():
        edit_array(path, name, lambda a, value=value: a.__setitem__(row, value))
    change(path, "attacked", lambda t: t[row].fill_(y))
    change(path, "broken_by", lambda t: t[row].fill_(-1))
    replace(path, "examples", lambda t: torch.cat([t[:before], t[before + 1 :]]))
    edit_summary(path, correct=correct, accuracy=correct / n, interval_95=list(wilson(correct, n)))


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
    edit_summary(path, correct=correct, accuracy=correct / n, interval_95=list(wilson(correct, n)))


TAMPERED = {
    "an example outside the ball": (lambda p: change(p, "examples", lambda t: t[0].copy_(1 - t[0])), "above eps"),
    "an example outside the box": (lambda p: change(p, "examples", lambda t: t[0].sub_(0.02)), "outside"),
    "a flipped prediction": (lambda p: change(p, "attacked", lambda t: t[0].add_(1)), "attacked_prediction differs"),
    "a flipped verdict": (lambda p: edit_array(p, "correct", lambda a: a.__setitem__(0, not a[0])), "the results beside it"),
    "a better summary": (lambda p: edit_summary(p, accuracy=1.0), "accuracy: 1.0 said"),
    "a larger count": (lambda p: edit_summary(p, correct=30), "says 30 of 30 correct"),
    "a smaller threat": (lambda p: edit_summary(p, threat={"norm": "linf", "eps": 0.01}), "threat: {"),
    "a larger threat": (lambda p: edit_summary(p, threat={"norm": "linf", "eps": 0.5}), "threat: {"),
    "a smaller threat in the plan too": (claim_smaller_eps, "above eps 0.01"),
    "a stronger attack": (lambda p: edit_summary(p, attack={"type": "pgd", "steps": 500}), "attack: {"),
    "another seed": (lambda p: edit_summary(p, seed=1), "seed: 1 said"),
    "another name": (lambda p: edit_summary(p, name="autoattack-standard linf 0.03"), "is not that of pgd-5_linf_0.03.json"),
    "other counts of the stages": (claim_fewer_passes, "stages: not those of the windows"),
    "a window left out": (lambda p: edit_plan(p, windows=[[0, 15]]), "do not hold each of the 30 images once"),
    "a window twice": (lambda p: edit_plan(p, windows=[[0, 15], [0, 15]]), "do not hold each of the 30 images once"),
    "windows that are none": (lambda p: edit_plan(p, windows=[["a", 1]]), "do not hold each of the 30 images once"),
    "another wrong class": (claim_other_class, "its example is predicted"),
    "a fallen image called robust": (claim_stand, "window 0, pgd-5"),
    "an image twice": (lambda p: edit_array(p, "index", lambda a: a.__setitem__(1, a[0])), "index: not each image once"),
    "an image that is not there": (lambda p: edit_array(p, "index", lambda a: a.__setitem__(29, 10**6)), "not the images"),
    "an example less": (lambda p: replace(p, "examples", lambda t: t[1:]), "not the results of a window"),
    "no threat": (lambda p: edit_summary(p, threat=None), "not a readable outcome"),
    "no number of draws": (lambda p: edit_summary(p, draws="many"), "not a readable outcome"),
    "labels of no image": (lambda p: edit_array(p, "y", lambda a: None, keep=3), "not a readable outcome"),
    "other images": (lambda p: edit_array(p, "index", lambda a: a.__iadd__(1)), "chosen: .* said"),
    "a fall that was none": (claim_fall, "above eps|classified correctly"),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_tampering_is_a_violation(how: str, judged: Path) -> None:
    tamper, message = TAMPERED[how]
    tamper(judged)
    # Files that contradict each other are not even read.
    found = CliRunner().invoke(app, ["verify", str(judged)])
    assert found.exit_code == 1
    assert re.search(message, found.output + str(found.exception))


def test_a_module_and_images_from_python_are_verified_too(trained_vit: Classifier, tmp_path: Path) -> None:
    images, attack = DataSpec("digits").load("test").subset(slice(20)), PGD(Threat("linf", 0.03), steps=5, seed=0)
    evaluate(trained_vit, images, [attack], tmp_path, device="cpu", checks=False)
    path = tmp_path / "outcomes" / f"{NAME}.json"
    trained_vit.train()
    assert verify(path, trained_vit, images).violations == []
    assert trained_vit.training
    assert verify(path, trained_vit, images.subset(slice(19))).violations == ["data: not the images that were judged"]


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
