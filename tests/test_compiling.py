"""Faster forms of a model are the same function, and are taken only where they pay."""

import json
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor

from robustvit.attacks import Queries, autoattack
from robustvit.attacks.losses import cross_entropy
from robustvit.compiling import PAYS_FROM, Compiled, Trial, frozen_twin
from robustvit.config import override
from robustvit.data import DataSpec
from robustvit.errors import UserError
from robustvit.evaluation import evaluate
from robustvit.models import Classifier, load_model
from robustvit.recipes import get_recipe
from robustvit.sizes import filled
from robustvit.threat import Threat
from robustvit.training.loop import fit


def test_a_frozen_twin_has_the_same_weights_for_ever_and_learns_nothing(
    tiny_vit: Classifier, images: tuple[Tensor, Tensor]
) -> None:
    twin = frozen_twin(tiny_vit)
    assert not any(p.requires_grad for p in twin.parameters())
    assert all(p.requires_grad for p in tiny_vit.parameters())
    with torch.no_grad():
        for p in tiny_vit.parameters():
            p.add_(0.1 * torch.randn_like(p))
    assert torch.equal(twin(images[0]), tiny_vit(images[0]))
    twin.train()
    assert not any(module.training for module in tiny_vit.modules())


def test_sizes_are_few_and_never_too_small() -> None:
    sizes = [filled(count) for count in range(1, 4097)]
    assert all(count <= size < 1.25 * count + 1 for count, size in enumerate(sizes, 1))
    assert sizes == sorted(sizes)
    assert len(set(sizes)) <= 8 + 4 * 9


@pytest.mark.parametrize("mode", ["never", "default"])
def test_who_insists_is_obeyed_at_once(mode: str) -> None:
    trial = Trial(mode, Accelerator(cpu=True))
    assert trial.verdict(10) == mode
    assert trial.verdict(9) is None


def test_a_cpus_training_is_left_as_it_is() -> None:
    assert Trial("auto", Accelerator(cpu=True)).verdict(10**9) == "never"


@pytest.mark.parametrize("left", [10, 10**9])
def test_auto_compiles_what_lasts_long(left: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial("auto", Accelerator(cpu=True))
    trial.mode = "auto"  # as on a GPU
    clock = iter(range(1000))
    monkeypatch.setattr(trial, "_now", lambda: float(next(clock)) * 0.02)
    answers = [trial.verdict(left) for _ in range(40)]
    expected = "default" if left * 0.02 / Trial.TIMED > PAYS_FROM else "never"
    assert [answer for answer in answers if answer] == [expected]
    assert capsys.readouterr().err.startswith(f"compile: {expected}, about")


def test_an_unknown_mode_is_named(trained_vit: Classifier) -> None:
    with pytest.raises(UserError, match="unknown compile 'allways'"):
        evaluate(trained_vit, "digits", [None], images=4, compile="allways")


@pytest.mark.slow
def test_a_compiled_model_answers_as_the_plain_one_at_any_batch_size(
    trained_vit: Classifier, images: tuple[Tensor, Tensor]
) -> None:
    model = trained_vit.requires_grad_(False)
    plain, compiled = Queries(model), Queries(model, fast=Compiled(model, "default", sizes=True))
    before = None
    for count in (1, 2, 5, 11, 16):
        x, y = images[0][:count], images[1][:count]
        logits = compiled(x)
        torch.testing.assert_close(logits, plain(x), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(
            compiled.gradient(x, cross_entropy, y).grad, plain.gradient(x, cross_entropy, y).grad, rtol=1e-3, atol=1e-4
        )
        assert before is None or torch.equal(*before)  # an answer outlives the next
        before = logits, logits.clone()


@pytest.mark.slow
def test_verdicts_of_a_compiled_attack_are_those_of_the_plain_one(trained_run: Path) -> None:
    images, _ = DataSpec("digits").load("test").first(40)
    attack = autoattack(Threat("linf", 0.05))
    plain, compiled = (evaluate(load_model(trained_run), images, attack, compile=mode)[0] for mode in ("never", "default"))
    assert (plain.correct == compiled.correct).all()
    assert 0 < plain.accuracy < 1
    assert compiled.provenance["compile"]["mode"] == "default"
    assert compiled.provenance["compile"]["seconds"] > plain.provenance["compile"]["seconds"] == 0


@pytest.mark.slow
def test_a_compiled_training_learns_what_the_plain_one_learns(tmp_path: Path) -> None:
    few = ["phases.0.epochs=2", "optim.schedule.warmup=0"]
    losses = {}
    for mode in ("never", "default"):
        recipe = override(get_recipe("digits-robust"), [*few, f"compile={mode}"])
        lines = (fit(recipe, tmp_path / mode, "cpu") / "metrics.jsonl").read_text().splitlines()
        losses[mode] = [line["loss"] for line in map(json.loads, lines) if "loss" in line]
    assert losses["never"] == pytest.approx(losses["default"], rel=2e-2)
