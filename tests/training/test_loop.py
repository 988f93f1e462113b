"""fit() on two hundred digits."""

import io
import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from robustvit import progress, storage
from robustvit.attacks import PGD
from robustvit.config import override
from robustvit.data import hold_out
from robustvit.errors import UserError
from robustvit.evaluation.judge import judge
from robustvit.models import build, load_model
from robustvit.objectives import PGDAT, TRADES, Standard
from robustvit.threat import Threat
from robustvit.training import checkpoint
from robustvit.training.folder import RunFolder
from robustvit.training.learner import Learner
from robustvit.training.loop import fit
from robustvit.training.schedule import Phase

ADVERSARY = PGD(Threat("linf", 0.1), steps=1)
STEPS = 5  # an epoch: 200 images, 20 held out, batches of 32


def train(recipe, folder, *overrides, **options):
    return fit(override(recipe, list(overrides)), folder, "cpu", **options)


def weights(folder, name="last"):
    return checkpoint.read(folder / "checkpoints" / f"{name}.safetensors")[0]


def metrics(folder, key):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line[key] for line in lines if key in line]


def close(one, other, **tolerance):
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], **tolerance)


def test_loss_falls_and_the_folder_is_complete(small, tmp_path):
    run = train(small, tmp_path / "run", "phases.0.epochs=12", "optim.lr=3e-3")
    losses = metrics(run, "loss")
    assert len(losses) == 12
    assert losses[-1] < 0.95 * losses[0]
    assert metrics(run, "images") == [STEPS * 32] * 12
    assert {path.name for path in (run / "checkpoints").iterdir()} == {f"{n}.safetensors" for n in ("best", "last", "resume")}
    assert load_model(run).num_classes == 10


def test_same_recipe_gives_the_same_weights_and_a_seed_others(small, tmp_path):
    one, same, other = (train(small, tmp_path / str(i), f"seed={seed}") for i, seed in enumerate((0, 0, 1)))
    assert all(torch.equal(weights(one)[k], tensor) for k, tensor in weights(same).items())
    assert not torch.equal(weights(one)["backbone.head.weight"], weights(other)["backbone.head.weight"])


def test_accumulated_gradients_equal_the_full_batch(small, tmp_path):
    runs = [train(small, tmp_path / str(n), "optim.type=sgd", f"accumulate={n}") for n in (1, 4)]
    close(weights(runs[0]), weights(runs[1]), rtol=1e-4, atol=1e-6)


def test_average_follows_its_recurrence_and_is_what_gets_exported(small, tmp_path):
    recipe = override(small, ["optim.schedule.type=constant", "phases.0.epochs=1", "select_every=9"])
    torch.manual_seed(recipe.seed)
    average = build(recipe.model).state_dict()
    # Batches as large as the training set: an epoch is a step, and a run of n epochs begins like one of n + 1.
    whole = override(recipe, ["batch_size=180"])
    for epochs in (1, 2, 3):
        own = weights(train(whole, tmp_path / str(epochs), f"phases.0.epochs={epochs}"))
        average = {name: 0.75 * tensor + 0.25 * own[name] for name, tensor in average.items()}
    run = train(whole, tmp_path / "run", "phases.0.epochs=3", "ema=0.75")
    close(weights(run), average)
    state = checkpoint.load_state(run / "checkpoints" / "resume.safetensors")
    close(state.model, own)
    close(state.ema, average)


def test_clipping_bounds_the_gradient(small, tmp_path):
    plain = ["optim.type=momentum", "optim.lr=1", "optim.weight_decay=0", "optim.args.momentum=0", "phases.0.epochs=1"]
    torch.manual_seed(small.seed)
    start = build(small.model).state_dict()
    run = train(small, tmp_path / "run", *plain, "optim.schedule.type=constant", "clip=1e-3")
    moved = torch.stack([(weights(run)[name] - tensor).norm() for name, tensor in start.items()]).norm()
    assert 0 < moved <= STEPS * 1e-3 * 1.01


def test_best_checkpoint_is_the_one_most_accurate_on_held_out_images(small, tmp_path):
    recipe = replace(small, select=replace(ADVERSARY, seed=0), optim=replace(small.optim, lr=0.02))
    run = train(recipe, tmp_path / "run", "phases.0.epochs=6")
    scores, meta = metrics(run, "held_out_accuracy"), checkpoint.read(run / "checkpoints" / "best.safetensors")[1]
    assert metrics(run, "held_out_images") == [20] * 6
    assert meta["held_out_accuracy"] == max(scores)
    assert meta["step"] == (scores.index(max(scores)) + 1) * STEPS
    _, held_out = hold_out(recipe.data.load("train"), recipe.seed)
    assert float(judge(load_model(run), held_out, recipe.select).correct.float().mean()) == pytest.approx(max(scores))


