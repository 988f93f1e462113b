"""Semantic perturbations, feature images and galleries, on templates whose gradient is the picture of a class."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustvit.analysis import FeatureImages, Gallery, Semantic
from robustvit.analysis.semantic import as_image
from robustvit.attacks import PGD
from robustvit.data import Images
from robustvit.errors import UserError
from robustvit.threat import Threat

LINF = Threat("linf", 0.05)
TOP_1 = Semantic(LINF, steps=5, step=2.5, top=1)


class Inverted(nn.Module):
    """Sees the negative of an image."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(1 - x)


class Constant(nn.Module):
    """Says the same of every image: class 2, then 3, then the others."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tensor([0.0, 1.0, 5.0, 4.0, 3.0, 2.0]).repeat(len(x), 1)


def test_what_is_taken_away_is_the_class_and_what_is_added_is_not(templates: nn.Module, rows: Images) -> None:
    """A perturbation darkens the row of the true class and brightens all others."""
    finding = TOP_1({"maker": templates, "judge": Inverted(Inverted(templates))}, rows)
    maker, judge = finding.data["models"]
    assert maker["negative"]["judge"]["accuracy"] == judge["negative"]["maker"]["accuracy"] == 1.0
    assert maker["positive"]["judge"]["accuracy"] == judge["positive"]["maker"]["accuracy"] == 0.0
    assert "−δ names the true class in the top 1 for judge 100.0% (+δ 0.0%) (n = 12)" in finding.data["summary"][0]


def test_a_judge_that_sees_negatives_sees_the_class_in_the_other_sign(templates: nn.Module, rows: Images) -> None:
    finding = Semantic(LINF, steps=5, step=2.5, top=1, judges=("judge",))(
        {"maker": templates, "judge": Inverted(templates)}, rows
    )
    (maker,) = finding.data["models"]
    assert maker["negative"]["judge"]["accuracy"] == 0.0
    assert maker["positive"]["judge"]["accuracy"] == 1.0
    assert finding.data["judges"]["judge"]["accuracy"] == 0.0  # of the images themselves


@pytest.mark.parametrize("top", [1, 2, 5])
def test_the_top_classes_count(templates: nn.Module, rows: Images, top: int) -> None:
    analysis = Semantic(LINF, steps=2, top=top, judges=("constant",))
    finding = analysis({"maker": templates, "constant": Constant()}, rows)
    (maker,) = finding.data["models"]
    for share in (maker["negative"]["constant"], maker["positive"]["constant"], finding.data["judges"]["constant"]):
        assert (share["correct"], share["n"]) == (2 * top, 12)  # two images of each class


def test_no_model_judges_itself_and_judges_make_nothing(templates: nn.Module, rows: Images) -> None:
    models = {"a": templates, "b": Inverted(templates), "c": Constant()}
    everybody = TOP_1(models, rows).data
    assert {row["model"]: set(row["negative"]) for row in everybody["models"]} == {
        "a": {"b", "c"},
        "b": {"a", "c"},
        "c": {"a", "b"},
    }
    some = Semantic(LINF, steps=5, step=2.5, top=1, judges=("b", "c"))(models, rows).data
    assert {row["model"]: set(row["negative"]) for row in some["models"]} == {"a": {"b", "c"}}
    assert some["models"][0]["negative"] == everybody["models"][0]["negative"]
    assert set(some["judges"]) == {"b", "c"}


def test_the_shown_perturbations_are_those_of_the_attack(templates: nn.Module, rows: Images) -> None:
    finding = TOP_1({"a": templates, "b": Inverted(templates)}, rows)
    expected = PGD(LINF, steps=5, step=2.5, seed=0)(templates, rows.x[:8], rows.y[:8]) - rows.x[:8]
    assert finding.arrays["delta"][0] == pytest.approx(expected.numpy(), abs=1e-7)
    assert np.array_equal(finding.arrays["image"], rows.x[:8].numpy())
    assert finding.data["label"] == rows.y[:8].tolist()


def test_a_perturbation_becomes_an_image_by_its_range() -> None:
    delta = torch.tensor([-0.1, 0.0, 0.05, 0.1]).view(1, 1, 2, 2)
    linf = as_image(delta, Threat("linf", 0.1))
    assert linf.flatten().tolist() == pytest.approx([0.0, 0.5, 0.75, 1.0])
    assert torch.allclose(as_image(-delta, Threat("linf", 0.1)), 1 - linf)
    assert as_image(delta, Threat("linf", 0.2)).flatten().tolist() == pytest.approx([0.25, 0.5, 0.625, 0.75])
    assert torch.allclose(as_image(delta, Threat("l2", 3.0)), linf)  # no pixel comes near ε: the largest change instead
    for threat in (Threat("linf", 0.0), Threat("l2", 1.0)):
        assert (as_image(torch.zeros(1, 1, 2, 2), threat) == 0.5).all()


@pytest.mark.parametrize(
    ("analysis", "names", "message"),
    [
        (TOP_1, "a", "models: 'a' alone; accepted: two or more"),
        (Semantic(LINF, judges=("d",)), "ab", "semantic.judges: no model 'd'"),
        (Semantic(LINF, judges=("a", "b")), "ab", "semantic.judges: a, b; accepted: not all of the models"),
        (Semantic(LINF, top=6), "ab", "semantic.top: 6; accepted: 1 to 5"),
    ],
)
def test_a_question_without_an_answer_is_refused(
    templates: nn.Module, rows: Images, analysis: Semantic, names: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        analysis(dict.fromkeys(names, templates), rows)


@pytest.mark.parametrize("threat", [Threat("l2", 15.0), Threat("l2", 1.5), Threat("linf", 0.2), Threat("linf", 1.0)])
def test_feature_images_stay_in_their_ball_and_reach_their_class(templates: nn.Module, rows: Images, threat: Threat) -> None:
    finding = FeatureImages(threat, steps=40, count=6)(templates, rows)
    (row,), start, made = finding.data["models"], finding.arrays["start"], finding.arrays["image"][0]
    assert start.shape == made.shape == (6, 1, 6, 6)
    assert threat.contains(torch.from_numpy(made), torch.from_numpy(start)).all()
    assert row["distance"] == pytest.approx(threat.distance(torch.from_numpy(made), torch.from_numpy(start)).tolist())
    assert row["prediction"] == finding.data["targets"]
    before = templates(torch.from_numpy(start)).softmax(1)[torch.arange(6), finding.data["targets"]]
    assert (torch.tensor(row["confidence"]) > before).all()
    assert sorted(finding.data["targets"]) == list(range(6))  # each class once
    assert "6 of 6 images reach their class" in finding.data["summary"][0]


def test_a_feature_image_of_a_template_is_the_template(templates: nn.Module, rows: Images) -> None:
    """With nothing but the box in the way the class's row turns white and all others black."""
    finding = FeatureImages(Threat("linf", 1.0), targets=(4, 1))(templates, rows)
    for target, image in zip((4, 1), finding.arrays["image"][0], strict=True):
        assert image[0, target] == pytest.approx(np.ones(6))
        assert np.delete(image[0], target, axis=0) == pytest.approx(np.zeros((5, 6)))
    assert finding.data["classes"] == ["e", "b"]


