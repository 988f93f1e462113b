"""Outcome: the interval against closed forms, and files that give back what was written or say why not."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from robustvit.errors import UserError
from robustvit.evaluation import Outcome
from robustvit.evaluation.outcome import wilson

Z2 = 1.959964**2
PROVENANCE = {"threat": {"norm": "linf", "eps": 8 / 255}, "attack": {"type": "pgd", "steps": 50}, "seed": 3, "seconds": 1.5}


def outcome(name: str = "pgd-50 linf 0.0313725", right: int = 30, n: int = 40) -> Outcome:
    arrays = {"index": np.arange(n) * 2, "example_image": np.linspace(0, 1, 128, dtype=np.float32).reshape(2, 1, 8, 8)}
    return Outcome(name, np.arange(n) < right, dict(PROVENANCE), arrays)


@pytest.mark.parametrize("n", [1, 40, 10_000])
def test_the_interval_at_its_ends_has_a_closed_form(n: int) -> None:
    assert wilson(0, n) == pytest.approx((0.0, Z2 / (n + Z2)), abs=1e-12)
    assert wilson(n, n) == pytest.approx((n / (n + Z2), 1.0), abs=1e-12)


def test_the_interval_round_one_half_has_a_closed_form() -> None:
    half = 0.5 * (Z2 / (100 + Z2)) ** 0.5
    assert wilson(50, 100) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-12)


@pytest.mark.parametrize(("correct", "n"), [(8, 10), (1, 7), (347, 360), (4999, 10_000), (1, 10_000)])
def test_the_interval_agrees_with_scipy(correct: int, n: int) -> None:
    expected = binomtest(correct, n).proportion_ci(0.95, method="wilson")
    assert wilson(correct, n) == pytest.approx((expected.low, expected.high), abs=1e-7)


@pytest.mark.parametrize("n", [1, 13])
def test_the_interval_lies_in_the_unit_range_holds_the_share_and_is_symmetric(n: int) -> None:
    for correct in range(n + 1):
        low, high = wilson(correct, n)
        assert 0 <= low <= correct / n <= high <= 1
        assert (1 - high, 1 - low) == pytest.approx(wilson(n - correct, n))


def test_n_accuracy_interval_and_eps_follow_from_the_images() -> None:
    one = outcome()
    assert (one.n, one.accuracy, one.eps) == (40, 0.75, 8 / 255)
    assert one.interval == wilson(30, 40)
    assert Outcome("clean", one.correct, {**PROVENANCE, "threat": None, "attack": None}, {}).eps == 0.0


def test_a_printed_outcome_gives_n_and_interval() -> None:
    assert str(outcome("clean")) == "clean: 75.0% (95% interval 59.8% to 85.8%, n = 40)"


def test_files_give_back_what_was_written(tmp_path: Path) -> None:
    one = outcome()
    back = Outcome.load(one.save(tmp_path / "new" / "outcomes"))
    assert (back.name, back.provenance, back.interval) == (one.name, one.provenance, one.interval)
    assert back.correct.dtype == bool
    np.testing.assert_array_equal(back.correct, one.correct)
    assert back.arrays.keys() == one.arrays.keys()
    for name, array in one.arrays.items():
        assert back.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(back.arrays[name], array)


def test_the_json_alone_tells_the_number_and_how_sure_it_is(tmp_path: Path) -> None:
    told = json.loads(outcome().save(tmp_path).read_text())
    assert (told["name"], told["accuracy"], told["correct"], told["n"]) == ("pgd-50 linf 0.0313725", 0.75, 30, 40)
    assert told["interval_95"] == list(wilson(30, 40))
    assert told.items() >= PROVENANCE.items()


@pytest.mark.parametrize("name", ["clean", "pgd-50 linf 8/255", "../../escape", "a.b"])
def test_every_name_makes_a_pair_of_files_inside_the_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    path = outcome(name).save(folder)
    assert Outcome.load(path).name == name
    assert sorted(file.parent for file in tmp_path.rglob("*.*") if file.is_file()) == [folder, folder]


def test_an_outcome_written_again_takes_the_old_one_s_place(tmp_path: Path) -> None:
    outcome(right=10).save(tmp_path)
    assert Outcome.load(outcome(right=20, n=30).save(tmp_path)).interval == wilson(20, 30)


def test_no_json_appears_without_its_evidence(tmp_path: Path) -> None:
    (tmp_path / "clean.npz").mkdir()
    with pytest.raises((OSError, UserError)):
        outcome("clean").save(tmp_path)
    assert not (tmp_path / "clean.json").exists()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def cut_early(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:30])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def garble(file: Path) -> None:
    file.write_bytes(b"\xff\xfe no such thing")


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[60:70] = bytes(255 - byte for byte in content[60:70])
    file.write_bytes(content)


def remove(file: Path) -> None:
    file.unlink()


def an_empty_object(file: Path) -> None:
    file.write_text("{}")


def a_list(file: Path) -> None:
    file.write_text("[]")


def a_bare_array(file: Path) -> None:
    with open(file, "wb") as stream:
        np.save(stream, np.arange(3))


def without_verdicts(file: Path) -> None:
    np.savez(file, y=np.arange(40))


DAMAGE = [
    pytest.param(".json", cut, id="json-cut"),
    pytest.param(".json", empty, id="json-empty"),
    pytest.param(".json", garble, id="json-garbled"),
    pytest.param(".json", remove, id="json-missing"),
    pytest.param(".json", an_empty_object, id="json-without-name"),
    pytest.param(".json", a_list, id="json-of-a-list"),
    pytest.param(".npz", cut, id="npz-cut"),
    pytest.param(".npz", cut_early, id="npz-cut-early"),
    pytest.param(".npz", empty, id="npz-empty"),
    pytest.param(".npz", flip, id="npz-with-flipped-bits"),
    pytest.param(".npz", a_bare_array, id="npz-of-one-array"),
    pytest.param(".npz", garble, id="npz-garbled"),
    pytest.param(".npz", remove, id="npz-missing"),
    pytest.param(".npz", without_verdicts, id="npz-without-verdicts"),
]


@pytest.mark.parametrize(("suffix", "damage"), DAMAGE)
def test_a_damaged_file_is_an_error_that_names_its_path(suffix: str, damage: Callable[[Path], None], tmp_path: Path) -> None:
    path = outcome("clean").save(tmp_path)
    damage(path.with_suffix(suffix))
    with pytest.raises(UserError, match=re.escape(str(tmp_path / "clean."))):
        Outcome.load(path)


def test_a_json_beside_the_evidence_of_another_run_is_an_error(tmp_path: Path) -> None:
    """As after a kill between the two files of a second evaluation: old provenance, new verdicts."""
    path = outcome("clean", right=10).save(tmp_path)
    np.savez(path.with_suffix(".npz"), correct=outcome(right=20).correct)
    with pytest.raises(UserError, match=re.escape(str(tmp_path / "clean."))):
        Outcome.load(path)
