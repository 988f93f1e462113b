"""The page: whole, self-contained, the same from the same files, and deaf to hostile names."""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from robustvit.attacks import FGSM, PGD, WorstOf
from robustvit.data import DataSpec, Images
from robustvit.errors import UserError
from robustvit.evaluation import Outcome, evaluate, quick
from robustvit.evaluation.suites import Suite
from robustvit.report import write_report
from robustvit.threat import Threat

LINF = Threat("linf", 0.1)
HOSTILE = "<script>alert(1)<img src=x onerror=alert(2)>\"'&lt;-->"


class Page(HTMLParser):
    """A page's text, its tags in order, its attributes, its styles, and the rows of its table."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.rows: list[list[str]] = []
        self.styles, self.text, self._open = "", "", ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open = tag
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        self.attributes += [(name, value or "") for name, value in attrs]
        self.styles += " ".join(value or "" for name, value in attrs if name != "src")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "style":
            self.styles += data
        else:
            self.text += data
        if self._open in ("td", "th", "small"):
            self.rows[-1][-1] += data


def linear() -> nn.Module:
    """Says which digit's mean is nearest."""
    train = DataSpec("digits").load("train")
    x, y = train.batch(slice(None))
    means = torch.stack([x[y == digit].mean(0).flatten() for digit in range(10)])
    layer = nn.Linear(64, 10)
    layer.load_state_dict({"weight": means, "bias": -means.square().sum(1) / 2})
    return nn.Sequential(nn.Flatten(), layer)


def digits(classes: tuple[str, ...] | None = None) -> Images:
    images = DataSpec("digits").load("test").subset(slice(40))
    return Images("digits", images.x, images.y, classes or images.classes)


def judged(folder: Path, suite: Suite | None = None, images: Images | None = None) -> Path:
    """A folder of outcomes, as `evaluate` leaves it."""
    evaluate(linear(), images or digits(), quick(LINF, steps=2) if suite is None else suite, folder, device="cpu", checks=False)
    return folder


@pytest.fixture
def whole_run(trained_run: Path, tmp_path: Path) -> Path:
    """A trained run with outcomes; a copy, since the original is everybody's."""
    folder = shutil.copytree(trained_run, tmp_path / "vit")
    evaluate(folder, digits(), quick(LINF, steps=2), folder, device="cpu", checks=False)
    return folder


def test_a_page_of_one_run_shows_its_outcomes_pictures_curves_and_recipe(whole_run: Path) -> None:
    page = Page(write_report([whole_run], whole_run / "report.html"))
    for path in (whole_run / "outcomes").glob("*.json"):
        outcome = Outcome.load(path)
        low, high = outcome.interval
        number = f"{100 * outcome.accuracy:.1f}% {100 * low:.1f}–{100 * high:.1f}, n = 40"
        assert [outcome.name, number] in page.rows
        assert f"{outcome.name}: seed {outcome.provenance['seed']}" in page.text
    assert page.tags.count("img") == 3 * 8
    assert page.tags.count("svg") == 3  # accuracy against eps, held-out accuracy, loss
    assert (whole_run / "recipe.yaml").read_text() in page.text
    assert outcome.provenance["model"]["fingerprint"] in page.text
    assert "Made by robustvit from the files of 1 run." in page.text


def test_a_page_of_several_runs_shows_them_side_by_side(whole_run: Path, tmp_path: Path) -> None:
    other = judged(tmp_path / "line", [None, FGSM(LINF), PGD(Threat("linf", 0.05), steps=2, seed=0)])
    page = Page(write_report([whole_run, other], tmp_path / "report.html"))
    assert "vit · line – robustvit" in page.text
    assert page.rows[0] == ["attack", "vit", "line"]
    assert {name: ["n = 40" in cell for cell in cells] for name, *cells in page.rows[1:]} == {
        "clean": [True, True],
        "fgsm linf 0.1": [True, True],
        "pgd-2 linf 0.1": [True, False],
        "pgd-2 linf 0.05": [False, True],
    }
    assert page.tags.count("img") == 2 * 3 * 8
    assert "from the files of 2 runs." in page.text


