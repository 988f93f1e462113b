"""What the documents say is what the files behind them say."""

import json
import re
from pathlib import Path

import pytest
import torch

from benchmarks.costs import RESULT, shape
from robustvit.models import ModelSpec
from robustvit.models.architectures import OWN
from robustvit.models.flops import cost_of

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COSTS = {row["name"]: row for row in json.loads(RESULT.read_text())}


PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS[1:] if PYTHON.search(path.read_text())], ids=lambda path: path.name
)
def test_what_a_document_says_in_python_works(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """All of a document's blocks one after the other; the README's have a test of their own."""
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng(devices=[]):
        exec(compile("\n".join(PYTHON.findall(document.read_text())), document.name, "exec"), {})
    assert capsys.readouterr().out


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_the_costs_of_models_are_those_that_were_counted() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\d+) \| ([\d.]+)M \| ([\d.]+) \| ([\d.]+) \|$", (ROOT / "docs/models.md").read_text(), re.M
    )
    assert len(rows) > 20
    for name, pixels, parameters, linear, attention in rows:
        counted = COSTS[name]
        assert int(pixels) == counted["pixels"]
        assert float(parameters) == round(counted["parameters"] / 1e6, 2)
        assert float(linear) == round(counted["linear_only"] / 1e9, 2)
        assert float(attention) == round(counted["with_attention"] / 1e9, 2)


def test_every_model_is_counted_and_counted_right() -> None:
    assert list(COSTS) == list(OWN)
    for name in ("vit_mini", "xcit_nano_12_p4_32", "resnet_mini", "wrn_28_10", "poolformer_m12"):
        classes, side = shape(name)
        assert cost_of(ModelSpec(name, classes), (3, side, side)).with_attention == COSTS[name]["with_attention"]
