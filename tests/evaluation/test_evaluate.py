"""evaluate(): what every suite promises, tested on every entry of the registry. A new suite joins with one row in `TABLE`."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustvit.attacks import FGSM, PGD, Attack, Model
from robustvit.config import from_data
from robustvit.data import DataSpec, Images
from robustvit.errors import UserError
from robustvit.evaluation import SUITES, Outcome, evaluate, quick, sweep
from robustvit.evaluation.suites import Suite
from robustvit.models import Classifier, ModelSpec, build, fingerprint, load_model
from robustvit.threat import Threat


class Row(NamedTuple):
    """A suite to run: its eps, its options beside the seed, and the names of its outcomes in order."""

    eps: float
    options: dict[str, Any]
    outcomes: list[str]


SWEPT = ("0.01", "0.02", "0.03", "0.04", "0.06", "0.08", "0.12", "0.16")
TABLE: dict[str, Row] = {
    "quick": Row(0.04, {"steps": 3}, ["clean", "fgsm linf 0.04", "pgd-3 linf 0.04"]),
    "sweep": Row(0.04, {"steps": 3}, ["clean", "fgsm linf 0.04", *(f"pgd-3 linf {eps}" for eps in SWEPT)]),
    "autoattack": Row(0.16, {}, ["clean", "autoattack-standard linf 0.16"]),  # in reach of APGD: little is left for Square
}
every_suite = pytest.mark.parametrize("name", TABLE)
Evaluated = dict[str, tuple[list[Outcome], Path]]


def suite(name: str, seed: int = 5) -> Suite:
    return SUITES[name](Threat("linf", TABLE[name].eps), seed=seed, **TABLE[name].options)


def judged(*given: Any, **options: Any) -> list[Outcome]:
    """evaluate() without the checks against gradient masking, which cost more than the attacks here."""
    return evaluate(*given, device="cpu", checks=False, **options)


@pytest.fixture(scope="module")
def data(few_digits: Path) -> str:
    return f"npz:{few_digits}"


@pytest.fixture(scope="module")
def evaluated(trained_run: Path, data: str, tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    """Every suite on 40 digits: its outcomes, and the folder of their files."""
    folders = {name: tmp_path_factory.mktemp(name) for name in TABLE}
    return {name: (judged(trained_run, data, suite(name), out), out) for name, out in folders.items()}


def test_the_table_covers_the_registry() -> None:
    assert TABLE.keys() == SUITES.keys()


@every_suite
def test_a_suite_s_outcomes_come_by_name_and_in_order(name: str, evaluated: Evaluated) -> None:
    assert [outcome.name for outcome in evaluated[name][0]] == TABLE[name].outcomes


@every_suite
def test_every_outcome_says_what_is_needed_to_make_it_again(name: str, evaluated: Evaluated, trained_run: Path) -> None:
    for outcome, attack in zip(evaluated[name][0], suite(name), strict=True):
        told = outcome.provenance
        assert outcome.n == 40
        assert outcome.arrays["index"].tolist() == list(range(40))
        assert told["model"] == {"name": str(trained_run), "fingerprint": fingerprint(load_model(trained_run))}
        assert (told["data"]["name"], told["data"]["size"], told["data"]["sample_seed"]) == ("few", 40, None)
        assert list(told["data"]["classes"]) == list("0123456789")
        assert told["versions"].keys() >= {"robustvit", "torch", "timm", "numpy", "python", "device"}
        assert told["versions"]["torch"] == torch.__version__.split("+")[0]
        assert told["seconds"] >= 0
        if attack is None:
            assert (told["threat"], told["attack"], told["seed"]) == (None, None, None)
        else:
            assert told["seed"] == 5
            assert Threat(**told["threat"]) == attack.threat
            assert from_data(Attack, told["attack"]) == attack


@every_suite
def test_every_outcome_keeps_its_evidence_for_every_image(name: str, evaluated: Evaluated, data: str) -> None:
    images = DataSpec.parse(data).load("test")
    x = images.batch(slice(8))[0]
    clean = evaluated[name][0][0]
    for outcome in evaluated[name][0]:
        arrays = outcome.arrays
        assert arrays["y"].tolist() == images.y.tolist()
        np.testing.assert_array_equal(arrays["clean_prediction"], clean.arrays["clean_prediction"])
        right_before, right_after = (arrays[kind] == arrays["y"] for kind in ("clean_prediction", "attacked_prediction"))
        np.testing.assert_array_equal(outcome.correct, right_before & right_after)
        np.testing.assert_array_equal(arrays["example_image"], x.numpy())
        threat = Threat("linf", outcome.eps)
        assert threat.contains(torch.from_numpy(arrays["example_attacked"]), x).all()


@every_suite
def test_what_is_on_disk_is_what_was_returned(name: str, evaluated: Evaluated) -> None:
    outcomes, out = evaluated[name]
    held = {outcome.name: outcome for outcome in map(Outcome.load, (out / "outcomes").glob("*.json"))}
    assert held.keys() == set(TABLE[name].outcomes)
    for outcome in outcomes:
        back = held[outcome.name]
        assert json.dumps(back.provenance) == json.dumps(outcome.provenance)
        assert back.arrays.keys() == outcome.arrays.keys()
        np.testing.assert_array_equal(back.correct, outcome.correct)
        for key, array in outcome.arrays.items():
            np.testing.assert_array_equal(back.arrays[key], array)


@every_suite
def test_the_same_seed_gives_the_same_verdicts(name: str, evaluated: Evaluated, trained_run: Path, data: str) -> None:
    torch.manual_seed(99)  # torch's own generator has no say
    for outcome, again in zip(evaluated[name][0], judged(trained_run, data, suite(name)), strict=True):
        np.testing.assert_array_equal(again.correct, outcome.correct)
        np.testing.assert_array_equal(again.arrays["example_attacked"], outcome.arrays["example_attacked"])


def test_another_seed_attacks_otherwise(evaluated: Evaluated, trained_run: Path, data: str) -> None:
    first, other = evaluated["quick"][0][-1], judged(trained_run, data, suite("quick", seed=6))[-1]
    assert other.provenance["seed"] == 6
    assert not np.array_equal(first.arrays["example_attacked"], other.arrays["example_attacked"])


def test_an_outcome_s_own_file_makes_it_again(evaluated: Evaluated, trained_run: Path, data: str) -> None:
    written = Outcome.load(next((evaluated["quick"][1] / "outcomes").glob("pgd*.json")))
    (again,) = judged(trained_run, data, [from_data(Attack, written.provenance["attack"])])
    assert again.name == written.name
    np.testing.assert_array_equal(again.correct, written.correct)


def test_nothing_is_written_without_a_folder(
    tiny_vit: Classifier, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    judged(tiny_vit, data, [None])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_a_sweep_falls_to_zero_in_the_end(norm: str, trained_run: Path, data: str) -> None:
    eps = {"linf": 0.08, "l2": 0.4, "l1": 0.8}[norm]
    clean, _, *falling = judged(trained_run, data, sweep(Threat(norm, eps), steps=10))
    assert clean.accuracy > 0.7
    assert falling[0].accuracy > 0.3
    assert falling[-1].accuracy <= 0.05
    assert all(after.accuracy <= before.accuracy + 0.05 for before, after in pairwise([clean, *falling]))


def test_a_sweep_stops_where_the_box_ends() -> None:
    assert max(attack.threat.eps for attack in sweep(Threat("linf", 0.4)) if attack) == pytest.approx(0.8)


@pytest.mark.parametrize("make", [quick, sweep])
def test_restarts_reach_every_pgd(make: Callable[..., Suite]) -> None:
    names = [attack.name for attack in make(Threat("linf", 0.04), steps=7, restarts=4) if attack]
    assert [name for name in names if "pgd" in name] == ["pgd-7x4"] * (len(names) - 1)


def test_images_takes_the_first_so_many(evaluated: Evaluated, trained_run: Path, data: str) -> None:
    (ten,) = judged(trained_run, data, [None], images=10)
    assert (ten.n, ten.arrays["index"].tolist()) == (10, list(range(10)))
    assert ten.provenance["data"]["size"] == 40
    np.testing.assert_array_equal(ten.correct, evaluated["quick"][0][0].correct[:10])
    (three,) = judged(trained_run, data, [None], images=3)
    assert len(three.arrays["example_image"]) == len(three.arrays["example_attacked"]) == 3


def test_sample_seed_takes_a_sample_that_can_be_drawn_again(evaluated: Evaluated, trained_run: Path, data: str) -> None:
    def sample(seed: int) -> Outcome:
        return judged(trained_run, data, [None], images=10, sample_seed=seed)[0]

    one, other = sample(0), sample(1)
    index = one.arrays["index"]
    assert (one.n, len(set(index)), one.provenance["data"]["sample_seed"]) == (10, 10, 0)
    assert index.tolist() == sample(0).arrays["index"].tolist() == sorted(index)
    assert index.tolist() not in (list(range(10)), other.arrays["index"].tolist())
    clean = evaluated["quick"][0][0]
    np.testing.assert_array_equal(one.correct, clean.correct[index])
    np.testing.assert_array_equal(one.arrays["y"], clean.arrays["y"][index])


@pytest.mark.parametrize("images", [0, -1, 41])
def test_a_number_of_images_beyond_the_set_is_an_error(images: int, tiny_vit: Classifier, data: str) -> None:
    with pytest.raises(UserError, match=f"images: {images}; accepted: 1 to 40"):
        judged(tiny_vit, data, [None], images=images)


@pytest.mark.parametrize("batch_size", [1, 7, 40, 256])
def test_any_batch_size_judges_every_image_once(batch_size: int, evaluated: Evaluated, trained_run: Path, data: str) -> None:
    (clean,) = judged(trained_run, data, [None], batch_size=batch_size)
    np.testing.assert_array_equal(clean.correct, evaluated["quick"][0][0].correct)
    assert len(clean.arrays["example_attacked"]) == 8


@pytest.mark.parametrize("kind", ["run", "path", "checkpoint", "classifier", "module"])
def test_every_way_to_name_a_model_gives_the_same_verdicts(
    kind: str, evaluated: Evaluated, trained_run: Path, trained_vit: Classifier, data: str
) -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = trained_vit

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    checkpoint = trained_run / "checkpoints" / "best.safetensors"
    models = {"run": str(trained_run), "path": trained_run, "checkpoint": checkpoint, "classifier": trained_vit}
    outcome = judged(models.get(kind) or Wrapped(), data, suite("quick"))[-1]
    np.testing.assert_array_equal(outcome.correct, evaluated["quick"][0][-1].correct)
    named = {"classifier": "Classifier", "module": "Wrapped"}.get(kind)
    assert outcome.provenance["model"]["name"] == (named or str(models[kind]))


def test_model_and_random_state_are_left_as_they_were(tiny_vit: Classifier, data: str) -> None:
    state = torch.get_rng_state()
    before, wants = fingerprint(tiny_vit), [p.requires_grad for p in tiny_vit.parameters()]
    judged(tiny_vit, data, suite("quick"))
    assert fingerprint(tiny_vit) == before
    assert [p.requires_grad for p in tiny_vit.parameters()] == wants
    assert all(p.grad is None for p in tiny_vit.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_other_weights_have_another_fingerprint(tiny_vit: Classifier, data: str) -> None:
    first = judged(tiny_vit, data, [None])[0].provenance["model"]["fingerprint"]
    with torch.no_grad():
        tiny_vit.backbone.head.bias[0] += 1e-3
    assert judged(tiny_vit, data, [None])[0].provenance["model"]["fingerprint"] != first


def test_a_model_of_other_classes_is_an_error_before_anything_is_written(data: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="model: 7 classes, but data 'few' has 10"):
        judged(build(ModelSpec("vit_nano", num_classes=7, channels=1)), data, [None], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_labels_beyond_the_model_s_classes_are_an_error() -> None:
    images = Images("bare", torch.rand(10, 1, 8, 8), torch.arange(10))
    with pytest.raises(UserError, match="labels up to 9; accepted by the model: 0 to 6"):
        judged(build(ModelSpec("vit_nano", num_classes=7, channels=1)), images, [None])


@pytest.mark.parametrize("model", [nn.Sequential(nn.Flatten(), nn.Linear(64, 7)), build(ModelSpec("vit_nano", 7, channels=1))])
def test_a_label_beyond_the_classes_is_an_error_even_where_the_sample_leaves_it_out(model: nn.Module) -> None:
    images = Images("late", torch.rand(10, 1, 8, 8), torch.tensor([9, *[0] * 9]))
    assert 0 not in images.first(2, sample_seed=0)[1]
    with pytest.raises(UserError, match="labels up to 9"):
        judged(model, images, [None], images=2, sample_seed=0)


@pytest.mark.parametrize("shape", [(1, 9, 7), (3, 8, 8)])
def test_images_of_another_shape_are_an_error(shape: tuple[int, ...], tiny_vit: Classifier) -> None:
    images = Images("odd", torch.rand(4, *shape), torch.arange(4))
    with pytest.raises(UserError, match=r"data 'odd': images of shape .* accepted by the model: \(1, 8, 8\)"):
        judged(tiny_vit, images, [None])


@pytest.mark.parametrize("outputs", [7, 20])
def test_a_plain_module_of_other_classes_is_an_error_too(outputs: int, data: str) -> None:
    with pytest.raises(UserError, match=f"{outputs} classes"):
        judged(nn.Sequential(nn.Flatten(), nn.Linear(64, outputs)), data, [None])


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_size_below_one_is_an_error(batch_size: int, tiny_vit: Classifier, data: str) -> None:
    with pytest.raises(UserError, match="batch_size"):
        judged(tiny_vit, data, [None], batch_size=batch_size)


@pytest.mark.parametrize("kind", [torch.int32, torch.uint8, torch.int64])
def test_labels_may_be_whole_numbers_of_any_type(
    kind: torch.dtype, tiny_vit: Classifier, images: tuple[Tensor, Tensor]
) -> None:
    x, y = images
    (outcome,) = judged(tiny_vit, (x, y.to(kind)), FGSM(Threat("linf", 0.1)))
    assert outcome.n == len(x)


@pytest.mark.parametrize("kind", [torch.float32, torch.bool])
def test_other_labels_are_an_error(kind: torch.dtype, tiny_vit: Classifier, images: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(UserError, match="labels of type torch"):
        judged(tiny_vit, (images[0], images[1].to(kind)), FGSM(Threat("linf", 0.1)))


@dataclass(frozen=True)
class Black(Attack):
    """An attack that somebody wrote, in no registry."""

    threat: Threat
    seed: int | None = 0

    def perturb(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        return (x - self.threat.eps).clamp(min=0)

    def cost(self, classes: int = 10) -> int:
        return 0


def test_an_attack_of_ones_own_is_judged_like_any_other(trained_run: Path, data: str, tmp_path: Path) -> None:
    (outcome,) = judged(trained_run, data, Black(Threat("linf", 0.3)), tmp_path)
    assert outcome.provenance["attack"]["type"].endswith("test_evaluate.Black")
    assert Outcome.load(tmp_path / "outcomes" / "black_linf_0.3.json").name == outcome.name


def test_two_attacks_of_one_name_both_keep_their_evidence(tiny_vit: Classifier, data: str, tmp_path: Path) -> None:
    threat = Threat("linf", 0.04)
    attacks: Suite = [PGD(threat, steps=2, seed=0), PGD(threat, steps=2, seed=1), FGSM(threat)]
    names = [outcome.name for outcome in judged(tiny_vit, data, attacks, tmp_path)]
    assert names == ["pgd-2 linf 0.04", "pgd-2 linf 0.04 #2", "fgsm linf 0.04"]
    assert {Outcome.load(path).name for path in (tmp_path / "outcomes").glob("*.json")} == set(names)