def test_selection_can_be_rarer_but_always_sees_the_end(small, tmp_path):
    run = train(small, tmp_path / "run", "phases.0.epochs=5", "select_every=2")
    assert len(metrics(run, "held_out_accuracy")) == 3


def test_infinite_loss_stops_the_run_and_leaves_the_last_good_checkpoint(small, tmp_path):
    phases = (replace(small.phases[0], epochs=1), Phase(TRADES(ADVERSARY, beta=1e39), epochs=1))
    for _ in range(2):  # starting again changes nothing
        with pytest.raises(UserError, match=rf"not finite at step {STEPS}\b.*optim\.lr"):
            train(replace(small, phases=phases), tmp_path / "run")
        restored = checkpoint.load_state(tmp_path / "run" / "checkpoints" / "resume.safetensors")
        assert restored.state.step == STEPS
        assert all(tensor.isfinite().all() for tensor in restored.model.values())
    assert load_model(tmp_path / "run").num_classes == 10


def test_diverging_run_stops_by_its_step(small, tmp_path):
    with pytest.raises(UserError, match=r"not finite at step 1\b"):
        train(small, tmp_path / "run", "optim.lr=1e29")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_weights_that_are_not_finite_are_never_saved(small, tmp_path):
    with pytest.raises(UserError):
        train(small, tmp_path / "run", "optim.lr=1e29", "optim.weight_decay=1e29", save_every=1)
    for path in (tmp_path / "run").glob("checkpoints/*"):
        assert all(tensor.isfinite().all() for tensor in checkpoint.read(path)[0].values()), path.name


def test_phase_trains_only_what_its_pattern_names(small, tmp_path):
    head = replace(small, phases=(Phase(Standard(), 1, trainable="*head*"),))
    torch.manual_seed(small.seed)
    start, after = build(small.model).state_dict(), weights(train(head, tmp_path / "head"))
    changed = {name for name in start if not torch.equal(start[name], after[name])}
    assert changed == {"backbone.head.weight", "backbone.head.bias"}
    both = replace(small, phases=(*head.phases, Phase(PGDAT(ADVERSARY), 1, trainable="*blocks*")))
    last = weights(train(both, tmp_path / "both"))
    assert all(torch.equal(last[name], after[name]) for name in last if "blocks" not in name)
    assert not torch.equal(last["backbone.blocks.0.attn.qkv.weight"], after["backbone.blocks.0.attn.qkv.weight"])


def test_eps_and_learning_rate_follow_their_schedules(small, tmp_path):
    recipe = replace(small, phases=(Phase(PGDAT(ADVERSARY), 2),))
    overrides = ["phases.0.eps.type=linear", "phases.0.eps.epochs=2", "optim.schedule.type=linear", "optim.schedule.epochs=1"]
    run = train(recipe, tmp_path / "run", *overrides, save_every=1)
    assert metrics(run, "eps") == pytest.approx([ADVERSARY.threat.eps * step / 10 for step in range(10)])
    assert metrics(run, "lr") == pytest.approx([min(1, step / STEPS) * recipe.optim.lr for step in range(10)])


def test_folder_of_another_run_is_refused_and_left_alone(small, tmp_path):
    run = train(small, tmp_path / "run")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=rf"holds another run.*optim\.lr: {small.optim.lr} there, 0\.5 here"):
        train(small, run, "optim.lr=0.5")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="exists and is not a run"):
        train(small, tmp_path / "mine")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("finished", [True, False])
def test_other_training_images_are_another_run(small, tmp_path, finished):
    run = train(small, tmp_path / "run")
    if not finished:
        (run / "checkpoints" / "last.safetensors").unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    held = np.load(small.data.path)
    np.savez(tmp_path / "other.npz", **{**held, "x_train": held["x_train"][::-1]})
    with pytest.raises(UserError, match=r"resume\.safetensors: of another run: the hash of its training images is"):
        train(small, run, f"data.path={tmp_path / 'other.npz'}")
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_state_of_another_recipe_or_shape_is_not_gone_on_with(small, tmp_path):
    one, other = train(small, tmp_path / "one"), train(small, tmp_path / "other", "seed=5")
    state = "checkpoints/resume.safetensors"
    (one / state).write_bytes((other / state).read_bytes())
    with pytest.raises(UserError, match="of another run: the hash of its recipe is"):
        train(small, one)
    tensors, meta = storage.read(other / state)
    name = next(name for name in tensors if name.startswith("model.") and tensors[name].dim() > 1)
    storage.write(other / state, {**tensors, name: tensors[name][:1]}, meta)
    with pytest.raises(UserError, match="damaged: backbone"):
        train(small, other, "seed=5")


