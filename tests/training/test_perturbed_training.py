"""Training with perturbed weights: what a step is, and that micro-batches, averages and time see no trace of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from robustvit import config
from robustvit.attacks import PGD
from robustvit.config import Recipe, override
from robustvit.data import hold_out
from robustvit.models import build
from robustvit.objectives import AWP, PGDAT, Standard
from robustvit.threat import Threat
from robustvit.training import checkpoint
from robustvit.training.loop import fit
from robustvit.training.schedule import Phase, Progress

PLAIN_SGD = ["optim.type=momentum", "optim.args.momentum=0", "optim.weight_decay=0", "optim.schedule.type=constant"]


def train(recipe: Recipe, folder: Path, *overrides: str) -> dict[str, Tensor]:
    run = fit(override(recipe, list(overrides)), folder, "cpu")
    return checkpoint.read(run / "checkpoints" / "last.safetensors")[0]


def same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def perturbed(small: Recipe) -> Recipe:
    adversary = PGD(Threat("linf", 0.1), steps=1, random_start=False)
    return replace(small, phases=(Phase(PGDAT(adversary), 2, awp=AWP(gamma=0.01, start_epoch=0)),))


def test_a_step_follows_the_gradient_at_the_perturbed_weights_from_the_weights_themselves(small: Recipe, tmp_path: Path):
    """One step on all images, by hand in plain torch."""
    recipe = override(small, [*PLAIN_SGD, "optim.lr=0.5", "batch_size=180", "phases.0.epochs=1"])
    recipe = replace(recipe, phases=(replace(recipe.phases[0], awp=AWP(gamma=0.1, start_epoch=0)),))
    torch.manual_seed(recipe.seed)
    model = build(recipe.model).train()
    x, y = hold_out(recipe.data.load("train"), recipe.seed)[0].batch(slice(0, 180))
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    gradients = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    with torch.no_grad():
        for (name, p), gradient in zip(model.named_parameters(), gradients, strict=True):
            if p.dim() > 1 and name.endswith("weight"):
                p += 0.1 * p.norm() * gradient / gradient.norm()
    gradients = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    trained = train(recipe, tmp_path / "run")
    for name, gradient in zip(start, gradients, strict=True):
        torch.testing.assert_close(trained[name], start[name] - 0.5 * gradient, rtol=1e-3, atol=1e-5)


def test_micro_batches_do_not_show(perturbed: Recipe, tmp_path: Path):
    one, four = (train(perturbed, tmp_path / n, *PLAIN_SGD, "optim.lr=0.1", f"accumulate={n}") for n in "14")
    for name in one:
        torch.testing.assert_close(one[name], four[name], rtol=1e-3, atol=1e-5)


def test_average_and_checkpoint_hold_unperturbed_weights(perturbed: Recipe, tmp_path: Path):
    """With a learning rate of 0 no weight may ever have moved."""
    torch.manual_seed(perturbed.seed)
    start = build(perturbed.model).state_dict()
    assert same_bits(train(perturbed, tmp_path / "run", *PLAIN_SGD, "optim.lr=0", "ema=0.5", "accumulate=2"), start)
    state = checkpoint.load_state(tmp_path / "run" / "checkpoints" / "resume.safetensors")
    assert same_bits(state.model, start)
    assert same_bits(state.ema, start)


def test_gamma_zero_is_training_without(perturbed: Recipe, tmp_path: Path):
    plain = replace(perturbed, phases=(replace(perturbed.phases[0], awp=None),))
    without, zero, some = (
        train(plain, tmp_path / "without"),
        train(perturbed, tmp_path / "zero", "phases.0.awp.gamma=0"),
        train(perturbed, tmp_path / "some"),
    )
    assert same_bits(without, zero)
    assert not same_bits(without, some)


def test_it_begins_at_its_epoch(perturbed: Recipe, tmp_path: Path):
    late = override(perturbed, ["phases.0.awp.start_epoch=1"])
    plain = replace(perturbed, phases=(replace(perturbed.phases[0], awp=None),))
    train(late, tmp_path / "late"), train(plain, tmp_path / "plain")
    late_log, plain_log = ((tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("late", "plain"))
    first = [i for i, line in enumerate(plain_log) if json.loads(line)["epoch"] == 1]
    assert first
    assert all(late_log[i] == plain_log[i] for i in first)
    assert late_log != plain_log


def test_share_moved_is_zero_before_its_epoch_and_without_a_perturbation():
    phase = Phase(Standard(), 20, awp=AWP(gamma=0.005, start_epoch=10))
    assert [phase.weight_gamma(Progress(0, epoch, 20)) for epoch in (0, 9.99, 10, 15)] == [0, 0, 0.005, 0.005]
    assert Phase(Standard(), 20).weight_gamma(Progress(0, 15, 20)) == 0


def test_recipe_with_a_perturbation_makes_the_round_trip_and_is_another_run(perturbed: Recipe, tmp_path: Path):
    config.save(perturbed, tmp_path / "recipe.yaml")
    assert config.load(tmp_path / "recipe.yaml") == perturbed
    assert override(perturbed, ["phases.0.awp.gamma=0.005"]).hash() != perturbed.hash()
    given = override(perturbed, ["phases.0.awp=null", "phases.0.awp={gamma: 0.005, start_epoch: 10}"])
    assert given.phases[0].awp == AWP(0.005, 10)


def test_bfloat16_perturbs_weights_that_stay_in_full_precision(perturbed: Recipe, tmp_path: Path):
    trained = train(perturbed, tmp_path / "run", "precision=bf16")
    assert {tensor.dtype for tensor in trained.values()} == {torch.float32}
    assert all(tensor.isfinite().all() for tensor in trained.values())
