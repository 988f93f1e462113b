"""What the engine trains, keeps, leaves out and refuses."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from robustvit.config import load
from robustvit.crew import Crew
from robustvit.errors import UserError
from robustvit.papers import find_artefacts
from robustvit.papers.engine import reproduce
from robustvit.papers.estimate import Work, estimate, together
from robustvit.papers.grid import Grid, waves
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
    return replace(result, provenance={k: v for k, v in result.provenance.items() if k not in ("seconds", "versions")})


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
    assert [job for job in jobs if job[1]] == [("models trained", 5), ("models judged", 3)]


def test_what_a_training_is_refused_for_is_said_of_its_model(quick: Scale, tmp_path: Path) -> None:
    gone = {name: replace(found, spec=replace(found.spec, path="gone.npz")) for name, found in quick.sets.items()}
    broken = Grid(replace(quick, sets=gone), tmp_path / "grid", {}, "cpu")
    with pytest.raises(UserError, match=r"^imagenet-light xcit_small_12_p16_224 \(quick, seed 0\): .*gone\.npz"):
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
    beside = estimate([artefact], slow, jobs=7)
    assert beside.hours == pytest.approx(before.hours)  # one device that computes all the time
    assert "training, 7 at a time: about" in "\n".join(beside.lines())
    calling = replace(slow, scale=replace(slow.scale, flops=1e12, overhead=10.0))
    assert estimate([artefact], calling, jobs=7).hours == pytest.approx(estimate([artefact], calling).hours / 7)


def test_the_papers_scale_says_hours_before_it_starts() -> None:
    found = estimate([of("table-4a")], Grid(PAPER, Path("nowhere"), {}))
    # XCiT-S12 for 110 epochs of 1.28M images at 5 passes of 4.8 G multiply–adds each and 100 TFLOP/s: 19 hours a model.
    (hours,) = {round(hours) for _, hours in found.trainings}
    assert 15 < hours < 25


def test_jobs_beside_each_other_overlap_their_calls_and_queue_for_the_device() -> None:
    calling, computing = [Work(1, 4)] * 4, [Work(4, 1)] * 4
    assert together([], 4) == 0
    assert together(calling, 1) == 16
    assert together(calling, 2) == 8
    assert together(calling, 3) == 8  # one of them has two to do
    assert together(calling, 8) == 4
    assert together(computing, 1) == together(computing, 8) == 16


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
