"""Section V-A and its appendices: are attacks on these models reliable, and how good are few-step ones?"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from robustvit.analysis import Analysis, Convergence, Effectiveness, EpsSweep, Finding, PGDSteps
from robustvit.papers.artefact import Artefact, Cell, Claim, Column, Look, falling, ordered, row
from robustvit.papers.light_recipe import models as m
from robustvit.papers.measures import LOOK, whole_autoattack
from robustvit.papers.scale import Scale
from robustvit.papers.scales import FOUR

STEPS = (5, 10, 50, 100)
FEW = (1, 2, 5, 10)


def _of_models(number: Callable[[dict[str, Any], str], Any]) -> Callable[[Finding, str], Mapping[str, Any]]:
    """Reads `number(row, column)` of each model; of several epochs the last."""

    def read(finding: Finding, column: str) -> Mapping[str, Any]:
        return {found["model"]: number(found, column) for found in finding.data["models"]}

    return read


def _pgd_steps(scale: Scale) -> Analysis:
    return PGDSteps(scale.threat(FOUR), scale.steps(*STEPS))


def _read_pgd_steps(finding: Finding, column: str) -> Mapping[str, np.ndarray]:
    """Which images stand, by model. At a scale of fewer steps the longest attack stands for all that are longer."""
    attacks = finding.data["models"][0]["attacks"]
    wanted = 0 if column == "clean" else int(column.removeprefix("PGD-"))
    place = 0 if column == "clean" else 1 + min(range(len(attacks)), key=lambda i: abs(attacks[i]["steps"] - wanted))
    return {
        found["model"]: correct[place] for found, correct in zip(finding.data["models"], finding.arrays["correct"], strict=True)
    }


TABLE_10 = Artefact(
    "table-10",
    "PGD accuracy plateaus as steps are added",
    (Column("clean", LOOK), *(Column(f"PGD-{steps}", LOOK) for steps in STEPS)),
    (
        row("XCiT-S12", (72.34, 49.16, 48.91, 48.71, 48.69), m.LIGHT),
        row("XCiT-M12", (74.04, 51.96, 51.71, 51.55, 51.53), m.LIGHT_M),
        row("XCiT-L12", (73.76, 53.75, 53.52, 53.37, 53.36), m.LIGHT_L),
    ),
    (
        *falling("XCiT-S12", "clean", "PGD-5"),
        *falling("XCiT-S12", "PGD-5", "PGD-50"),
        *ordered("PGD-100", "XCiT-L12", "XCiT-M12", "XCiT-S12"),
    ),
    ("The caption says 8/255; the numbers are those of the models at 4/255, and so are ours.",),
    Look(_pgd_steps, _read_pgd_steps),
    images="all",
)

FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)


def _eps_sweep(scale: Scale) -> Analysis:
    threat = scale.threat(FOUR)
    return EpsSweep(threat, FACTORS, whole_autoattack(threat, scale))


def _read_eps_sweep(finding: Finding, column: str) -> Mapping[str, np.ndarray]:
    places = {"clean": 0} | {f"{factor:g} eps": 1 + i for i, factor in enumerate(FACTORS)}
    return {
        found["model"]: correct[places[column]]
        for found, correct in zip(finding.data["models"], finding.arrays["correct"], strict=True)
    }


FIGURE_3 = Artefact(
    "figure-3",
    "AutoAttack is reliable: accuracy falls monotonically with eps, and to 0",
    (Column("clean", LOOK), *(Column(f"{factor:g} eps", LOOK) for factor in FACTORS)),
    (row("XCiT-S12", (72.34, None, None, None, 41.78, None, None, None, 0.0), m.LIGHT),),
    falling("XCiT-S12", "clean", "0.25 eps", "0.5 eps", "1 eps", "2 eps", "4 eps"),
    (
        "A curve in the paper, about 0 at 16/255. Of its 5,000 images 2,345 stand after APGD, 2,344 after FAB-T and after "
        "Square; ours are counted in the figure's data.",
    ),
    Look(_eps_sweep, _read_eps_sweep),
)


def _convergence(scale: Scale, points: int) -> Analysis:
    return Convergence(
        scale.threat(FOUR), scale.steps(1, 5, 10, 50, 100, 200, 500), 1.5, scale.longest, points=points, restarts=scale.starts
    )


PLATEAU = "loss, of the longest attack's, with a tenth of its steps"
SPREAD = "range of the loss over starts, of the loss"


def _read_convergence(found: dict[str, Any], column: str) -> float:
    """Shares of the loss under the longest attack, in percent."""
    last = found["attacks"][-1]
    if column == SPREAD:
        return 100 * last["spread"] / max(last["loss"], 1e-12)
    fewer = min(found["attacks"], key=lambda attack: abs(attack["steps"] - last["steps"] / 10))
    return 100 * fewer["loss"] / max(last["loss"], 1e-12)


def _of_convergence(name: str, title: str, points: Callable[[Scale], int], note: str) -> Artefact:
    rows = (row("XCiT-S12", (None, None), m.LIGHT), row("GELU ResNet-50", (None, None), m.GELU_RESNET))
    columns = (Column(PLATEAU, LOOK), Column(SPREAD, LOOK))
    look = Look(lambda scale: _convergence(scale, points(scale)), _of_models(_read_convergence))
    return Artefact(name, title, columns, rows, (), (note,), look)


FIGURE_5 = _of_convergence(
    "figure-5",
    "Is PGD-200 a good oracle? The loss of separate attacks saturates with their steps",
    lambda scale: 1,
    "One image, from twenty starts; the paper shows a plateau from 100 steps on.",
)
FIGURE_6 = _of_convergence(
    "figure-6",
    "Attacks from different starts converge to similar losses",
    lambda scale: 1,
    "One image, from twenty starts, stepping by eps/4: the paper says that the step is relatively large, not how large.",
)
FIGURES_14_17 = _of_convergence(
    "figure-14-17",
    "Convergence on 32 images",
    lambda scale: scale.points,
    "The paper's figures 14 and 16 are of XCiT-S12, 15 and 17 of the ResNet-50.",
)


def _effectiveness(scale: Scale) -> Analysis:
    return Effectiveness(scale.threat(FOUR), FEW, min(200, scale.longest))


def _read_effectiveness(found: dict[str, Any], column: str) -> float:
    steps = int(column.removeprefix("d_"))
    (mean,) = (attack["mean"] for attack in found["attacks"] if attack["steps"] == steps)
    return float("nan") if mean is None else 100 * mean


LAGS = tuple(f"d_{steps}" for steps in FEW)
OF_EFFECTIVENESS = (
    row("ResNet-50", (None,) * 4, m.GELU_RESNET),
    row("XCiT-S12", (None,) * 4, m.LIGHT),
    row("XCiT-S12*", (None,) * 4, m.CANONICAL_EPS_WARMUP),
    row("ConvNeXt-T", (None,) * 4, m.LIGHT_CONVNEXT),
)
LESS_EFFECTIVE = tuple(
    Claim(Cell(weaker, lag), Cell(stronger, lag))
    for lag in ("d_1", "d_2")
    for stronger in ("XCiT-S12", "ConvNeXt-T")
    for weaker in ("XCiT-S12*", "ResNet-50")
)


def _of_effectiveness(name: str, title: str, claims: tuple[Claim, ...]) -> Artefact:
    return Artefact(
        name,
        title,
        tuple(Column(lag, LOOK) for lag in LAGS),
        OF_EFFECTIVENESS,
        claims,
        (
            "Curves over the epochs in the paper; the table has the last epoch's. XCiT-S12* is trained by the canonical recipe "
            "with eps warmed up. The paper attacked in train mode for want of a working compiler; here it is eval mode.",
        ),
        Look(_effectiveness, _of_models(_read_effectiveness), epochs=True),
        images="all",
    )


FIGURE_7 = _of_effectiveness("figure-7", "Few-step attacks are more effective on the more robust models", LESS_EFFECTIVE)
FIGURE_12 = _of_effectiveness("figure-12", "Effectiveness of attacks, by their steps", LESS_EFFECTIVE)
FIGURE_13 = _of_effectiveness(
    "figure-13",
    "Effectiveness of attacks, by model",
    tuple(claim for found in OF_EFFECTIVENESS for claim in falling(found.label, "d_1", "d_2", "d_5")),
)
