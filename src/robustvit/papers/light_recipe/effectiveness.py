"""Section V-A: how good are few-step attacks on these models, through their training?"""

from collections.abc import Callable, Mapping

from robustvit.analysis import Analysis, Effectiveness, Finding
from robustvit.papers.artefact import Artefact, Claim, Column, Look, best, falling, row
from robustvit.papers.light_recipe import models as m
from robustvit.papers.measures import LOOK
from robustvit.papers.scale import Scale
from robustvit.papers.scales import FOUR
from robustvit.report.sections import effectiveness as drawing

FEW = (1, 2, 5, 10)


def _effectiveness(scale: Scale) -> Analysis:
    return Effectiveness(scale.threat(FOUR), FEW, min(200, scale.longest))


def _read_effectiveness(finding: Finding, column: str) -> Mapping[str, float]:
    """In percent; of several epochs the last. Where even the strong attack finds no loss, there is nothing to compare."""
    place = FEW.index(int(column.removeprefix("d_")))
    lags = {found["model"]: found["attacks"][place]["mean"] for found in finding.data["models"]}
    return {model: 100 * lag for model, lag in lags.items() if lag is not None}


LAGS = tuple(f"d_{steps}" for steps in FEW)
RESNET, XCIT, STAR, CONVNEXT = "ResNet-50", "XCiT-S12", "XCiT-S12*", "ConvNeXt-T"
OF_EFFECTIVENESS = (
    row(RESNET, (None,) * 4, m.GELU_RESNET),
    row(XCIT, (None,) * 4, m.LIGHT),
    row(STAR, (None,) * 4, m.CANONICAL_EPS_WARMUP),
    row(CONVNEXT, (None,) * 4, m.LIGHT_CONVNEXT),
)
# A large difference is an ineffective attack: the canonical recipe's is the largest, the light one's the smallest.
LESS_EFFECTIVE = tuple(
    claim for lag in ("d_1", "d_2") for claim in (*best(lag, STAR, RESNET, XCIT, CONVNEXT), *best(lag, RESNET, XCIT, CONVNEXT))
)


def _of_effectiveness(name: str, title: str, claims: tuple[Claim, ...], draw: Callable[[Finding], str]) -> Artefact:
    return Artefact(
        name,
        title,
        tuple(Column(lag, LOOK, FOUR) for lag in LAGS),
        OF_EFFECTIVENESS,
        claims,
        (
            "Curves over the epochs in the paper; the table has the last epoch's. XCiT-S12* is trained by the canonical recipe "
            "with eps warmed up. The paper attacked in train mode for want of a working compiler; here it is eval mode.",
        ),
        Look(_effectiveness, _read_effectiveness, epochs=True, images=lambda scale: scale.climbed, draw=draw),
        images="all",
    )


FIGURE_7 = _of_effectiveness(
    "figure-7",
    "Few-step attacks are more effective on the more robust models",
    LESS_EFFECTIVE,
    drawing.single_step_and_last_epoch,
)
FIGURE_12 = _of_effectiveness("figure-12", "Effectiveness of attacks, by their steps", LESS_EFFECTIVE, drawing.by_steps)
FIGURE_13 = _of_effectiveness(
    "figure-13",
    "Effectiveness of attacks, by epoch",
    tuple(claim for found in OF_EFFECTIVENESS for claim in falling(found.label, "d_1", "d_2", "d_5")),
    drawing.by_epoch,
)