def test_the_headline_is_the_strongest_attack_at_the_eps_of_most_outcomes(tmp_path: Path) -> None:
    main = Threat("linf", 0.08)
    attacks = [FGSM(main), *(PGD(main, steps=n, step=0.05, seed=0) for n in (1, 2, 3))]
    folder = judged(tmp_path / "run", [None, FGSM(Threat("linf", 0.02)), *attacks, FGSM(Threat("linf", 0.4))])
    share = {o.name: f"{100 * o.accuracy:.1f}" for o in map(Outcome.load, (folder / "outcomes").glob("*.json"))}
    assert float(share["fgsm linf 0.4"]) < float(share["fgsm linf 0.08"]) < float(share["pgd-3-step0.05 linf 0.08"])
    page = Page(write_report([folder], tmp_path / "report.html"))
    assert re.search(r"clean imagesn = 40\s*" + re.escape(share["fgsm linf 0.08"]) + "%under fgsm linf 0.08n = 40", page.text)


def test_of_two_attacks_that_break_as_many_the_stronger_is_the_headline(tmp_path: Path) -> None:
    attacks = [FGSM(Threat("linf", 0.9)), PGD(Threat("linf", 0.9), steps=3, seed=0)]
    folder = judged(tmp_path / "run", [None, *attacks])
    page = Page(write_report(folder, tmp_path / "report.html"))
    assert "0.0%under pgd-3 linf 0.9" in page.text


def test_the_page_lies_in_its_run_or_beside_its_runs(tmp_path: Path) -> None:
    one, other = judged(tmp_path / "one"), judged(tmp_path / "other")
    assert write_report(one) == one / "report.html"
    assert write_report([one, other]) == tmp_path / "report.html"


def test_runs_judged_on_different_images_are_not_compared_whatever_the_images_are_called(tmp_path: Path) -> None:
    test, train = digits(), DataSpec("digits").load("train").subset(slice(40))
    same = Images("under another name", test.x, test.y)
    one, other, renamed = (judged(tmp_path / n, images=i) for n, i in (("one", test), ("other", train), ("renamed", same)))
    write_report([one, renamed], tmp_path / "report.html")
    with pytest.raises(UserError, match=r"'one' was judged on digits \(digest \w+\), 'other' on digits \(digest"):
        write_report([one, other], tmp_path / "report.html")


def test_a_trial_on_few_images_is_in_the_table_and_nowhere_else(tmp_path: Path) -> None:
    (outcome,) = evaluate(linear(), digits(), FGSM(LINF), device="cpu", checks=False)
    images = digits().subset(torch.from_numpy(np.argsort(outcome.correct)))  # those that fall come first
    folder = judged(tmp_path / "run", [None, FGSM(LINF)], images)
    _, trial = evaluate(linear(), images, [None, FGSM(LINF)], folder, images=3, device="cpu", checks=False)
    page = Page(write_report([folder], tmp_path / "report.html"))
    assert trial.accuracy < outcome.accuracy
    assert re.search(r"clean imagesn = 40.*under fgsm linf 0.1n = 40", page.text, re.DOTALL)
    assert [name for name, *_ in page.rows[1:]] == ["clean", "clean #2", "fgsm linf 0.1", "fgsm linf 0.1 #2"]


def test_an_ensemble_on_fewer_images_goes_before_a_single_attack_on_all(tmp_path: Path) -> None:
    images = DataSpec("digits").load("test").subset(slice(150))
    folder = judged(tmp_path / "run", [None, FGSM(LINF)], images)
    ensemble: Suite = [None, WorstOf((FGSM(LINF), PGD(LINF, steps=2, seed=0)))]
    evaluate(linear(), images, ensemble, folder, images=120, device="cpu", checks=False)
    page = Page(write_report([folder], tmp_path / "report.html"))
    assert re.search(r"clean imagesn = 120.*under worst-of linf 0.1n = 120", page.text, re.DOTALL)


