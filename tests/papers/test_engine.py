"""What the engine trains, keeps, leaves out and refuses."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robustvit.config import load
from robustvit.crew import Crew
from robustvit.errors import UserError
from robustvit.papers import find_artefacts
from robustvit.papers.engine import reproduce
from robustvit.papers.grid import Grid, waves
from robustvit.papers.result import Result
from robustvit.papers.run import run
from robustvit.papers.scale import Scale
from robustvit.papers.scales import TINY


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


def test_several_at_a_time_give_the_very_same_result(
    quick: Scale, grid: Grid, places: Mapping[str, str], tmp_path: Path
) -> None:
    """A table with a model that starts from another; fingerprints say that the weights are the same, too."""
    alone = reproduce(of("table-7c"), grid, tmp_path / "alone")
    beside = Grid(quick, tmp_path / "grid", places, "cpu")
    with Crew(2) as crew:
        together = reproduce(of("table-7c"), beside, tmp_path / "together", crew=crew)
    assert len(list((tmp_path / "grid").iterdir())) == 4
    assert told(together) == told(alone)


def told(result: Result) -> Result:
    """But for what another run of the same says differently."""
    return replace(result, provenance={"warnings": result.provenance["warnings"]})


def test_a_crew_trains_the_models_of_all_artefacts_first(quick: Scale, places: Mapping[str, str], tmp_path: Path) -> None:
    jobs: list[tuple[str, int]] = []

    class Noted(Crew):
        def all(self, function, arguments, what):
            jobs.append((what, len(arguments)))
            return [function(argument) for argument in arguments]

    grid = Grid(quick, tmp_path / "grid", places, "cpu")
    results = list(run("light-recipe/figure-[48]", grid, tmp_path / "results", crew=Noted(2)))
    assert [result.artefact for result in results] == ["light-recipe/figure-4", "light-recipe/figure-8"]
    # XCiT-S12 is in both: it is trained once.
    assert [job for job in jobs if job[1]] == [("models trained", 5), ("models judged", 3), ("analyses done", 1)]


def test_what_a_training_is_refused_for_is_said_of_its_model(quick: Scale, tmp_path: Path) -> None:
    broken = Grid(replace(quick, batch_size=None), tmp_path / "grid", {}, "cpu")
    with pytest.raises(
        UserError, match=r"^imagenet-light, xcit_mini for .* \(quick, seed 0\): batch_size: 512; accepted: at most"
    ):
        reproduce(of("figure-3"), broken, tmp_path)


def test_waves_hold_each_run_once_after_what_it_starts_from(grid: Grid) -> None:
    chains = [grid.chain(row.models["model"], 0) for row in (*of("table-7c").rows, *of("table-11").rows[2:])]
    first, then = waves(chains)
    assert {run.folder for run in first} == {chain[0].folder for chain in chains}
    assert len(first) == len({run.folder for run in first}) == 5
    assert [run.recipe.model.init for run in then] == [str(chains[2][0].folder)]


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
        fingerprints = {origin["fingerprint"] for origin in line.models["model"]["seeds"].values()}
        assert len(fingerprints) == 2
    folder = grid.chain(of("figure-4").rows[0].models["model"], 1)[-1].folder
    assert load(folder / "recipe.yaml").seed == 1


def test_a_result_is_not_lost_to_one_of_a_smaller_scale(grid: Grid, results: Path) -> None:
    result = replace(reproduce(of("figure-4"), grid, results), scale="small")
    result.save(results)
    with pytest.raises(UserError, match=r"is of scale small, which says more than tiny; pass another --out"):
        next(run("light-recipe/figure-4", Grid(TINY, grid.folder, {}), results))
    assert Result.load(result.path(results)) == result


def test_a_result_is_not_lost_to_one_of_fewer_seeds(grid: Grid, results: Path) -> None:
    result = replace(reproduce(of("figure-4"), grid, results), scale="tiny", seeds=(0, 1))
    result.save(results)
    with pytest.raises(UserError, match=r"--seeds: 1, but .*figure-4\.json has 2; accepted: as many or more, or another --out"):
        next(run("light-recipe/figure-4", Grid(TINY, grid.folder, {}), results, seeds=1))


def test_a_number_of_seeds_below_one_is_refused(grid: Grid, results: Path) -> None:
    with pytest.raises(UserError, match=r"--seeds: 0; accepted: 1 or more"):
        next(run("light-recipe/figure-4", grid, results, seeds=0))


def test_models_of_other_images_are_other_models(quick: Scale, few_digits: Path, tmp_path: Path) -> None:
    """Whatever the path: a copy of the images changes nothing, another image in their place everything."""
    with np.load(few_digits) as file:
        arrays = dict(file)
    copy, other = tmp_path / "copy.npz", tmp_path / "other.npz"
    np.savez(copy, **arrays)
    np.savez(other, **arrays | {"x_train": 255 - arrays["x_train"]})

    def folder(path: Path) -> Path:
        sets = {name: replace(found, where="somewhere") for name, found in quick.sets.items()}
        grid = Grid(replace(quick, sets=sets), tmp_path / "grid", {"few": str(path)})
        return grid.chain(of("figure-3").rows[0].models["model"], 0)[-1].folder

    assert folder(copy) == folder(few_digits) != folder(other)


def test_the_command_has_every_option_that_decides(quick: Scale, places: Mapping[str, str], grid: Grid, results: Path) -> None:
    result = reproduce(of("table-7c"), grid, results, seeds=1)
    assert result.provenance["command"] == (
        "robustvit reproduce light-recipe/table-7c --scale quick --data generated=PATH --seeds 1 --device cpu"
    )


def test_names_of_stand_ins_say_what_they_are(grid: Grid) -> None:
    def names(artefact: str) -> set[str]:
        sources = [source for row in of(artefact).everything for source in row.models.values()]
        return {training.recipe.name for source in sources for training in grid.chain(source, 0)}

    assert len(names("table-9")) == 16
    assert "imagenet-resnet50-clean, resnet_mini for resnet50 (quick, seed 0)" in names("table-8")


def test_a_broken_result_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text('{"artefact": "x"')
    with pytest.raises(UserError, match=r"table\.json: not a readable result"):
        Result.load(path)
