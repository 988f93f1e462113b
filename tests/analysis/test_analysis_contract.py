"""What every analysis promises, tested on every entry of the registry. A new analysis joins with one row in `TABLE`."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustvit.analysis import (
    ANALYSES,
    Analysis,
    Convergence,
    Effectiveness,
    EpsSweep,
    FeatureImages,
    Finding,
    Gallery,
    PGDSteps,
    Semantic,
)
from robustvit.attacks import PGD
from robustvit.config import from_data, to_data
from robustvit.data import Images
from robustvit.errors import UserError
from robustvit.evaluation import memory
from robustvit.models import Classifier
from robustvit.report import write_report
from robustvit.report.sections import SECTIONS, sections
from robustvit.threat import Threat

LINF = Threat("linf", 0.1)
TABLE: dict[str, Analysis] = {
    "effectiveness": Effectiveness(LINF, steps=(1, 2), oracle=3, seeds=2),
    "convergence": Convergence(LINF, steps=(1, 2), long_steps=3, points=3, restarts=2),
    "eps_sweep": EpsSweep(LINF, factors=(0.5, 1.0), attack=PGD(LINF, steps=2, seed=0)),
    "pgd_steps": PGDSteps(LINF, steps=(1, 2)),
    "semantic": Semantic(LINF, steps=2),
    "feature_images": FeatureImages(steps=2, count=3),
    "gallery": Gallery(LINF, steps=2, count=3),
}
every_analysis = pytest.mark.parametrize("analysis", TABLE.values(), ids=TABLE)
Batch = tuple[Tensor, Tensor]


@pytest.fixture
def models(tiny_vit: Classifier, templates_64: nn.Module) -> dict[str, nn.Module]:
    return {"vit": tiny_vit, "line": templates_64}


@pytest.fixture
def templates_64() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))


def same(one: Finding, other: Finding) -> bool:
    arrays = one.arrays.keys() == other.arrays.keys()
    return arrays and one.data == other.data and all(np.array_equal(one.arrays[k], other.arrays[k]) for k in one.arrays)


def test_every_analysis_has_its_row_and_its_section() -> None:
    assert {name: type(analysis) for name, analysis in TABLE.items()} == ANALYSES
    assert list(SECTIONS) == list(ANALYSES)
    assert all(kind.name == name for name, kind in ANALYSES.items())


@every_analysis
class TestEveryAnalysis:
    def test_a_finding_is_plain_data_with_a_line_for_people(
        self, analysis: Analysis, models: dict[str, nn.Module], images: Batch
    ) -> None:
        finding = analysis(models, images)
        assert json.loads(json.dumps(finding.data, allow_nan=False)).keys() == finding.data.keys()
        assert finding.name == analysis.name
        assert finding.data["summary"]
        assert all(isinstance(line, str) and "\n" not in line for line in finding.data["summary"])
        assert finding.arrays
        assert all(array.dtype.kind in "bif" and np.isfinite(array).all() for array in finding.arrays.values())

    def test_a_finding_comes_back_from_its_files(
        self, analysis: Analysis, models: dict[str, nn.Module], images: Batch, tmp_path: Path
    ) -> None:
        finding = analysis(models, images)
        path = finding.save(tmp_path)
        assert path == tmp_path / "analyses" / f"{analysis.name}.json"
        assert sorted(tmp_path.rglob("*.*")) == [path, path.with_suffix(".npz")]
        loaded = Finding.load(path)
        normal = Finding(finding.name, json.loads(json.dumps(finding.data)), finding.arrays)
        assert same(loaded, normal)
        assert loaded.provenance == json.loads(json.dumps(finding.provenance))

    def test_the_same_again_is_the_same(self, analysis: Analysis, models: dict[str, nn.Module], images: Batch) -> None:
        first = analysis(models, images)
        torch.rand(3)
        assert same(analysis(models, Images("set", *images)), first)

    def test_it_does_not_matter_how_many_images_fit_at_once(
        self, analysis: Analysis, models: dict[str, nn.Module], images: Batch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = analysis(models, images)
        for limits in (memory.LARGEST, memory.LARGEST_WINDOW):
            monkeypatch.setitem(limits, "cpu", 5)
        parts = analysis(models, images)
        assert parts.arrays.keys() == whole.arrays.keys()
        for name, array in whole.arrays.items():  # up to rounding, which may turn the sign of a step
            assert np.abs(parts.arrays[name].astype(float) - array).mean() < 1e-3

    def test_models_and_random_state_are_left_as_they_were(
        self, analysis: Analysis, models: dict[str, nn.Module], images: Batch
    ) -> None:
        models["line"].train()
        before = {name: {k: v.clone() for k, v in model.state_dict().items()} for name, model in models.items()}
        state = torch.get_rng_state()
        with torch.no_grad():
            analysis(models, images)
            assert not torch.is_grad_enabled()
        assert torch.equal(torch.get_rng_state(), state)
        assert not any(module.training for module in models["vit"].modules())
        assert all(module.training for module in models["line"].modules())
        for name, model in models.items():
            assert all(torch.equal(v, before[name][k]) for k, v in model.state_dict().items())
            assert all(p.requires_grad and p.grad is None for p in model.parameters())

    def test_who_was_asked_about_what_is_recorded(
        self, analysis: Analysis, models: dict[str, nn.Module], images: Batch
    ) -> None:
        provenance = analysis(models, Images("mine", *images)).provenance
        assert provenance["parameters"] == to_data(analysis)
        assert [model["name"] for model in provenance["models"]] == ["vit", "line"]
        assert len({model["fingerprint"] for model in provenance["models"]}) == 2
        assert (provenance["data"]["name"], provenance["data"]["images"]) == ("mine", 16)
        assert {"robustvit", "torch", "device"} <= set(provenance["versions"])

    def test_its_parameters_are_plain_data(self, analysis: Analysis) -> None:
        assert from_data(type(analysis), json.loads(json.dumps(to_data(analysis)))) == analysis

    def test_the_report_shows_it(self, analysis: Analysis, models: dict[str, nn.Module], images: Batch, tmp_path: Path) -> None:
        finding = Finding.load(analysis(models, images).save(tmp_path))
        (section,) = sections([finding])
        assert section.figures or section.pictures or section.table
        page = write_report([tmp_path], tmp_path / "report.html").read_text(encoding="utf-8")
        assert section.title in page
        assert page.count("<svg") == len(section.figures)
        assert page.count("<img") == sum(len(row) - 1 for row in section.pictures[1:])
        for name in models:
            assert name in page

    def test_images_that_do_not_fit_are_refused(self, analysis: Analysis, models: dict[str, nn.Module]) -> None:
        with pytest.raises(UserError, match=r"images of shape \(1, 9, 9\)"):
            analysis(models, (torch.rand(3, 1, 9, 9), torch.zeros(3, dtype=torch.long)))
        with pytest.raises(UserError, match=r"labels up to 10"):
            analysis(models, (torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 10])))

    def test_a_broken_model_is_an_error(self, analysis: Analysis, models: dict[str, nn.Module], images: Batch) -> None:
        with torch.no_grad():
            models["line"][2].bias[3] = torch.nan
        with pytest.raises(UserError, match=r"NaN"):
            analysis(models, images)

    def test_no_model_is_an_error(self, analysis: Analysis, images: Batch) -> None:
        with pytest.raises(UserError, match="models: none given"):
            analysis({}, images)


COUNTS = [
    (name, field)
    for name, fields in {
        "effectiveness": ("steps", "oracle", "seeds"),
        "convergence": ("steps", "long_steps", "points", "restarts"),
        "pgd_steps": ("steps",),
        "semantic": ("steps", "top"),
        "feature_images": ("steps", "count"),
        "gallery": ("steps", "count"),
    }.items()
    for field in fields
]


@pytest.mark.parametrize(("name", "field"), COUNTS)
def test_a_count_below_one_is_refused(name: str, field: str) -> None:
    value = getattr(TABLE[name], field)
    zero = (*value, 0) if isinstance(value, tuple) else 0
    with pytest.raises(UserError, match=rf"{name}\.{field}: .*0\]?; accepted: 1 or more"):
        type(TABLE[name])(**{"threat": LINF, field: zero})


@pytest.mark.parametrize("name", [name for name in TABLE if name != "eps_sweep"])
def test_a_step_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=rf"{name}\.step: 0\.0; accepted: more than 0"):
        type(TABLE[name])(threat=LINF, step=0.0)
