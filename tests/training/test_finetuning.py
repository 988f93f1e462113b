"""Fine-tuning: which parts train, what frozen parts do meanwhile, and the standard and the adversarial kind of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from robustvit.attacks import PGD
from robustvit.config import Optim, Recipe, override
from robustvit.data import DataSpec
from robustvit.errors import UserError
from robustvit.evaluation.judge import judge
from robustvit.models import Classifier, ModelSpec, build, load_model
from robustvit.objectives import AWP, PGDAT, TRADES, Standard
from robustvit.recipes import RECIPES
from robustvit.threat import Threat
from robustvit.training import checkpoint
from robustvit.training.loop import fit
from robustvit.training.schedule import Phase, train_mode

ADVERSARY = PGD(Threat("linf", 0.08), steps=2)


def trainable(model: nn.Module, pattern: str) -> set[str]:
    Phase(Standard(), 1, trainable=pattern).select_parameters(model)
    return {name.removeprefix("backbone.") for name, p in model.named_parameters() if p.requires_grad}


def weights(run: Path) -> dict[str, Tensor]:
    return checkpoint.read(run / "checkpoints" / "last.safetensors")[0]


def changed(one: dict[str, Tensor], other: dict[str, Tensor]) -> set[str]:
    return {name.removeprefix("backbone.") for name in one if not torch.equal(one[name], other[name])}


@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [
        ("*", lambda name: True),
        ("head", lambda name: name.startswith("head.")),
        ("blocks.1", lambda name: name.startswith("blocks.1.")),
        ("blocks.[12]", lambda name: name.startswith(("blocks.1.", "blocks.2."))),
        ("fc_norm,head", lambda name: name.startswith(("fc_norm.", "head."))),
        ("blocks.2.attn, norm?, head.weight", lambda n: ".norm" in n or n.startswith("blocks.2.attn") or n == "head.weight"),
        ("*norm*", lambda name: "norm" in name),
        ("bias", lambda name: name.endswith(".bias")),
        ("backbone.pos_embed", lambda name: name == "pos_embed"),
    ],
)
def test_parts_are_named_by_whole_components_with_wildcards(pattern: str, chosen: Callable[[str], bool]):
    model = build(ModelSpec("vit_nano", channels=1, args={"depth": 12}))
    expected = {name for name, _ in model.backbone.named_parameters() if chosen(name)}
    assert expected
    assert trainable(model, pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "named"),
    [("head, haed", "'haed'"), ("", "''"), ("head,", "''"), ("block", "'block'"), ("blocks.99", "'blocks.99'")],
)
def test_each_part_has_to_be_there(tiny_vit: Classifier, pattern: str, named: str):
    with pytest.raises(UserError, match=rf"trainable {named}[.:] .*Known: blocks, fc_norm, head, patch_embed, pos_embed"):
        trainable(tiny_vit, pattern)


def test_a_perturbation_of_weights_needs_a_weight(tiny_vit: Classifier):
    with pytest.raises(UserError, match="awp: 'bias, pos_embed' trains no weight"):
        Phase(Standard(), 1, trainable="bias, pos_embed", awp=AWP()).select_parameters(tiny_vit)


def test_parts_can_be_named_on_the_command_line(small: Recipe):
    assert override(small, ["phases.0.trainable=norm, head"]).phases[0].trainable == "norm, head"
    assert override(small, ["phases.0.trainable=blocks.[45],head"]).phases[0].trainable == "blocks.[45],head"


def test_only_parts_that_are_frozen_whole_stay_in_eval_mode(tiny_vit: Classifier):
    trainable(tiny_vit, "blocks.1.attn, head")
    train_mode(tiny_vit.eval())
    backbone = tiny_vit.backbone
    for part in (backbone.head, backbone.blocks[1], backbone.blocks[1].attn, backbone.blocks[1].attn.attn_drop, backbone):
        assert part.training
    frozen = backbone.blocks[0]
    for part in (backbone.patch_embed, frozen, frozen.mlp.drop1, backbone.blocks[1].norm1, backbone.fc_norm):
        assert not part.training
    trainable(tiny_vit, "*")
    train_mode(tiny_vit)
    assert all(module.training for module in tiny_vit.modules())


def test_a_module_without_parameters_trains():
    model = nn.Sequential(nn.Dropout(), nn.Flatten())
    train_mode(model.eval())
    assert all(module.training for module in model.modules())


@pytest.fixture
def convolutional(few_digits: Path) -> Recipe:
    """A network with batch statistics, its head trained for an epoch."""
    model = ModelSpec("resnet_mini", channels=1, mean=(0.5,), std=(0.5,))
    phases = (Phase(PGDAT(replace(ADVERSARY, steps=1)), 1, trainable="fc", awp=AWP(0.01, 0)),)
    return replace(
        RECIPES["digits-standard"](),
        model=model,
        data=DataSpec("npz", path=str(few_digits)),
        phases=phases,
        batch_size=32,
        ema=0.5,
    )


def test_running_statistics_of_frozen_parts_stand_still(convolutional: Recipe, tmp_path: Path):
    torch.manual_seed(convolutional.seed)
    start = build(convolutional.model).state_dict()
    after = weights(fit(convolutional, tmp_path / "head", "cpu"))
    assert changed(start, after) == {"fc.weight", "fc.bias"}
    whole = replace(convolutional, phases=(replace(convolutional.phases[0], trainable="*"),))
    assert any("running_mean" in name for name in changed(start, weights(fit(whole, tmp_path / "whole", "cpu"))))


def test_standard_fine_tuning_reads_digits_with_a_new_head_and_leaves_the_rest(trained_run: Path, tmp_path: Path):
    """A linear probe: the backbone of a trained model, its classifier anew, learnt in two epochs."""
    before = load_model(trained_run)
    nn.init.zeros_(before.backbone.head.weight)
    headless = tmp_path / "headless.safetensors"
    spec, _ = checkpoint.load_weights(trained_run / "checkpoints" / "best.safetensors")
    checkpoint.save_weights(headless, spec, before.state_dict(), {})
    probe = Phase(Standard(label_smoothing=0.1), 2, trainable="head")
    recipe = replace(
        RECIPES["digits-standard"](), model=replace(spec, init=str(headless)), phases=(probe,), optim=Optim(lr=0.02)
    )
    run = fit(recipe, tmp_path / "probe", "cpu")
    assert changed(before.state_dict(), weights(run)) == {"head.weight", "head.bias"}
    images = DataSpec("digits").load("test").subset(slice(0, 100))
    headless_accuracy, accuracy = (judge(m, images, None).correct.float().mean() for m in (before, load_model(run)))
    assert accuracy > headless_accuracy + 0.3


@pytest.mark.slow
def test_adversarial_fine_tuning_makes_a_standard_model_robust(trained_run: Path, tmp_path: Path):
    """First the head, then the later layers, then all with TRADES, early layers slower."""
    spec, start = checkpoint.load_weights(trained_run / "checkpoints" / "best.safetensors")
    phases = (
        Phase(PGDAT(ADVERSARY, label_smoothing=0.1), 1, trainable="head"),
        Phase(PGDAT(ADVERSARY), 1, trainable="blocks.[12], fc_norm, head"),
        Phase(TRADES(replace(ADVERSARY, loss="kl"), beta=3.0), 3, awp=AWP(0.005, start_epoch=1)),
    )
    recipe = replace(
        RECIPES["digits-standard"](),
        model=replace(spec, init=str(trained_run)),
        phases=phases,
        optim=Optim("lion", lr=5e-4, weight_decay=0.5, layer_decay=0.8, args={"betas": [0.9, 0.99]}),
    )
    run = fit(recipe, tmp_path / "robust", "cpu")
    images, attack = DataSpec("digits").load("test").subset(slice(0, 100)), PGD(Threat("linf", 0.08), steps=10, seed=0)
    before, after = (judge(load_model(path), images, attack).correct.float().mean() for path in (trained_run, run))
    assert after > before + 0.15
    assert changed(start, weights(run)) == {name.removeprefix("backbone.") for name in start}
