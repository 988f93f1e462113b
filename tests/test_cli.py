"""The verbs as a user runs them: what they print, how they end, and what they say of a mistake."""

import json
import pickle
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import robustvit
from robustvit.attacks import ATTACKS
from robustvit.cli import app
from robustvit.data import SOURCES
from robustvit.recipes import RECIPES
from robustvit.training import checkpoint

SHORT = "model.args.depth=1 batch_size=32 phases.0.epochs=2 optim.schedule.warmup=0 --device cpu"


Run = Callable[[str], Any]


def start(*arguments: object, **settings: object) -> subprocess.Popen:
    """The same in a process of its own."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "robustvit", *map(str, arguments)], **streams | settings)


HELP = """
import sys
from robustvit.cli import main
sys.argv = ["robustvit", "--help"]
try:
    main()
finally:
    print("loaded:", *sorted({"torch", "timm", "numpy", "yaml"} & set(sys.modules)))
"""


def test_top_level_help_shows_every_verb_and_loads_nothing_heavy() -> None:
    result = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    verbs = [command.name or command.callback.__name__ for command in app.registered_commands]
    assert {"demo", "train", "evaluate", "report", "list"} <= set(verbs)
    assert all(f" {verb} " in result.stdout for verb in verbs)
    assert result.stdout.splitlines()[-1] == "loaded:"


def test_a_mistake_ends_a_real_process_with_one_line_and_status_1() -> None:
    process = start("list", "modles")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    known = "analyses, attacks, augmentations, data, models, objectives, recipes, schedules, zoo"
    assert err == f"error: unknown list 'modles': did you mean 'models'? Known: {known}\n"


@pytest.mark.parametrize(
    ("line", "said"), [("", "Usage"), ("trian", "trian"), ("train", "recipe"), ("evaluate m --stps 3", "--stps")]
)
def test_a_line_that_does_not_parse_ends_with_status_2(run: Run, line: str, said: str) -> None:
    ended = run(line)
    assert ended.status == 2
    assert said.lower() in (ended.out + ended.err).lower()  # typer's versions write arguments in different cases


def test_a_reader_that_leaves_ends_the_verb_quietly() -> None:
    process = start("list", "data")
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 141  # as the shell has it for SIGPIPE


@pytest.mark.parametrize(("what", "names"), [("recipes", RECIPES), ("attacks", ATTACKS), ("data", SOURCES)])
def test_list_shows_every_name_with_a_line_about_it(run: Run, what: str, names: dict) -> None:
    lines = [line for line in run(f"list {what}").out.splitlines() if not line.startswith(" ")]
    assert [line.split()[0] for line in lines] == list(names)
    assert all(len(line.split()) > 2 for line in lines)


def test_list_shows_the_fields_of_what_has_some(run: Run) -> None:
    assert "\n               threat, steps=100, weight=50.0, seed=null\n" in run("list attacks").out


def test_the_version_is_told(run: Run) -> None:
    assert (ended := run("--version")).status == 0
    assert ended.out == f"robustvit {robustvit.__version__}\n"


def test_list_takes_a_pattern(run: Run) -> None:
    assert run("list models 'vit_[mn]*o'").out.split() == ["vit_nano"]
    assert run("list recipes 'digits*'").out.count("\n") == 2


def test_train_evaluate_and_report_follow_one_another(run: Run, few_digits: Path) -> None:
    train = run(f"train digits-robust data.source=npz data.path={few_digits} {SHORT}")
    assert (train.status, train.out) == (0, "trained: runs/digits-robust\nnext:    robustvit evaluate runs/digits-robust\n")
    evaluate = run("evaluate runs/digits-robust --steps 2 --eps 8/255 --device cpu")
    assert evaluate.status == 0
    assert [line.split(":")[0] for line in evaluate.out.splitlines()][:3] == [
        "clean",
        "fgsm linf 0.0313725",
        "pgd-2 linf 0.0313725",
    ]
    assert evaluate.out.count("n = 40") == 3
    (pgd,) = Path("runs/digits-robust/outcomes").glob("pgd*.json")
    assert json.loads(pgd.read_text())["threat"] == {"norm": "linf", "eps": 8 / 255}
    report = run("report runs/digits-robust")
    assert report.out == "report: runs/digits-robust/report.html\n"
    assert "digits-robust" in Path("runs/digits-robust/report.html").read_text()


def test_attacks_are_chosen_by_their_fields(run: Run, trained_run: Path) -> None:
    wrapped = "'{type: restarts, count: 2, inner: {type: pgd, steps: 2, loss: margin}}'"
    line = f"evaluate {trained_run} --eps 0.1 --images 8 --attack gama --attack {wrapped} --device cpu --no-checks --out chosen"
    ended = run(line.replace("--attack gama", "--attack '{type: gama, steps: 3}'"))
    assert (ended.status, ended.err) == (0, "")
    assert [line.split(":")[0] for line in ended.out.splitlines()[:3]] == [
        "clean",
        "gama-steps3 linf 0.1",
        "pgd-2-marginx2 linf 0.1",
    ]
    attack = json.loads(Path("chosen/outcomes/pgd-2-marginx2_linf_0.1.json").read_text())["attack"]
    assert (attack["inner"]["loss"], attack["inner"]["seed"], attack["inner"]["threat"]["eps"]) == ("margin", 0, 0.1)


def test_a_report_does_not_put_two_models_under_one_name(run: Run, trained_run: Path) -> None:
    assert run(f"evaluate {trained_run} --eps 0.1 --images 8 --steps 1 --device cpu --no-checks --out both").status == 0
    clean = Path("both/outcomes/clean.json")
    summary = json.loads(clean.read_text())
    clean.write_text(json.dumps(summary | {"model": {**summary["model"], "fingerprint": "another"}}))
    ended = run("report both")
    assert ended.status == 1
    assert "'clean' is of model another" in ended.err
    assert "accepted: one model on one set of images" in ended.err


def test_the_saved_recipe_trains_the_same_bits_again(run: Run, few_digits: Path) -> None:
    line = f"train digits-robust data.source=npz data.path={few_digits} {SHORT} optim.type=lion seed=5 ema=0.9"
    line += " 'data.augment=[{type: pad_crop, pad: 1}]'"
    assert run(f"{line} --out first").status == 0
    assert run("train first/recipe.yaml --out again --device cpu").status == 0
    assert run("train first/recipe.yaml seed=6 --out other --device cpu").status == 0
    for name in ("best", "last"):
        first, again, other = (held(Path(run, "checkpoints", f"{name}.safetensors")) for run in ("first", "again", "other"))
        assert first == again
        assert first != other


def held(path: Path) -> tuple[dict[str, bytes], dict]:
    """The bits of every tensor, and what is written beside them."""
    tensors, meta = checkpoint.read(path)
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}, meta


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory, trained_run: Path) -> Path:
    """What people pass by mistake."""
    folder = tmp_path_factory.mktemp("files")
    x, y = np.zeros((200, 8, 8), np.uint8), np.arange(200) % 10
    sets = {
        "range": (x + 200.0, y),
        "large": (np.zeros((200, 28, 28), np.uint8), y),
        "twelve": (x, np.arange(200) % 12),
        "five": (x, y % 5),
        "empty": (x[:0], y[:0]),
        "negative": (x, y - 1),
    }
    for name, (images, labels) in sets.items():
        classes = {"classes": np.array(list("abcde"))} if name == "five" else {}
        np.savez(folder / f"{name}.npz", x_train=images, y_train=labels, x_test=images, y_test=labels, **classes)
    whole = (trained_run / "checkpoints" / "best.safetensors").read_bytes()
    (folder / "short.safetensors").write_bytes(whole[: len(whole) // 2])
    safetensors.torch.save_file({"weight": torch.ones(2)}, folder / "foreign.safetensors")
    torch.save({"weight": torch.ones(2)}, folder / "model.pt")
    (folder / "renamed.safetensors").write_bytes(pickle.dumps({"weight": [1.0]}))
    (folder / "notes").mkdir()
    (folder / "notes" / "mine.txt").write_text("mine")
    return folder


ROBUST = "train digits-robust --device cpu"
EPS = "phases.0.objective.adversary.threat.eps"
JUDGE = "evaluate {run} --eps 0.1 --device cpu"

BAD = {
    # names
    "train digits-robst": ["recipe 'digits-robst'", "did you mean 'digits-robust'", "digits-standard"],
    "train {files}/none.yaml": ["none.yaml", "No such file"],
    "train {files}/notes": ["notes", "not a readable recipe"],
    f"{ROBUST} model.name=vit_nanno": ["model 'vit_nanno'", "did you mean 'vit_nano'"],
    f"{ROBUST} data.source=digts": ["data 'digts'", "did you mean 'digits'", "npz"],
    f"{ROBUST} optim.type=lionn": ["optim.type 'lionn'", "did you mean 'lion'"],
    f"{ROBUST} lr=1": ["field 'lr'", "did you mean optim.lr?"],
    f"{ROBUST} epochs=3": ["field 'epochs'", "did you mean phases.0.epochs or phases.0.eps.epochs?"],
    f"{ROBUST} phase.0.epochs=3": ["field 'phase.0.epochs'", "did you mean phases.0.epochs"],
    "train {run}": ["'{run}' is a run", "{run}/recipe.yaml"],
    "evaluate {run}/recipe.yaml": ["a recipe; accepted: the folder of its run"],
    "verify {run}": ["outcome '{run}': no such file"],
    f"{JUDGE} --data-field splits=3": ["--data-field", "splits: 3"],
    f"{ROBUST} optim.lrr=1": ["'optim.lrr'", "did you mean 'optim.lr'"],
    "train digits-robust --device gpu": ["device: 'gpu'", "cpu, cuda"],
    "evaluate runs/mine": ["run or checkpoint 'runs/mine'", "Known: none"],
    "evaluate {files}/note": ["run or checkpoint '{files}/note'", "did you mean '{files}/notes'"],
    "evaluate vit_nanno --data digits --eps 0.1": ["'vit_nanno'", "did you mean 'vit_nano'"],
    f"{JUDGE} --suite quik": ["suite 'quik'", "did you mean 'quick'", "sweep"],
    f"{JUDGE} --data digts": ["data 'digts'", "did you mean 'digits'", "npz"],
    f"{JUDGE} --attack '{{{{type: gma}}}}'": ["--attack.type 'gma'", "did you mean 'gama'"],
    f"{JUDGE} --attack '{{{{type: gama, stps: 3}}}}'": ["--attack.stps", "did you mean '--attack.steps'"],
    f"{JUDGE} --attack '{{{{type: ['": ["--attack", "not valid YAML"],
    f"{JUDGE} --attack pgd --steps 3": ["--steps: means nothing to --attack", "'{{type: pgd, steps: 50}}'"],
    f"{JUDGE} --restarts 0": ["--restarts: 0", "1 or more"],
    "evaluate {run} --eps 1e400": ["--eps: '1e400' is not a number"],
    f"{JUDGE} --norm l2 --eps 128": ["eps: 128 in l2", "8 for images of shape (1, 8, 8)", "did you mean 128/255?"],
    f"{JUDGE} --data five.npz": ["'five.npz' is a file", "npz:five.npz"],
    f"{JUDGE} --data cifar10:{{files}}/notes/mine.txt": ["mine.txt' is no .npz"],
    f"{JUDGE} --out {{files}}/model.pt": ["out: ", "model.pt' is a file; accepted: a folder"],
    f"{ROBUST} optim.args.foreach=2020-01-01": ["optim.args.foreach: datetime.date(2020, 1, 1)", "numbers, texts"],
    f"{ROBUST} phases.0.objective.adversary.step=.inf": ["adversary.step: inf", "a finite number"],
    f"{ROBUST} select.seed=-1": ["select.seed: -1", "0 to 2147483647"],
    "report {run}/..": ["neither recipe.yaml nor outcomes/", "such as ", "{run}"],
    f"{JUDGE} --norm l3": ["norm: 'l3'", "linf, l2, l1"],
    "list recipe": ["list 'recipe'", "did you mean 'recipes'", "analyses, attacks, augmentations, data, models"],
    "list models 'vitt*'": ["pattern: 'vitt*'", "as in 'vit*'"],
    # numbers
    f"{ROBUST} {EPS}=-0.1": ["eps: -0.1", "≥ 0"],
    f"{ROBUST} {EPS}=8": ["eps: 8", "did you mean 8/255?"],
    f"{ROBUST} {EPS}=big": [f"{EPS}: 'big'", "0.03 or 8/255"],
    f"{ROBUST} seed=-1": ["seed: -1", "0 to 2147483647"],
    f"{ROBUST} batch_size=5000": ["batch_size: 5000", "at most 1294"],
    f"{ROBUST} model.args.num_heads=7": ["model.args: {{'num_heads': 7}}", "vit_nano"],
    f"{ROBUST} model.args.wings=2": ["model.args: {{'wings': 2}}", "vit_nano"],
    f"{ROBUST} model.args.num_heads=0": ["model.args: {{'num_heads': 0}}", "vit_nano"],
    f"{ROBUST} model.args.act_layer=foo": ["model.args: {{'act_layer': 'foo'}}", "vit_nano"],
    f"{ROBUST} model.args.drop_path_rate=2": ["VisionTransformer fails in train mode", "(1, 8, 8)"],
    f"{ROBUST} optim.args.betas=[0.9]": ["optim: adamw does not accept", "{{'betas': [0.9]}}"],
    f"{ROBUST} phases.0.objective.label_smoothing=7": ["objective.label_smoothing: 7", "0 to 1"],
    f"{ROBUST} phases.0.objective.adversary.targeted=true": ["objective.adversary.targeted: True", "accepted: False"],
    f"{ROBUST} select.targeted=true": ["select.targeted: True", "accepted: False"],
    "evaluate {run} --eps=-0.1": ["eps: -0.1", "≥ 0"],
    "evaluate {run} --eps 8": ["eps: 8", "did you mean 8/255?"],
    "evaluate {run} --eps big": ["--eps: 'big'", "0.03 or 8/255"],
    "evaluate {run}": ["--eps: missing", "as in --eps 8/255"],
    f"{JUDGE} --attack '{{{{type: pgd, seed: null}}}}'": ["attack.seed: null", "such as 0"],
    f"{JUDGE} --steps 0": ["steps: 0", "1 or more"],
    f"{JUDGE} --images 0": ["images: 0", "1 to 360"],
    f"{JUDGE} --images 361": ["images: 361", "1 to 360"],
    f"{JUDGE} --sample-seed=-1": ["sample_seed: -1", "0 to 2147483647"],
    # data
    f"{ROBUST} data.source=npz data.path={{files}}/range.npz": ["'range'", "from 200 to 200", "[0, 1] or uint8"],
    f"{ROBUST} data.source=npz data.path={{files}}/large.npz": ["'large'", "(1, 28, 28)", "(1, 8, 8)"],
    f"{ROBUST} data.source=npz data.path={{files}}/twelve.npz": ["'twelve'", "labels up to 11", "0 to 9"],
    f"{ROBUST} data.source=npz data.path={{files}}/negative.npz": ["'negative'", "labels from -1", "0 or more"],
    f"{ROBUST} data.source=npz data.path={{files}}/five.npz": ["model: 10 classes", "'five' has 5"],
    f"{ROBUST} data.source=npz data.path={{files}}/empty.npz": ["'empty'", "one image or more"],
    f"{ROBUST} data.source=npz": ["data.path: missing", "an .npz file"],
    f"{ROBUST} data.path={{files}}/five.npz": ["data.path", "five.npz", "digits: none"],
    "train cifar10-robust --device cpu": ["'cifar10': not found in 'data'", "data.path=PATH", "data.download=true"],
    "train cifar10-robust data.path={files}": ["'cifar10': not found in '{files}'", "an .npz or torchvision's folder"],
    f"{JUDGE} --data npz:{{files}}/range.npz": ["'range'", "from 200 to 200", "[0, 1] or uint8"],
    f"{JUDGE} --data npz:{{files}}/large.npz": ["'large'", "(1, 28, 28)", "(1, 8, 8)"],
    f"{JUDGE} --data npz:{{files}}/twelve.npz": ["'twelve'", "labels up to 11", "0 to 9"],
    f"{JUDGE} --data npz:{{files}}/twelve.npz --images 5": ["'twelve'", "labels up to 11", "0 to 9"],
    f"{JUDGE} --data npz:{{files}}/five.npz": ["model: 10 classes", "'five' has 5"],
    f"{JUDGE} --data npz:{{files}}/empty.npz": ["'empty'", "one image or more"],
    f"{JUDGE} --data npz:{{files}}/none.npz": ["data.path", "none.npz"],
    f"{JUDGE} --data cifar10": ["'cifar10': not found in 'data'", "--data cifar10:PATH"],
    "evaluate {files}/short.safetensors --eps 0.1": ["--data: missing", "--data cifar10:PATH"],
    # models and folders
    "evaluate {files}/short.safetensors --data digits --eps 0.1": ["short.safetensors", "truncated"],
    "evaluate {files}/foreign.safetensors --data digits --eps 0.1": ["foreign.safetensors", "not written by robustvit"],
    "evaluate {files}/model.pt --data digits --eps 0.1": ["model.pt", "pickle", ".safetensors"],
    "evaluate {files}/renamed.safetensors --data digits --eps 0.1": ["renamed.safetensors", "pickle", ".safetensors"],
    "evaluate {run}/checkpoints/resume.safetensors --data digits --eps 0.1": ["resume.safetensors", "best.safetensors"],
    "evaluate {files}/notes --data digits --eps 0.1": ["notes", "holds no recipe.yaml"],
    "evaluate vit_nano --data digits --eps 0.1": ["'vit_nano'", "published weights"],
    f"{ROBUST} --out {{run}}": ["'{run}' holds another run", "differs in phases.0.objective"],
    f"{ROBUST} --out {{files}}/notes": ["notes", "a new or empty folder"],
    f"{ROBUST} --out {{files}}/model.pt": ["model.pt", "a new or empty folder"],
    f"{ROBUST} --out {{files}}/model.pt/below": ["model.pt/below", "a new or empty folder"],
    "report {files}/notes": ["notes", "neither recipe.yaml nor outcomes/"],
    "report {run} --out {files}/notes": ["notes", "a new file, or an .html to replace"],
    "report {run} --out {run}/recipe.yaml": ["recipe.yaml", "a new file, or an .html to replace"],
}


@pytest.mark.parametrize("line", BAD)
def test_a_mistake_is_told_with_field_value_and_what_is_accepted(
    run: Run, line: str, files: Path, trained_run: Path, tmp_path: Path
) -> None:
    def kept() -> dict[Path, bytes]:
        return {path: path.read_bytes() for top in (files, trained_run) for path in top.rglob("*") if path.is_file()}

    before = kept()
    ended = run(line.format(run=trained_run, files=files))
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("error: ")
    assert "\n" not in ended.err
    for fragment in BAD[line]:
        assert fragment.format(run=trained_run, files=files) in ended.err
    assert kept() == before
    assert not list(tmp_path.iterdir())


def test_stopped_by_hand_and_by_a_full_disk_a_run_ends_with_the_same_bits(run: Run, few_digits: Path, tmp_path: Path) -> None:
    line = f"train digits-standard data.source=npz data.path={few_digits} {SHORT} phases.0.epochs=200"
    state = tmp_path / "broken" / "checkpoints" / "resume.safetensors"

    process = start(*line.split(), "--out", state.parents[1])
    deadline = time.monotonic() + 120
    while not state.exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    said = ["stopping after this step; once more stops at once", "stopped; the same command goes on from what is saved"]
    assert [line for line in err.splitlines() if not line.startswith("note: ")] == said

    before = state.read_bytes()
    full = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))}
    process = start(*line.split(), "--out", state.parents[1], **full)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert re.match(r"note: goes on after epoch \d+, step \d+\nerror: ", err)
    assert ".safetensors: could not be saved (File too large)" in err
    assert "Traceback" not in err
    assert state.read_bytes() == before

    assert run(f"{line} --out broken").status == run(f"{line} --out whole").status == 0
    for name in ("best", "last"):
        broken, whole = (held(Path(run, "checkpoints", f"{name}.safetensors")) for run in ("broken", "whole"))
        assert broken == whole
    # Where it was stopped by hand it logged once more, of the part of an epoch until then.
    broken, whole = (Path(run, "metrics.jsonl").read_text().splitlines() for run in ("broken", "whole"))
    assert [line for line in broken if "held_out" in line] == [line for line in whole if "held_out" in line]
