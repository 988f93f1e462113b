"""What the engine trains, keeps, leaves out and refuses."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from robustvit.config import load
from robustvit.errors import UserError
from robustvit.papers import find_artefacts
from robustvit.papers.engine import reproduce
from robustvit.papers.estimate import estimate
from robustvit.papers.grid import Grid
from robustvit.papers.result import Result
from robustvit.papers.run import make_grid, run
from robustvit.papers.scale import Scale
from robustvit.papers.scales import PAPER, TINY


def of(name: str):
    (artefact,) = find_artefacts(f"light-recipe/{name}")
    return artefact


def test_what_is_trained_and_judged_is_not_done_again(grid: Grid, results: Path) -> None:
    first = reproduce(of("table-2b"), grid, results)
    weights = {path: path.stat().st_mtime_ns for path in grid.folder.rglob("*.safetensors")}
    again = reproduce(of("table-2b"), grid, results)
    assert {path: path.stat().st_mtime_ns for path in weights} == weights
    assert again.lines == first.lines
    assert again.orderings == first.orderings


def test_artefacts_share_models_of_the_same_recipe(grid: Grid) -> None:
    def folders(name: str) -> set[str]:
        sources = [source for row in of(name).rows for source in row.models.values()]
        return {training.folder.name for source in sources for training in grid.chain(source, 0)}

    assert folders("table-2c") < folders("table-9")
    assert len(folders("table-9")) == 16
    assert folders("table-4a") & folders("table-4b")


def test_a_model_starts_from_the_one_before_it(grid: Grid) -> None:
    row = of("table-7c").row("pre-trained")
    before, after = grid.chain(row.models["model"], 0)
    assert after.recipe.model.init == str(before.folder)
    assert before.recipe.model.init is None
    scratch = grid.chain(of("table-7c").row("from scratch").models["model"], 0)
    assert scratch[0].folder != after.folder


def test_seeds_train_each_model_anew(grid: Grid, results: Path) -> None:
    result = reproduce(of("figure-4"), grid, results, seeds=2)
    assert result.seeds == (0, 1)
    for line in result.lines:
        assert len(line.entries[0].ours) == 2
        fingerprints = {origin["fingerprint"] for origin in line.models["model"].values()}
        assert len(fingerprints) == 2
    folder = grid.chain(of("figure-4").rows[0].models["model"], 1)[-1].folder
    assert load(folder / "recipe.yaml").seed == 1


def test_weights_of_others_are_judged_if_they_are_given(grid: Grid, places: Mapping[str, str], results: Path) -> None:
    table = of("table-11")
    without = reproduce(table, grid, results)
    (left,) = (line for line in without.lines if line.left_out)
    assert left.label == "ReLU ResNet-50"
    assert "github.com/microsoft/robust-models-transfer" in left.left_out
    other = str(grid.chain(table.row("XCiT-S12").models["model"], 0)[-1].folder)
    given = replace(grid, paths={**places, "salman-resnet50-linf-eps8": other})
    result = reproduce(table, given, results)
    assert not any(line.left_out for line in result.lines)
    relu, xcit = (next(line for line in result.lines if line.label == label) for label in ("ReLU ResNet-50", "XCiT-S12"))
    assert relu.entries[0].ours == xcit.entries[0].ours


def test_rows_that_need_generated_images_say_so(quick: Scale, grid: Grid, results: Path) -> None:
    result = reproduce(of("table-7c"), replace(grid, paths={}), results)
    (left,) = (line for line in result.lines if line.left_out)
    assert left.label == "from scratch, generated images"
    assert "--data generated=PATH" in left.left_out


def test_all_missing_sets_are_named_at_once() -> None:
    with pytest.raises(UserError) as error:
        reproduce(of("figure-1"), Grid(PAPER, Path("nowhere"), {}), Path("nowhere"))
    for name in ("imagenet", "caltech101", "flowers102", "cifar10", "cifar100"):
        assert f"{name} (https://" in str(error.value)
        assert f"pass --data {name}=PATH" in str(error.value)


def test_a_result_is_not_lost_to_one_of_a_smaller_scale(grid: Grid, results: Path) -> None:
    result = replace(reproduce(of("figure-4"), grid, results), scale="small")
    result.save(results)
    with pytest.raises(UserError, match=r"is of scale small, which says more than tiny; pass another --out"):
        next(run("light-recipe/figure-4", Grid(TINY, grid.folder, {}), results))
    assert Result.load(result.path(results)) == result


def test_the_estimate_counts_what_is_left(grid: Grid, results: Path) -> None:
    artefact = of("table-2d")
    slow = replace(grid, scale=replace(grid.scale, flops=1e6), folder=results)
    before = estimate([artefact], slow)
    assert len(before.trainings) == 7
    assert before.hours > before.judging > 0
    doubled = estimate([artefact, artefact], slow)
    assert len(doubled.trainings) == 7  # shared
    text = "\n".join(before.lines())
    assert "7 × imagenet100, xcit_mini" in text


def test_the_papers_scale_says_hours_before_it_starts() -> None:
    found = estimate([of("table-4a")], Grid(PAPER, Path("nowhere"), {}))
    # XCiT-S12 for 110 epochs of 1.28M images at 5 passes of 4.8 G multiply–adds each and 100 TFLOP/s: 19 hours a model.
    (hours,) = {round(hours) for _, hours in found.trainings}
    assert 15 < hours < 25


@pytest.mark.parametrize(
    ("places", "message"), [(["cifar10"], "accepted: NAME=PATH"), (["cifar10=nowhere.npz"], "cifar10: no file or folder")]
)
def test_a_place_that_cannot_be_is_an_error(places: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_grid("tiny", places, None, "cpu")


def test_a_broken_result_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text('{"artefact": "x"')
    with pytest.raises(UserError, match=r"table\.json: not a readable result"):
        Result.load(path)
