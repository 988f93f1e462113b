"""fit() with augmentation: the luck follows the image, the strength its schedule, the labels their shares."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from robustvit.attacks import PGD
from robustvit.config import Recipe, override
from robustvit.data import hold_out
from robustvit.data.augment import Augmentation, Erasing, Flip, Luck, MixupOrCutMix, PadCrop, augmented
from robustvit.errors import UserError
from robustvit.models import build
from robustvit.objectives import MART, PGDAT, TRADES, Objective, Standard
from robustvit.threat import Threat
from robustvit.training import checkpoint
from robustvit.training.calendar import Calendar
from robustvit.training.loop import fit
from robustvit.training.optimizer import make_optimizer
from robustvit.training.schedule import Linear, Phase

ADVERSARY = PGD(Threat("linf", 0.1), steps=1)
NEVER = Linear(1e12)  # a strength that is still nothing at the end


def train(recipe: Recipe, out: Path, augment: tuple[Augmentation, ...], *overrides: str) -> dict[str, Tensor]:
    changed = replace(recipe, data=replace(recipe.data, augment=augment))
    run = fit(override(changed, ["phases.0.epochs=1", *overrides]), out, "cpu")
    return checkpoint.read(run / "checkpoints" / "last.safetensors")[0]


def close(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.allclose(one[name], other[name], rtol=1e-4, atol=1e-6) for name in one)


def test_micro_batches_do_not_change_what_an_image_becomes(small: Recipe, tmp_path: Path) -> None:
    augment = (PadCrop(1), Flip(), Erasing(1.0))
    one, four = (train(small, tmp_path / str(n), augment, "optim.type=sgd", f"accumulate={n}") for n in (1, 4))
    assert close(one, four)
    assert not close(one, train(small, tmp_path / "plain", (), "optim.type=sgd"))


def test_the_strength_follows_the_schedule_of_its_phase(small: Recipe, tmp_path: Path) -> None:
    def scheduled(out: str, augment: tuple[Augmentation, ...]) -> dict[str, Tensor]:
        return train(replace(small, phases=(Phase(Standard(), 1, augment=NEVER),)), tmp_path / out, augment)

    plain = train(small, tmp_path / "plain", ())
    assert close(scheduled("erasing", (Erasing(1.0),)), plain)
    assert close(scheduled("mixing", (MixupOrCutMix(),)), plain)
    assert not close(train(small, tmp_path / "strong", (Erasing(1.0),)), plain)
    assert not close(scheduled("geometry", (Flip(1.0), Erasing(1.0))), plain)


def test_a_schedule_of_what_has_no_strength_is_refused(small: Recipe, tmp_path: Path) -> None:
    recipe = replace(small, phases=(Phase(Standard(), 1, augment=Linear(1)),))
    with pytest.raises(UserError, match=r"phase\.augment.*nothing in data\.augment has a strength"):
        train(recipe, tmp_path / "run", (PadCrop(1), Flip()))
    assert not (tmp_path / "run").exists()


def test_each_epoch_gives_each_image_new_luck_of_its_own(small: Recipe, tmp_path: Path) -> None:
    """Against two steps by hand, on batches of the whole training set."""
    augment = (PadCrop(1), Erasing(1.0))
    plain = ["batch_size=180", "optim.type=sgd", "optim.schedule.type=constant", "phases.0.epochs=2"]
    weights = train(small, tmp_path / "run", augment, *plain)
    recipe = override(small, plain)
    images, _ = hold_out(recipe.data.load("train"), recipe.seed)
    torch.manual_seed(recipe.seed)
    model = build(recipe.model).train()
    optimizer = make_optimizer(recipe.optim, model)
    for epoch in range(2):
        index = Calendar(recipe, len(images)).batch(epoch)
        x, y = augmented(*images.batch(index), augment, Luck.of(index, recipe.seed, epoch), classes=10)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert close(weights, dict(model.state_dict()))


@pytest.mark.parametrize("objective", [Standard(0.1), PGDAT(ADVERSARY, 0.1), TRADES(ADVERSARY), MART(ADVERSARY)])
def test_every_objective_learns_from_mixed_images_in_bfloat16_too(small: Recipe, objective: Objective, tmp_path: Path) -> None:
    recipe = replace(small, phases=(Phase(objective, 1, augment=Linear(1)),))
    train(recipe, tmp_path / "run", (Flip(), MixupOrCutMix()), "precision=bf16", "phases.0.epochs=3")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
