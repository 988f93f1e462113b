"""The zoo: what an entry's card says is what its files and its model say."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from robustvit import config, zoo
from robustvit.attacks import PGD
from robustvit.data import DataSpec
from robustvit.errors import UserError
from robustvit.evaluation import Outcome, evaluate
from robustvit.models import fingerprint, load_model
from robustvit.threat import Threat
from robustvit.zoo.evidence import compared
from robustvit.zoo.publish import publish

ENTRIES = {entry.name: entry for entry in zoo.entries()}
LARGEST, ALL_TOGETHER = 6 * 10**6, 40 * 10**6  # bytes


@pytest.mark.parametrize("name", ENTRIES)
class TestEveryEntry:
    def test_its_card_is_of_its_model(self, name: str) -> None:
        model, card = load_model(f"zoo:{name}"), ENTRIES[name].card
        assert fingerprint(model) == card["fingerprint"]
        assert sum(p.numel() for p in model.parameters()) == card["parameters"]

    def test_its_card_is_of_its_recipe(self, name: str) -> None:
        recipe = config.load(ENTRIES[name].folder / "recipe.yaml")
        assert (recipe.name, recipe.hash()) == (name, ENTRIES[name].card["recipe_hash"])
        assert recipe.data.path is None

    def test_its_card_sums_up_its_outcomes(self, name: str) -> None:
        entry = ENTRIES[name]
        outcomes = {o.name: o for o in map(Outcome.load, (entry.folder / "outcomes").glob("*.json"))}
        assert outcomes.keys() == entry.card["outcomes"].keys()
        assert any("autoattack" in outcome for outcome in outcomes)
        for outcome in outcomes.values():
            said = entry.card["outcomes"][outcome.name]
            assert {key: said[key] for key in outcome.summary} == outcome.summary
            assert outcome.provenance["model"]["fingerprint"] == entry.card["fingerprint"]
            assert bool(said["evidence_sha256"]) == (outcome.provenance["attack"] is not None)
            if outcome.provenance["data"]["spec"]:
                config.from_data(DataSpec, outcome.provenance["data"]["spec"], "data")  # by which it is found again

    def test_no_file_of_it_names_a_place(self, name: str) -> None:
        for path in ENTRIES[name].folder.rglob("*.json"):
            spec = json.loads(path.read_text()).get("data")
            assert not isinstance(spec, dict) or not (spec["spec"] or {}).get("path")

    def test_its_weights_are_small(self, name: str) -> None:
        assert (ENTRIES[name].folder / "checkpoints" / "best.safetensors").stat().st_size <= LARGEST


def test_all_entries_together_are_small() -> None:
    files = [path for entry in ENTRIES.values() for path in entry.folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= ALL_TOGETHER


def test_what_is_still_being_published_is_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ENTRIES["digits-robust"].folder, tmp_path / ".digits-half.partial")
    monkeypatch.setenv(zoo.PLACE, str(tmp_path))
    assert [entry.name for entry in zoo.entries() if entry.folder.parent == tmp_path] == []


def test_the_tiny_entrys_numbers_are_made_again() -> None:
    """As `robustvit evaluate` would; AutoAttack takes too long here."""
    published = ENTRIES["digits-robust"].card["outcomes"]
    suite = [None, PGD(Threat("linf", 0.12), steps=50, seed=0)]
    for outcome in evaluate("zoo:digits-robust", "digits", suite, device="cpu"):
        assert abs(outcome.summary["correct"] - published[outcome.name]["correct"]) <= 1


def test_an_unknown_name_says_what_there_is_and_where_more_is() -> None:
    with pytest.raises(UserError, match=r"did you mean 'digits-robust'.*ROBUSTVIT_ZOO"):
        load_model("zoo:digits-robsut")


def test_another_place_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ENTRIES["digits-robust"].folder
    (tmp_path / "digits-robust").symlink_to(entry, target_is_directory=True)
    monkeypatch.setenv(zoo.PLACE, str(tmp_path))
    assert zoo.find("zoo:digits-robust").parent == tmp_path
    monkeypatch.setenv(zoo.PLACE, str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="nowhere"):
        zoo.find("zoo:digits-robust")


def test_a_published_run_is_judged_as_it_is_stored(trained_run: Path, tmp_path: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        folder = publish(trained_run, tmp_path, "digits", [None, PGD(Threat("linf", 0.05), steps=2, seed=0)], 20, "cpu")
    halved, whole = (load_model(path).state_dict() for path in (folder, trained_run))
    for name, weight in whole.items():
        assert torch.equal(halved[name], weight.half().float() if weight.is_floating_point() else weight)
    card = json.loads((folder / "card.json").read_text())
    assert card["fingerprint"] == fingerprint(load_model(folder))
    assert {o["n"] for o in card["outcomes"].values()} == {20}
    assert config.load(folder / "recipe.yaml").hash() == config.load(trained_run / "recipe.yaml").hash() == card["recipe_hash"]
    assert DataSpec("digits") == config.load(folder / "recipe.yaml").data


def test_an_evaluation_says_whether_it_makes_the_cards_examples_again(
    trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = [None, PGD(Threat("linf", 0.1), steps=5, seed=0)]
    with torch.random.fork_rng(devices=[]):
        folder = publish(trained_run, tmp_path / "zoo", "digits", suite, 30, "cpu")
        monkeypatch.setenv(zoo.PLACE, str(tmp_path / "zoo"))
        name = f"zoo:{folder.name}"
        outcomes = evaluate(name, "digits", suite, tmp_path / "again", images=30, device="cpu")
    clean, attacked = compared(name, outcomes, tmp_path / "again" / "outcomes")
    assert clean.endswith("the same number")
    assert "the same number and the same examples, sha256" in attacked
    card = json.loads((folder / "card.json").read_text())
    card["outcomes"]["clean"]["correct"] -= 1
    card["outcomes"]["pgd-5 linf 0.1"]["evidence_sha256"] = "0" * 64
    (folder / "card.json").write_text(json.dumps(card))
    clean, attacked = compared(name, outcomes, tmp_path / "again" / "outcomes")
    assert "of 30, here" in clean
    assert "by other examples" in attacked
    assert list(compared("elsewhere", outcomes, tmp_path / "again" / "outcomes")) == []


def test_an_entry_stays_until_the_new_one_is_whole(trained_run: Path, tmp_path: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        folder = publish(trained_run, tmp_path, "digits", [None], 20, "cpu")
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        with pytest.raises(UserError, match="nowhere"):
            publish(trained_run, tmp_path, "npz:nowhere.npz", [None], 20, "cpu")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    with pytest.raises(UserError, match=r"holds no recipe\.yaml"):
        publish(tmp_path / "nothing", tmp_path, "digits", [None])


def test_the_command_line_knows_the_zoo(run: Callable[[str], Any]) -> None:
    listed = run("list zoo")
    assert (listed.status, listed.err) == (0, "")
    assert "digits-robust  vit_nano, 0.15M parameters, on digits: clean 96" in listed.out
    ended = run("evaluate zoo:digits-robust --images 10 --steps 2 --device cpu --no-checks")
    assert (ended.status, ended.err) == (0, "")
    assert "pgd-2 linf 0.12" in ended.out
    assert Path("runs/zoo/digits-robust/outcomes/clean.json").is_file()
