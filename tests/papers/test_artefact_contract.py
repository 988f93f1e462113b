"""The contract of every table and figure, and the engine that makes all of them."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch

from robustvit.data import Images
from robustvit.evaluation.fits import check_fits
from robustvit.models import build
from robustvit.papers import ARTEFACTS
from robustvit.papers.artefact import Artefact, Cell, Limit
from robustvit.papers.engine import reproduce
from robustvit.papers.grid import Grid, recipes_of
from robustvit.papers.measures import COSTS, LOOK, MEASURES
from robustvit.papers.page import write_page
from robustvit.papers.result import Result
from robustvit.papers.scale import Scale
from robustvit.papers.scales import SCALES
from robustvit.papers.verdict import FAILED, HELD, OPEN

TABLES = ("1", "2a", "2b", "2c", "2d", "3", "4a", "4b", "5", "6", "7a", "7b", "7c", "7d", "8", "9", "10", "11")
SLACK = 3  # a machine that does other work beside
FIGURES = ("1", "3", "4", "5", "6", "7", "8", "12", "13", "14-17", "18")
LIGHT_RECIPE = {*(f"table-{number}" for number in TABLES), *(f"figure-{number}" for number in FIGURES)}


def test_every_numbered_table_and_figure_of_the_papers_is_there() -> None:
    assert set(ARTEFACTS) == {f"light-recipe/{name}" for name in LIGHT_RECIPE}


@pytest.mark.parametrize("artefact", ARTEFACTS.values(), ids=list(ARTEFACTS))
class TestEveryArtefact:
    def test_has_a_value_of_the_paper_or_none_for_each_cell(self, artefact: Artefact) -> None:
        for row in artefact.rows:
            assert len(row.paper) == len(artefact.columns), row.label
            for column, value in zip(artefact.columns, row.paper, strict=True):
                assert column.ask in (*MEASURES, LOOK)
                assert column.of in row.models or value is None, (row.label, column.name)
        assert len({row.label for row in artefact.everything}) == len(artefact.everything)
        assert (artefact.look is None) == all(column.ask != LOOK for column in artefact.columns) or not artefact.columns

    def test_says_the_threat_of_every_number_under_attack(self, artefact: Artefact) -> None:
        for column in artefact.columns:
            assert (column.threat is None) == (column.name == "clean" or column.ask in ("clean", *COSTS)), column.name

    def test_claims_what_the_papers_own_numbers_say(self, artefact: Artefact) -> None:
        def papers(cell: Cell) -> float | None:
            names = [column.name for column in artefact.columns]
            return artefact.row(cell.row).paper[names.index(cell.column)]

        for claim in artefact.claims:
            if isinstance(claim, Limit):
                value = papers(claim.cell)
                assert value is None or claim.at_least <= value <= claim.at_most, str(claim)
                continue
            larger, smaller = papers(claim.larger), papers(claim.smaller)
            if larger is not None and smaller is not None:
                assert larger > smaller, str(claim)
        assert len({str(claim) for claim in artefact.claims}) == len(artefact.claims)

    def test_is_reproduced(self, artefact: Artefact, grid: Grid, results: Path) -> None:
        result = reproduce(artefact, grid, results)
        self.check_numbers(artefact, result)
        self.check_measured(artefact, grid, result, results)
        assert Result.load(result.path(results)) == result
        assert result.figures
        for name in result.figures:
            root = ET.parse(result.path(results).with_name(name)).getroot()
            assert root.tag.endswith("svg")
        page = write_page(results, list(ARTEFACTS)).read_text("utf-8")
        assert artefact.full_name in page
        assert all(row.label.replace("&", "&amp;") in page for row in artefact.rows) or not artefact.columns
        assert artefact.title.split(":")[0] in str(result)

    def check_numbers(self, artefact: Artefact, result: Result) -> None:
        for row, line in zip(artefact.rows, result.lines, strict=True):
            for column, entry in zip(artefact.columns, line.entries, strict=True):
                assert bool(entry.ours) == (line.left_out is None and column.of in row.models), (line.label, column.name)
                assert bool(entry.n) == (bool(entry.ours) and column.ask not in COSTS)
            assert bool(line.models) == (line.left_out is None)
            assert line.left_out is None or "judged at scale paper alone" in line.left_out
        assert [ordering.claim for ordering in result.orderings] == [str(claim) for claim in artefact.claims]
        assert {ordering.verdict for ordering in result.orderings} <= {HELD, FAILED, OPEN}

    def check_measured(self, artefact: Artefact, grid: Grid, result: Result, results: Path) -> None:
        """Models, images, attacks and recipes: every hash can be turned back, and no short attack passes for a whole one."""
        for line in result.lines:
            for model in line.models.values():
                assert model["judged"] or all(column.ask in COSTS for column in artefact.columns) or not artefact.columns
                assert all(images["name"] == "few" and images["digest"] and images["n"] <= 16 for images in model["judged"])
                for origin in model["seeds"].values():
                    assert all(result.recipe(hashed).hash() == hashed for hashed in origin["recipes"])
        for column, told in zip(artefact.columns, result.columns, strict=True):
            if "autoattack" in (column.ask, column.by):
                assert "cut short" in told["name"]
                assert told["cut_short"] in str(result)
                assert told["attack"] == "autoattack-cut-to-2-4"
            if column.threat:
                assert told["threat"]["eps"] == pytest.approx(grid.scale.threat(column.threat).eps * column.factor)
        saved = sorted(path.name for path in result.folder(results).rglob("*.json"))
        assert saved == ([f"{result.analysis['name']}.json"] if result.analysis else [])
        assert (artefact.look is None) == (result.analysis is None)
        assert f"reproduce {artefact.full_name} --scale quick" in result.provenance["command"]


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_every_model_fits_its_images_at_every_scale(scale: Scale) -> None:
    rows = [row for artefact in ARTEFACTS.values() for row in artefact.everything]
    recipes = [recipe for row in rows for source in row.models.values() for recipe in recipes_of(source, scale)]
    for recipe in {
        (scale.set_of(recipe.data).name, recipe.data.classes, str(recipe.model)): recipe for recipe in recipes
    }.values():
        stands, found = scale.stand_in(recipe, 0, {}), scale.set_of(recipe.data)
        with torch.device("meta"):
            model = build(stands.model)
        side, classes = stands.data.size or found.side, found.classes_of(recipe.data)
        x = torch.zeros(classes, stands.model.channels, side, side, dtype=torch.uint8)
        check_fits(model, Images(found.name, x, torch.arange(classes), tuple(map(str, range(classes)))))
        assert (stands.model.channels, side) == (found.channels, found.side)


@pytest.mark.slow
@pytest.mark.parametrize("artefact", ARTEFACTS.values(), ids=list(ARTEFACTS))
def test_the_tiny_scale_makes_it_in_two_minutes(artefact: Artefact, tiny_grid: Grid, results: Path) -> None:
    result = reproduce(artefact, tiny_grid, results)
    assert result.scale == "tiny"
    assert sum(line.left_out is None for line in result.lines) >= min(2, len(result.lines))
    assert result.provenance["seconds"] < 120 * SLACK
