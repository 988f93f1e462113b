"""Trackers show what metrics.jsonl holds, over stops and restarts, and change nothing."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.tracking import GeneralTracker
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from robustvit.config import Recipe, override
from robustvit.errors import UserError
from robustvit.training import checkpoint
from robustvit.training.folder import RunFolder
from robustvit.training.loop import fit
from robustvit.training.trackers import TRACKERS, Kind, Trackers, check_trackers

Point = tuple[str, int, float]


def shown(run: Path) -> set[Point]:
    """The scalars that TensorBoard displays: name, step, value."""
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {(tag, event.step, event.value) for tag in events.Tags()["scalars"] for event in events.Scalars(tag)}


def logged(run: Path) -> set[Point]:
    """The same of metrics.jsonl, in float32 as TensorBoard keeps it."""
    points = set()
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        step = record.pop("step")
        points |= {(name, step, float(torch.tensor(value, dtype=torch.float32))) for name, value in record.items()}
    return points


@dataclass
class Recorded(GeneralTracker):
    """A tracker of our own, on which an action may be set for a step."""

    step: int = 0
    action: Callable[[], None] = lambda: None
    name: str = "recorded"
    requires_logging_directory: bool = False
    tracker: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    finished: bool = False

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.config = values

    def log(self, values: dict[str, Any], step: int | None = None, **settings: Any) -> None:
        if step == self.step:
            self.action()
        self.steps.append(step)

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Recorded], str]:
    """Put a tracker into the registry, under the name of a package that is there."""

    def install(tracker: Recorded) -> str:
        monkeypatch.setitem(TRACKERS, "pytest", Kind(lambda name, folder, identity, step: tracker, lambda run: "known"))
        return "pytest"

    return install


def interrupt() -> None:
    raise KeyboardInterrupt


def fail() -> None:
    raise ConnectionError("the server is gone")


def test_tensorboard_shows_every_value_of_the_log_at_its_step(small: Recipe, tmp_path: Path):
    run = fit(small, tmp_path / "run", "cpu", track=["tensorboard"])
    assert shown(run) == logged(run)
    assert {"loss", "lr", "held_out_accuracy"} <= {name for name, _, _ in shown(run)}
    assert {step for _, step, _ in shown(run)} == {5, 10}


def test_a_run_is_the_same_with_a_tracker_and_its_recipe_does_not_know(small: Recipe, tmp_path: Path):
    plain, tracked = fit(small, tmp_path / "plain", "cpu"), fit(small, tmp_path / "tracked", "cpu", track=["tensorboard"])
    one, other = (checkpoint.read(run / "checkpoints" / "last.safetensors") for run in (plain, tracked))
    assert one[1] == other[1]
    assert all(torch.equal(one[0][name], other[0][name]) for name in one[0])
    assert (plain / "metrics.jsonl").read_text() == (tracked / "metrics.jsonl").read_text()
    assert (plain / "recipe.yaml").read_text() == (tracked / "recipe.yaml").read_text()


def test_after_a_stop_the_step_axis_goes_on_and_what_was_logged_twice_shows_once(small: Recipe, tmp_path: Path, install):
    """Stopped at step 10 between log and checkpoint, so that TensorBoard knows of a step that will happen again."""
    run, recipe = tmp_path / "run", override(small, ["phases.0.epochs=3"])
    with pytest.raises(KeyboardInterrupt):
        fit(recipe, run, "cpu", track=["tensorboard", install(Recorded(10, interrupt))])
    assert checkpoint.load_state(run / "checkpoints" / "resume.safetensors").state.step == 5
    assert max(step for _, step, _ in shown(run)) == 10
    fit(recipe, run, "cpu", track=["tensorboard"])
    assert shown(run) == logged(run)
    assert sorted({step for _, step, _ in shown(run)}) == [5, 10, 15]


def test_a_tracker_that_joins_later_sees_the_run_from_its_beginning_and_once(small: Recipe, tmp_path: Path, install):
    run, late = fit(small, tmp_path / "run", "cpu"), Recorded()
    for _ in range(2):
        fit(small, run, "cpu", track=[install(late), "tensorboard"])
    assert shown(run) == logged(run)
    assert late.steps == [5, 5, 10, 10]  # metrics and selection, at the end of each epoch
    assert late.config["phases.0.objective.type"] == "standard"
    assert late.config["optim.lr"] == small.optim.lr


def test_a_tracker_that_fails_is_left_out_aloud_and_the_run_goes_on(small: Recipe, tmp_path: Path, install):
    broken = Recorded(5, fail)
    with pytest.warns(UserWarning, match=r"pytest failed.*the server is gone.*metrics\.jsonl has it all"):
        run = fit(small, tmp_path / "run", "cpu", track=[install(broken), "tensorboard"])
    assert broken.steps == []
    assert shown(run) == logged(run)
    assert (run / "checkpoints" / "last.safetensors").exists()


def test_trackers_are_finished_when_the_run_ends_or_breaks_off(small: Recipe, tmp_path: Path, install):
    whole, stopped = Recorded(), Recorded(5, interrupt)
    fit(small, tmp_path / "whole", "cpu", track=[install(whole)])
    with pytest.raises(KeyboardInterrupt):
        fit(small, tmp_path / "stopped", "cpu", track=[install(stopped)])
    assert whole.finished
    assert stopped.finished


def test_a_tracker_that_cannot_start_ends_the_run_before_it_begins(small: Recipe, tmp_path: Path, monkeypatch):
    def refuse(*settings: Any) -> GeneralTracker:
        raise ConnectionError("no key")

    monkeypatch.setitem(TRACKERS, "pytest", Kind(refuse, str))
    with pytest.raises(UserError, match="track: pytest could not be started: no key"):
        fit(small, tmp_path / "run", "cpu", track=["pytest"])
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    fit(small, tmp_path / "run", "cpu")


def test_named_twice_a_tracker_opens_once(small: Recipe, tmp_path: Path, install):
    tracker = Recorded()
    with Trackers([install(tracker)] * 2, RunFolder(tmp_path), small, 0) as trackers:
        trackers.log({"step": 3, "loss": 1.0})
    assert tracker.steps == [3]


def test_unknown_tracker_is_refused_with_those_there_are(small: Recipe, tmp_path: Path):
    with pytest.raises(UserError, match=r"unknown tracker 'tensorbord'.*'tensorboard'.*mlflow, tensorboard, trackio, wandb"):
        fit(small, tmp_path / "run", "cpu", track=["tensorbord"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", TRACKERS)
def test_missing_package_is_named_with_its_remedy(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, name, None)  # to Python, a package that is not there
    with pytest.raises(UserError, match=rf"{name} is not installed; pip install {name}"):
        check_trackers([name])


def test_a_folder_called_like_a_tracker_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "neptune").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(TRACKERS, "neptune", TRACKERS["wandb"])
    with pytest.raises(UserError, match="neptune is not installed"):
        check_trackers(["neptune"])


def test_the_command_line_tracks_on_request(small: Recipe, run, few_digits: Path):
    short = f"data.source=npz data.path={few_digits} model.args.depth=1 batch_size=32 phases.0.epochs=1 --device cpu"
    ended = run(f"train digits-standard {short} --track tensorboard --out run")
    assert ended.status == 0, ended.err
    assert shown(Path("run")) == logged(Path("run"))
    assert "unknown tracker 'nothing'" in run(f"train digits-standard {short} --track nothing --out other").err
