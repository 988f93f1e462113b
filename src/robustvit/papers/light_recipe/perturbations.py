"""Section V-B and appendix J: what perturbations and gradients look like."""

from collections.abc import Mapping

import numpy as np

from robustvit.analysis import Analysis, FeatureImages, Finding, Gallery, Semantic
from robustvit.papers.artefact import Artefact, Cell, Claim, Column, Look, Published, row
from robustvit.papers.light_recipe import models as m
from robustvit.papers.measures import LOOK
from robustvit.papers.scale import Scale
from robustvit.papers.scales import FEATURES, FOUR
from robustvit.recipes.light_recipe import imagenet_standard, of_model
from robustvit.report.sections import pictures

CONVNEXT, BEIT, SWIN = JUDGES = ("ConvNeXt-XL", "BeiT-L", "Swin-L")
TOP, FEW = 5, 10


def _judge(timm: str, like: str) -> Published:
    return Published(timm, of_model(imagenet_standard(), like))


def _semantic(scale: Scale) -> Analysis:
    """Among few classes five names are most of them, so the first alone counts."""
    top = TOP if scale.sets["imagenet"].classes > FEW else 1
    return Semantic(scale.threat(FOUR), min(100, scale.longest), top=top, judges=JUDGES)


def _read_semantic(finding: Finding, column: str) -> Mapping[str, np.ndarray]:
    """With −δ, as the authors' code; +δ, as the text, is in the finding."""
    makers = [found["model"] for found in finding.data["models"]]
    judge = list(finding.data["judges"]).index(column)
    return {maker: hits[judge, 0] for maker, hits in zip(makers, finding.arrays["hits"], strict=True)}


ROBUST, STANDARD = ("robust XCiT-S12", "robust ResNet-50"), ("standard XCiT-S12", "standard ResNet-50")
TABLE_8 = Artefact(
    "table-8",
    "Perturbations of robust models are images of the class they hide",
    tuple(Column(judge, LOOK, FOUR) for judge in JUDGES),
    (
        row(ROBUST[0], (43.86, 49.52, 40.24), m.LIGHT),
        row(ROBUST[1], (38.40, 45.02, 36.70), m.GELU_RESNET),
        row(STANDARD[0], (0.84, 0.78, 0.84), m.STANDARD_XCIT),
        row(STANDARD[1], (0.82, 0.74, 0.80), m.TIMM_RESNET),
    ),
    (
        *(Claim(Cell(ROBUST[0], judge), Cell(ROBUST[1], judge)) for judge in JUDGES),
        *(
            Claim(Cell(robust, judge), Cell(standard, judge))
            for judge in JUDGES
            for robust, standard in zip(ROBUST, STANDARD, strict=True)
        ),
    ),
    (
        "Top-5 accuracy of the columns' models; where a scale has ten classes or fewer, top-1, of which chance is a tenth at "
        "least. Perturbations are mapped as (−δ+ε)/2ε, as in the authors' code; by (δ+ε)/2ε, as the text has it, in brackets "
        "below. The text names Swin-B, the table Swin-L.",
    ),
    Look(
        _semantic,
        _read_semantic,
        (
            row(CONVNEXT, (), _judge("convnext_xlarge.fb_in22k_ft_in1k", m.CONVNEXT)),
            row(BEIT, (), _judge("beit_large_patch16_224.in22k_ft_in22k_in1k", m.DEIT)),
            row(SWIN, (), _judge("swin_large_patch4_window7_224.ms_in22k_ft_in1k", m.POOLFORMER)),
        ),
    ),
)


def _gallery(scale: Scale) -> Analysis:
    return Gallery(scale.threat(FOUR), min(100, scale.longest))


def _features(scale: Scale) -> Analysis:
    return FeatureImages(scale.threat(FEATURES), steps=min(100, scale.longest))


SHOWN = (row(ROBUST[0], (), m.LIGHT), row(STANDARD[0], (), m.STANDARD_XCIT), row(ROBUST[1], (), m.GELU_RESNET))
FIGURE_8 = Artefact(
    "figure-8",
    "Perturbations of robust models have the shapes of the image",
    (),
    SHOWN,
    (),
    ("In grey, scaled from [−ε, ε] to [0, 1]; of a random sample of images, as in the paper.",),
    Look(_gallery, draw=pictures.perturbations),
)
FIGURE_18 = Artefact(
    "figure-18",
    "What a class looks like to a model: targeted attacks from noise",
    (),
    (row(ROBUST[0], (), m.LIGHT), row(ROBUST[1], (), m.GELU_RESNET), row(STANDARD[0], (), m.STANDARD_XCIT)),
    (),
    (
        "The paper's ε = 15 has no norm: here an ℓ2 ball of radius 15 within the box; for smaller images a smaller one, which "
        "allows each number as much.",
    ),
    Look(_features),
)