def test_what_speaks_against_a_number_stands_beside_it(tmp_path: Path) -> None:
    """A step without a gradient in front of the model: what the evaluator warns of, the page must say."""

    class Rounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = linear()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model((4 * x).round() / 4)

    with torch.random.fork_rng(devices=[]):
        (outcome,) = evaluate(Rounded(), "digits", PGD(LINF, steps=3, seed=0), tmp_path / "run", images=40, device="cpu")
    warnings = outcome.provenance["warnings"]
    assert warnings
    page = Page(write_report([tmp_path / "run"], tmp_path / "report.html"))
    assert "Suspect: " in page.text
    for warning in warnings:
        assert all(warning[part].replace("`", "") in page.text for part in ("name", "message", "advice"))
    assert "What speaks against" not in Page(write_report([judged(tmp_path / "fine")], tmp_path / "fine.html")).text


def test_another_models_outcomes_are_not_shown_under_a_runs_recipe(trained_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained_run, tmp_path / "run")
    evaluate("zoo:digits-robust", "digits", [None], tmp_path / "other", images=5, device="cpu")
    shutil.copytree(tmp_path / "other" / "outcomes", run / "outcomes", dirs_exist_ok=True)
    with pytest.raises(UserError, match=r"'clean' is of model [0-9a-f]{16}, the run's own weights are"):
        write_report([run], tmp_path / "report.html")


def test_a_page_loads_nothing(whole_run: Path, tmp_path: Path) -> None:
    page = Page(write_report([whole_run, judged(tmp_path / "line")], tmp_path / "report.html"))
    assert not {"script", "link", "iframe", "object", "embed", "base", "audio", "video"} & set(page.tags)
    pointed = {value for name, value in page.attributes if name in ("src", "srcset", "href", "xlink:href", "poster", "action")}
    assert pointed
    assert [value for value in pointed if not value.startswith(("data:image/png;base64,", "#"))] == []
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "@import" not in page.styles
    assert all(target.startswith("#") for target in re.findall(r"url\(['\"]?([^)]*)", page.styles))


def test_a_run_without_outcomes_has_a_page(trained_run: Path, tmp_path: Path) -> None:
    page = Page(write_report([trained_run], tmp_path / "report.html"))
    assert "Nothing has been attacked yet" in page.text
    assert page.tags.count("svg") == 2
    assert (trained_run / "recipe.yaml").read_text() in page.text


def test_a_run_that_has_not_logged_anything_yet_has_a_page(trained_run: Path, tmp_path: Path) -> None:
    (tmp_path / "begun").mkdir()
    shutil.copy(trained_run / "recipe.yaml", tmp_path / "begun")
    page = Page(write_report([tmp_path / "begun"], tmp_path / "report.html"))
    assert page.tags.count("svg") == 0


@pytest.mark.parametrize("suite", [[None], [FGSM(LINF)]], ids=["clean alone", "attack alone"])
def test_any_part_of_a_suite_has_a_page(suite: Suite, tmp_path: Path) -> None:
    page = Page(write_report([judged(tmp_path / "run", suite)], tmp_path / "report.html"))
    assert ("clean images" in page.text) == (suite[0] is None)
    assert ("under fgsm linf 0.1" in page.text) == (suite[0] is not None)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_colour_images_without_class_names_have_a_page_in_every_norm(norm: str, tmp_path: Path) -> None:
    x = torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    evaluate(
        model,
        Images("colours", x, model(x).argmax(1)),
        [None, FGSM(Threat(norm, 0.5))],
        tmp_path / "run",
        device="cpu",
        checks=False,
    )
    page = Page(write_report([tmp_path / "run"], tmp_path / "report.html"))
    assert page.tags.count("img") == 3 * 5
    assert f"eps = 0.5 ({norm}, pixels in [0, 1])" in page.text


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    plain = judged(tmp_path / "plain")
    names = tuple(f"{HOSTILE}</pre></title>{i}" for i in range(10))
    hostile = judged(tmp_path / HOSTILE, images=Images(HOSTILE, digits().x, digits().y, names))
    (hostile / "recipe.yaml").write_text(f"name: '</pre></details>{HOSTILE}'\n")
    (plain / "recipe.yaml").write_text("name: plain\n")
    for name, folder in (("a", plain), ("b", hostile)):
        write_report([folder], tmp_path / f"{name}.html")
    harmless, page = Page(tmp_path / "a.html"), Page(tmp_path / "b.html")
    assert page.tags == harmless.tags
    assert [name for name, _ in page.attributes] == [name for name, _ in harmless.attributes]
    assert page.text.count(HOSTILE) > 10
    assert f"image of {names[3]}" in [value for name, value in page.attributes if name == "alt"]


