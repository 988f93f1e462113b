"""Every command and every line of Python in the README, run in its order and in one folder."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
NAMED = re.findall(
    r"`((?:robustvit|make|pip|accelerate) [^`]+)`", re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
)

# What makes a command take seconds. Options and fields given twice hold as given last.
SHORTER = {
    "train": "model.args.depth=1 batch_size=16 phases.0.epochs=1 optim.schedule.warmup=0 select.steps=1 --device cpu",
    "evaluate": "--steps 2 --images 20 --device cpu",
    "evaluate --suite autoattack": "--images 4 --device cpu",
    "analyze": "--images 2 --set steps=[1,2] --device cpu",
    "verify": "--device cpu",
    "reproduce": "",
    "report": "",
    "list": "",
}
ELSEWHERE = {"pip install ."}  # in test_packaging.py


@pytest.fixture
def cifar10(tmp_path: Path) -> None:
    """Noise in the shape of CIFAR-10, under the README's name."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 160), ("test", 1000)):
        arrays[f"x_{split}"] = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        arrays[f"y_{split}"] = np.arange(count) % 10
    np.savez(tmp_path / "cifar10.npz", **arrays)


def commands(block: str) -> list[str]:
    return [line for line in block.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]


def check(command: str, run: Callable[[str], Any]) -> None:
    program, verb, *_ = command.split()
    if program == "make":
        assert re.search(rf"^{verb}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
    elif program == "accelerate":
        launcher = [sys.executable, "-m", "accelerate.commands.launch", *command.split()[2:], *SHORTER["train"].split()]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        ended = subprocess.run(launcher, env=environment, capture_output=True, text=True, timeout=240)
        assert ended.returncode == 0, ended.stderr
    elif command not in ELSEWHERE:
        assert program == "robustvit", f"{command}: no program that this test knows"
        verb = f"{verb} --suite autoattack" if "--suite autoattack" in command else verb
        assert verb in SHORTER, f"{command}: no verb that this test knows"
        ended = run(f"{command.removeprefix('robustvit')} {SHORTER[verb]}")
        assert ended.status == 0, f"{command}: {ended.err}"


@pytest.mark.usefixtures("cifar10")
def test_what_the_readme_says_can_be_done(run: Callable[[str], Any], capsys: pytest.CaptureFixture) -> None:
    assert {language for language, _ in BLOCKS} == {"sh", "python"}
    for language, block in BLOCKS:
        if language == "sh":
            for command in commands(block):
                check(command, run)
        else:
            with torch.random.fork_rng(devices=[]):
                exec(compile(block, "README.md", "exec"), {})
            assert capsys.readouterr().out.count("n = 1000") == 3
    results = ["mine/report.html", "lion/recipe.yaml", "lion-1/checkpoints/best.safetensors", "own/outcomes/clean.json"]
    for made in (*results, "two/checkpoints/last.safetensors"):
        assert Path("runs", made).is_file(), made


@pytest.mark.parametrize("command", NAMED)
def test_a_command_that_the_text_names_works(run: Callable[[str], Any], command: str) -> None:
    check(command, run)


@pytest.mark.parametrize("target", re.findall(r"\]\((?!https?:)([^)#]+)\)", README))
def test_a_link_leads_somewhere(target: str) -> None:
    assert (ROOT / target).exists()
