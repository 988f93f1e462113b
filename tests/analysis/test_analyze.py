"""analyze(): from names to files, in Python and on the command line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robustvit.analysis import Effectiveness, FeatureImages, Finding, PGDSteps
from robustvit.analysis.run import analyze, build_analysis, defaults_for
from robustvit.errors import UserError
from robustvit.evaluation.defaults import Defaults
from robustvit.models import load_model
from robustvit.threat import Threat

LINF = Threat("linf", 0.1)
QUICK = Effectiveness(LINF, steps=(1,), oracle=2, seeds=1)
Run = Callable[[str], Any]


def test_a_finding_is_written_with_its_source(trained_run: Path, tmp_path: Path) -> None:
    finding = analyze(PGDSteps(LINF, steps=(2,)), [trained_run], "digits", tmp_path, images=20, sample_seed=3, device="cpu")
    written = Finding.load(tmp_path / "analyses" / "pgd_steps.json")
    assert written.data == finding.data
    assert written.provenance["source"]["models"] == [str(trained_run)]
    assert written.provenance["source"]["data"]["source"] == "digits"
    assert written.provenance["source"]["sample_seed"] == 3
    assert written.data["models"][0]["model"] == trained_run.name
    assert written.data["models"][0]["n"] == 20


def test_checkpoints_of_a_run_are_its_epochs(trained_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained_run, tmp_path / "run")
    last, early = run / "checkpoints" / "last.safetensors", run / "checkpoints" / "early.safetensors"
    log = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    change_step(last, early, next(record["step"] for record in log if record["epoch"] == 2))
    rows = analyze(QUICK, [early, last], "digits", images=4, device="cpu").data["models"]
    assert [(row["model"], row["epoch"]) for row in rows] == [("run", 2), ("run", 6)]
    assert defaults_for([str(last)]).out == run


def change_step(source: Path, target: Path, step: int) -> None:
    from robustvit import storage

    tensors, meta = storage.read(source)
    storage.write(target, tensors, {**meta, "step": step})


def test_runs_of_one_name_are_told_apart_by_their_paths(trained_run: Path, tmp_path: Path) -> None:
    runs = [shutil.copytree(trained_run, tmp_path / side / "vit") for side in ("a", "b")]
    rows = analyze(QUICK, runs, "digits", images=4, device="cpu").data["models"]
    assert [row["model"] for row in rows] == [str(run) for run in runs]
    with pytest.raises(UserError, match="is given twice"):
        analyze(QUICK, [runs[0], runs[0]], "digits", images=4, device="cpu")


def test_no_model_and_several_processes_are_refused(trained_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="models: none given"):
        analyze(QUICK, [], "digits")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="started as 2 processes; accepted: one"):
        analyze(QUICK, [trained_run], "digits")


def test_settings_are_yaml_and_the_threat_comes_from_the_options() -> None:
    nothing = Defaults(None, Path("runs/x"))
    built = build_analysis("effectiveness", ["steps=[1, 3]", "precision=bf16"], nothing, None, "8/255")
    assert built == Effectiveness(Threat("linf", 8 / 255), steps=(1, 3), precision="bf16")
    assert build_analysis("feature_images", [], nothing, None, None) == FeatureImages()
    assert build_analysis("feature_images", [], nothing, "linf", "15/255") == FeatureImages(Threat("linf", 15 / 255))
    given = build_analysis("gallery", ["threat={norm: l2, eps: 1/2}"], nothing, None, None)
    assert given.threat == Threat("l2", 0.5)
    sweep = build_analysis("eps_sweep", ["attack={type: fgsm, threat: {norm: linf, eps: 0.1}}"], nothing, None, "0.1")
    assert sweep.attack.name == "fgsm"


@pytest.mark.parametrize(
    ("name", "settings", "eps", "message"),
    [
        ("efectiveness", [], "0.1", "unknown analysis 'efectiveness': did you mean 'effectiveness'"),
        ("gallery", ["steps"], "0.1", "--set 'steps': accepted: field=value"),
        ("gallery", ["cuont=3"], "0.1", "'gallery.cuont': did you mean 'gallery.count'"),
        ("gallery", ["steps=many"], "0.1", "gallery.steps: 'many'; accepted: a whole number"),
        ("gallery", ["steps=0"], "0.1", "gallery.steps: 0; accepted: 1 or more"),
        ("gallery", ["steps={"], "0.1", "steps: '{' is not valid YAML"),
        ("gallery", [], None, "--eps: missing"),
        ("gallery", ["threat={norm: linf, eps: 0.1}"], "0.1", "--eps: analysis 'gallery' has its threat from --set"),
    ],
)
def test_a_mistake_names_the_field_and_what_is_accepted(name: str, settings: list[str], eps: str | None, message: str) -> None:
    with pytest.raises(UserError) as error:
        build_analysis(name, settings, Defaults(None, Path("runs/x")), None, eps)
    assert message in str(error.value)


def test_the_verb_prints_the_summary_and_the_report_shows_it(run: Run, trained_run: Path) -> None:
    line = f"analyze effectiveness {trained_run} --eps 0.1 --images 8 --set steps=[1,2] --set oracle=3 --device cpu --out here"
    ended = run(line)
    assert ended.status == 0
    summary, place = ended.out.splitlines()
    assert summary.startswith(f"{trained_run.name}: d_1 ")
    assert place == "analysis: here/analyses/effectiveness.json"
    assert summary == Finding.load(Path("here/analyses/effectiveness.json")).data["summary"][0]
    assert run("report here").status == 0
    assert "How much of a strong attack a few steps find" in Path("here/report.html").read_text()


def test_the_verb_compares_models_and_takes_what_is_open_from_the_first(run: Run, trained_run: Path, tmp_path: Path) -> None:
    first, second = (shutil.copytree(trained_run, tmp_path / name) for name in ("first", "second"))
    ended = run(f"analyze gallery {first} {second} --eps 0.1 --set steps=2 --set count=2 --device cpu")
    assert ended.out.splitlines()[-1] == f"analysis: {first}/analyses/gallery.json"
    assert [row["model"] for row in Finding.load(first / "analyses" / "gallery.json").data["models"]] == ["first", "second"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("analyze galery {run} --eps 0.1", "unknown analysis 'galery': did you mean 'gallery'"),
        ("analyze gallery {run}", "--eps: missing"),
        ("analyze gallery vit_nanno --data digits --eps 0.1", "did you mean 'vit_nano'"),
        ("analyze semantic {run} --eps 0.1 --images 4 --device cpu", "alone; accepted: two or more"),
        ("analyze gallery {run} --eps 0.1 --images 0", "images: 0"),
    ],
)
def test_the_verb_tells_a_mistake_in_one_line(run: Run, trained_run: Path, tmp_path: Path, line: str, message: str) -> None:
    ended = run(line.format(run=trained_run))
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("error: ")
    assert message in ended.err
    assert not list(tmp_path.iterdir())


def test_list_shows_the_analyses(run: Run) -> None:
    lines = run("list analyses").out.splitlines()
    assert "effectiveness" in [line.split()[0] for line in lines]


@pytest.mark.parametrize("damage", ["json", "npz", "fields", "missing"])
def test_a_damaged_finding_is_an_error_that_names_it(tmp_path: Path, damage: str) -> None:
    path = Finding("gallery", {"summary": ["x"]}, {"image": np.zeros(3)}).save(tmp_path)
    if damage == "missing":
        path.with_suffix(".npz").unlink()
    elif damage == "fields":
        path.write_text("{}")
    else:
        path.with_suffix(f".{damage}").write_text("{")
    with pytest.raises(UserError, match=r"gallery\.json: not a readable analysis"):
        Finding.load(path)


def test_what_could_not_be_measured_is_null_and_never_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Finding("gallery", {"value": float("nan")}, {}).save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_run_s_model_is_the_one_looked_at(trained_run: Path) -> None:
    by_name = analyze(QUICK, [trained_run], "digits", images=8, device="cpu").data["models"][0]["oracle"]
    from robustvit.data import DataSpec

    x, y = DataSpec("digits").load("test").batch(slice(8))
    assert QUICK(load_model(trained_run), (x, y)).data["models"][0]["oracle"] == by_name