def test_models_share_noise_and_classes_and_the_noise_is_uniform(templates: nn.Module, rows: Images) -> None:
    finding = FeatureImages(steps=2, count=300)({"a": templates, "b": Inverted(templates)}, rows)
    start = finding.arrays["start"]
    assert finding.arrays["image"].shape == (2, *start.shape)
    assert (start.mean(), start.std()) == pytest.approx((0.5, 12**-0.5), abs=0.01)
    assert np.bincount(finding.data["targets"]).tolist() == [50] * 6


@pytest.mark.parametrize("targets", [(6,), (0, -1)])
def test_a_class_that_a_model_lacks_is_refused(templates: nn.Module, rows: Images, targets: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"feature_images\.targets: \[.*\]; accepted: classes 0 to 5"):
        FeatureImages(targets=targets)(templates, rows)


def test_a_gallery_is_the_first_images_as_each_model_s_attack_leaves_them(templates: nn.Module, rows: Images) -> None:
    models = {"a": templates, "b": Inverted(templates)}
    finding = Gallery(LINF, steps=3, count=5)(models, rows)
    assert finding.arrays["attacked"].shape == (2, 5, 1, 6, 6)
    assert np.array_equal(finding.arrays["image"], rows.x[:5].numpy())
    for model, row, attacked in zip(models.values(), finding.data["models"], finding.arrays["attacked"], strict=True):
        expected = PGD(LINF, steps=3, step=1.5, seed=0)(model, rows.x[:5], rows.y[:5])
        assert np.array_equal(attacked, expected.numpy())
        assert row["before"] == model(rows.x[:5]).argmax(1).tolist()
        assert row["after"] == model(expected).argmax(1).tolist()
    assert finding.data["label"] == rows.y[:5].tolist()
    assert "a: of 5 images 5 are right before" in finding.data["summary"][0]


def test_a_gallery_shows_what_there_is(templates: nn.Module, rows: Images) -> None:
    assert Gallery(LINF, steps=1, count=50)(templates, rows).data["models"][0]["n"] == 12
