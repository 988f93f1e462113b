"""Checkpoint files: exact, whole or refused."""

import pickle
import subprocess
import sys

import pytest
import safetensors.torch
import torch

from robustvit import storage
from robustvit.config import Optim
from robustvit.errors import UserError
from robustvit.models import ModelSpec, build, load_model
from robustvit.training import checkpoint
from robustvit.training.checkpoint import State
from robustvit.training.optimizer import make_optimizer

SPEC = ModelSpec("vit_nano", channels=1, mean=(0.5,), std=(0.25,), args={"depth": 1})


@pytest.fixture
def model():
    torch.manual_seed(0)
    return build(SPEC)


def train(model, optimizer, steps: int) -> None:
    x, y = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(8)
    for _ in range(steps):
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def equal(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_weights_come_back_bit_for_bit_with_their_model(model, tmp_path):
    checkpoint.save_weights(tmp_path / "best.safetensors", SPEC, model.state_dict(), {"step": 3})
    spec, weights = checkpoint.load_weights(tmp_path / "best.safetensors")
    assert spec == SPEC
    assert equal(weights, model.state_dict())
    loaded = load_model(tmp_path / "best.safetensors")
    assert torch.equal(loaded.std, model.std)
    assert not loaded.training


def test_the_same_weights_make_the_same_file(model, tmp_path):
    files = [tmp_path / f"{number}.safetensors" for number in range(8)]
    for file in files:
        checkpoint.save_weights(file, SPEC, model.state_dict(), {"step": 3})
    assert len({file.read_bytes() for file in files}) == 1


@pytest.mark.parametrize("name", ["adamw", "lion", "sgd", "lamb", "adan", "muon"])
def test_training_goes_on_exactly_from_a_saved_state(model, name, tmp_path):
    optimizer = make_optimizer(Optim(name), model)
    train(model, optimizer, 2)
    average = {key: tensor / 3 for key, tensor in model.state_dict().items()}
    checkpoint.save_state(tmp_path / "resume.safetensors", State("recipe", "data", 2, 1, 0.5, 7), model, average, optimizer)

    restored = checkpoint.load_state(tmp_path / "resume.safetensors")
    assert restored.state == State("recipe", "data", 2, 1, 0.5, 7)
    assert equal(restored.ema, average)
    again = build(SPEC)
    again.load_state_dict(restored.model)
    other = make_optimizer(Optim(name), again)
    other.load_state_dict(restored.optimizer)
    for net, optim in ((model, optimizer), (again, other)):
        torch.manual_seed(5)
        train(net, optim, 2)
    assert equal(again.state_dict(), model.state_dict())


def test_optimiser_state_of_any_nesting_comes_back_in_its_own_types(model, tmp_path):
    class Odd:
        def state_dict(self):
            return {"rng": (3, (1, 2**40), None), 0: [{"Q": [torch.ones(2), torch.zeros(1)]}, True, 0.1, "ab,b->a"]}

    checkpoint.save_state(tmp_path / "resume.safetensors", State("recipe", "data"), model, {}, Odd())
    found = checkpoint.load_state(tmp_path / "resume.safetensors").optimizer
    assert found["rng"] == (3, (1, 2**40), None)
    assert found[0][1:] == [True, 0.1, "ab,b->a"]
    assert [tensor.tolist() for tensor in found[0][0]["Q"]] == [[1, 1], [0]]


def test_header_of_any_length_is_told_from_a_pickle(tmp_path):
    path = tmp_path / "best.safetensors"
    for length in range(0, 2048, 8):  # the file begins with this length: 0x80 is a pickle's first byte too
        storage.write(path, {"w": torch.ones(1)}, {"pad": "x" * length})
        assert checkpoint.read(path)[1] == {"pad": "x" * length}


@pytest.mark.parametrize(
    "write", [pickle.dump, torch.save, lambda o, f: torch.save(o, f, _use_new_zipfile_serialization=False)]
)
def test_pickle_is_refused_and_not_opened(write, tmp_path):
    path = tmp_path / "model.safetensors"
    with open(path, "wb") as file:
        write({"w": [1.0]}, file)
    with pytest.raises(UserError, match=r"model\.safetensors: is a pickle.*weights_only=True"):
        load_model(path)


@pytest.mark.parametrize("keep", [0, 1, 8, 200, -1])
def test_truncated_file_is_refused(model, keep, tmp_path):
    path = tmp_path / "best.safetensors"
    checkpoint.save_weights(path, SPEC, model.state_dict(), {})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"best\.safetensors: truncated"):
        load_model(path)


def test_foreign_files_are_refused(model, tmp_path):
    path = tmp_path / "other.safetensors"
    safetensors.torch.save_file(model.state_dict(), path)
    with pytest.raises(UserError, match="not written by robustvit"):
        load_model(path)
    with pytest.raises(UserError, match="no such checkpoint"):
        load_model(tmp_path / "nowhere.safetensors")


def test_training_state_is_not_taken_for_a_model(model, tmp_path):
    path = tmp_path / "resume.safetensors"
    checkpoint.save_state(path, State("recipe", "data"), model, {}, make_optimizer(Optim(), model))
    with pytest.raises(UserError, match=r"accepted: best\.safetensors"):
        load_model(path)


def test_weights_are_not_taken_for_a_training_state(model, tmp_path):
    path = tmp_path / "best.safetensors"
    checkpoint.save_weights(path, SPEC, model.state_dict(), {})
    with pytest.raises(UserError, match=r"best\.safetensors"):
        checkpoint.load_state(path)


def test_a_state_that_is_not_one_is_refused(model, tmp_path):
    path = tmp_path / "resume.safetensors"
    checkpoint.save_state(path, State("recipe", "data", step="x"), model, {}, make_optimizer(Optim(), model))
    with pytest.raises(UserError, match=r"resume\.safetensors: damaged.*state\.step: 'x'"):
        checkpoint.load_state(path)


def test_weights_of_another_shape_are_refused(model, tmp_path):
    path = tmp_path / "best.safetensors"
    deeper = ModelSpec("vit_nano", channels=1, args={"depth": 2})
    checkpoint.save_weights(path, deeper, model.state_dict(), {})
    with pytest.raises(UserError, match="do not fit vit_nano"):
        load_model(path)
    wider = ModelSpec("vit_nano", num_classes=12, channels=1, args={"depth": 1})
    checkpoint.save_weights(path, wider, model.state_dict(), {})
    with pytest.raises(UserError, match="do not fit vit_nano"):
        load_model(path)


FULL_DISK = """
import resource, sys, torch
from pathlib import Path
from robustvit.errors import UserError
from robustvit import storage
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    storage.write(Path(sys.argv[1]), {"w": torch.zeros(100_000)}, {})
except UserError as error:
    print(error)
"""


def test_full_disk_leaves_the_previous_file_intact(tmp_path):
    path = tmp_path / "resume.safetensors"
    storage.write(path, {"w": torch.ones(3)}, {"step": 1})
    before = path.read_bytes()
    result = subprocess.run([sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True, check=True)
    assert "could not be saved" in result.stdout
    assert "previous resume.safetensors is untouched" in result.stdout
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