@pytest.mark.parametrize("name", ["_hidden", "a $x$ b", "$\\frac$", "x --> y", "ü → é", "100%", "a b"])
def test_every_run_s_name_stands_in_the_legend_as_it_is(name: str, tmp_path: Path) -> None:
    page = write_report([judged(tmp_path / name)], tmp_path / "report.html").read_text(encoding="utf-8")
    figure = Page(tmp_path / "report.html").text
    assert page.count("<svg") == 1
    assert name in figure[figure.index("An honest curve") : figure.index("Every outcome")]


def test_the_same_files_give_the_same_bytes(whole_run: Path, tmp_path: Path) -> None:
    line = judged(tmp_path / "line")
    first = write_report([whole_run, line], tmp_path / "first.html").read_bytes()
    copies = []
    for folder in (whole_run, line):
        copy = tmp_path / "elsewhere" / folder.name
        for path in sorted((p for p in folder.rglob("*") if p.is_file()), reverse=True):
            (copy / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy / path.relative_to(folder))
        copies.append(copy)
    assert write_report(copies, tmp_path / "second.html").read_bytes() == first


def test_the_page_s_folder_is_made_and_the_run_s_files_are_left_alone(tmp_path: Path) -> None:
    folder = judged(tmp_path / "run")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    out = tmp_path / "new" / "folder" / "page.html"
    assert write_report([str(folder)], str(out)) == out
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_no_run_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="runs: none given"):
        write_report([], tmp_path / "report.html")


@pytest.mark.parametrize("kind", ["missing", "empty", "other", "file", "outcomes that are empty"])
def test_a_folder_that_is_no_run_is_an_error_that_names_it(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    if kind == "file":
        place.write_text("")
    elif kind != "missing":
        (place / "outcomes" if kind.startswith("outcomes") else place).mkdir(parents=True)
    if kind == "other":
        (place / "notes.txt").write_text("")
    with pytest.raises(UserError, match=rf"run '{re.escape(str(place))}': holds neither recipe\.yaml nor outcomes"):
        write_report([judged(tmp_path / "run"), place], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_damaged_outcome_is_an_error_that_names_it(suffix: str, tmp_path: Path) -> None:
    folder = judged(tmp_path / "run")
    (folder / "outcomes" / "clean").with_suffix(suffix).write_text("{")
    with pytest.raises(UserError, match=re.escape(str(folder / "outcomes" / "clean."))):
        write_report([folder], tmp_path / "report.html")


def test_half_a_line_that_a_killed_run_left_is_passed_over(whole_run: Path, tmp_path: Path) -> None:
    log, before = whole_run / "metrics.jsonl", write_report([whole_run], tmp_path / "before.html").read_text()
    log.write_bytes(log.read_bytes() + b'{"step": 3, "ep')
    assert write_report([whole_run], tmp_path / "after.html").read_text() == before


@pytest.mark.parametrize("line", [b'{"step": 3, "ep', b"\xff\xfe"])
def test_a_damaged_log_is_an_error_that_names_it(line: bytes, whole_run: Path, tmp_path: Path) -> None:
    log = whole_run / "metrics.jsonl"
    log.write_bytes(log.read_bytes() + line + b"\n")
    with pytest.raises(UserError, match=re.escape(str(log))):
        write_report([whole_run], tmp_path / "report.html")


def test_a_report_needs_no_model(whole_run: Path, tmp_path: Path) -> None:
    shutil.rmtree(whole_run / "checkpoints")
    assert write_report([whole_run], tmp_path / "report.html").is_file()
    assert np.isfinite([Outcome.load(path).accuracy for path in (whole_run / "outcomes").glob("*.json")]).all()