def test_finished_run_started_again_changes_nothing(small, tmp_path):
    run = train(small, tmp_path / "run")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    train(small, run, "name=renamed")
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert {p: b for p, b in after.items() if p.name != "recipe.yaml"} == {
        p: b for p, b in before.items() if p.name != "recipe.yaml"
    }


def test_truncated_state_is_reported_and_kept(small, tmp_path):
    state = train(small, tmp_path / "run") / "checkpoints" / "resume.safetensors"
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"resume\.safetensors: truncated"):
        train(small, tmp_path / "run")
    assert len(state.read_bytes()) == 1000


@pytest.mark.parametrize("bad", ["optim.type=lionn", "phases.0.trainable=haed*", "optim.args.weird=1", "model.name=vit_nanu"])
def test_recipe_that_cannot_start_leaves_the_folder_free(small, bad, tmp_path):
    with pytest.raises(UserError):
        train(small, tmp_path / "run", bad)
    assert not (tmp_path / "run").exists()


def test_recipe_that_fails_in_its_first_pass_alone_leaves_the_folder_free(small, tmp_path):
    with pytest.raises(UserError, match="fails in train mode"):
        train(small, tmp_path / "run", "model.args.depth=2", "model.args.drop_path_rate=2")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("objective", [Standard(), PGDAT(ADVERSARY), TRADES(replace(ADVERSARY, loss="kl"))])
def test_bfloat16_trains_weights_that_stay_in_full_precision(small, objective, tmp_path):
    run = train(replace(small, phases=(Phase(objective, 3),)), tmp_path / "run", "precision=bf16")
    assert metrics(run, "loss")[-1] < metrics(run, "loss")[0]
    assert {tensor.dtype for tensor in weights(run).values()} == {torch.float32}


def test_a_trained_model_knows_the_names_of_its_classes(small, tmp_path):
    assert load_model(train(small, tmp_path / "run")).classes == tuple("0123456789")


def test_a_label_without_a_class_is_noticed_among_the_held_out_images_too(small, tmp_path):
    with np.load(small.data.path) as file:
        arrays = {**dict(file), "classes": np.arange(11).astype(str)}
    held_out = hold_out(small.data.load("train"), small.seed)[1].x
    place = next(i for i, x in enumerate(arrays["x_train"]) if np.array_equal(x, held_out[0, 0].numpy()))
    arrays["y_train"][place] = 10
    del arrays["classes"]
    np.savez(tmp_path / "odd.npz", **arrays)
    with pytest.raises(UserError, match="labels up to 10"):
        train(small, tmp_path / "run", f"data.path={tmp_path / 'odd.npz'}")


@pytest.mark.parametrize(("bad", "message"), [("model.num_classes=5", "5 classes.*has 10"), ("model.channels=3", "shape")])
def test_model_that_does_not_fit_the_data_is_refused(small, bad, message, tmp_path):
    with pytest.raises(UserError, match=message):
        train(small, tmp_path / "run", bad)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_being_trained_in_is_refused(small, tmp_path):
    train(small, tmp_path / "run")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with RunFolder(tmp_path / "run").alone(), pytest.raises(UserError, match="being trained in by another process"):
        train(small, tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_a_run_that_is_asked_to_stop_saves_its_state_in_the_middle_of_an_epoch(small, tmp_path, monkeypatch):
    """As a scheduler asks, by SIGTERM, before it kills."""
    step = Learner.step

    def third_is_the_last(learner, batches, count, objective, gamma, number):
        step(learner, batches, count, objective, gamma, number)
        if number == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "step", third_is_the_last)
        with pytest.raises(KeyboardInterrupt):
            train(small, tmp_path / "stopped")
    assert checkpoint.load_state(tmp_path / "stopped" / "checkpoints" / "resume.safetensors").state.step == 3
    whole, stopped = (weights(train(small, tmp_path / name)) for name in ("whole", "stopped"))
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)


class AsksToStop(io.StringIO):
    """A terminal where somebody presses Ctrl-C while the second line of progress is being printed."""

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.getvalue().count("images/s") == 2 and "images/s" in text:
            os.kill(os.getpid(), signal.SIGINT)
        return written


def test_asked_to_stop_at_whatever_moment_it_saves_before_it_ends(small, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(progress, "EVERY", 0.0)
        patch.setattr("sys.stderr", AsksToStop())
        with pytest.raises(KeyboardInterrupt):
            train(small, tmp_path / "stopped")
    assert checkpoint.load_state(tmp_path / "stopped" / "checkpoints" / "resume.safetensors").state.step == 3
    whole, stopped = (weights(train(small, tmp_path / name)) for name in ("whole", "stopped"))
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)
