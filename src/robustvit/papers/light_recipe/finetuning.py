"""Section IV-B: fine-tuning on other sets, all against 8/255."""

from dataclasses import replace

from robustvit.config import Recipe
from robustvit.models import ModelSpec
from robustvit.papers.artefact import Artefact, Column, Given, Trained, above, ordered, row, trained
from robustvit.papers.light_recipe import models as m
from robustvit.papers.scales import EIGHT, FOUR
from robustvit.recipes.light_finetuning import (
    caltech101_light,
    caltech101_standard,
    cifar10_finetuned,
    cifar10_from_scratch,
    cifar10_from_scratch_generated,
    cifar100_finetuned,
    flowers102_light,
    flowers102_standard,
)
from robustvit.recipes.light_recipe import imagenet_canonical_eps_warmup_eps8, imagenet_light_eps8, of_model

CLEAN, AUTOATTACK = Column("clean", "clean"), Column("AutoAttack", "autoattack", EIGHT)
HENDRYCKS = "https://github.com/hendrycks/pre-training"
XCIT_L, RESNET = "xcit_large_12_p16_224", "resnet50"
# What their code calls the parts of our `wrn_28_10`.
OF_HENDRYCKS = (
    *((rf"^block{number}\.layer\.", f"stages.{number - 1}.blocks.") for number in (1, 2, 3)),
    *((r"\.bn(\d)\.", r".norm\1."), (r"convShortcut", "downsample.conv")),
    *((r"^conv1\.", "stem.conv."), (r"^bn1\.", "norm."), (r"^fc\.", "head.fc.")),
)


def hendrycks(like: Recipe, classes: int) -> Given:
    """Their WideResNet-28-10, pre-trained on a small ImageNet."""
    spec = ModelSpec("wrn_28_10", classes, mean=(0.5,), std=(0.5,))
    return Given(f"hendrycks-wrn-28-10-{like.data.source}", HENDRYCKS, of_model(like, spec.name), spec, OF_HENDRYCKS)


WIDE_RESNET_C10, WIDE_RESNET_C100 = hendrycks(cifar10_finetuned(), 10), hendrycks(cifar100_finetuned(), 100)
EPS8 = imagenet_light_eps8()


def light(*recipes: Recipe) -> Trained:
    return trained(EPS8, *recipes)


def canonical(*recipes: Recipe) -> Trained:
    return trained(imagenet_canonical_eps_warmup_eps8(), *recipes)


def of_resnet(recipe: Recipe) -> Trained:
    """From Salman et al.'s ReLU ResNet-50, the only one of theirs that is robust enough at 8/255."""
    small = recipe.data.source.startswith("cifar")
    model = replace(recipe.model, name="resnet50_32" if small else RESNET, args={})
    return trained(replace(recipe, model=model), start=m.RELU_RESNET_EPS8)


def larger(recipe: Recipe, size: str) -> Trained:
    """The light recipe for another XCiT, from pre-training on."""
    return trained(of_model(EPS8, f"xcit_{size}_12_p16_224"), of_model(recipe, f"xcit_{size}_12_p4_32"))


def both(column: str, of: str) -> tuple[Column, Column]:
    return (Column(f"{column}, clean", "clean", of=of), Column(f"{column}, AutoAttack", "autoattack", EIGHT, of=of))


SETS_7A = ("Caltech-101", "Flowers")
IN_ORDER = ("XCiT-S12 (light)", "XCiT-S12 (c)", "ResNet-50")
OTHERS_7A = ("standard, XCiT-S12 (c)", "standard, ResNet-50")
TABLE_7A = Artefact(
    "table-7a",
    "Fine-tuning at high resolution, on clean images and against an adversary",
    (*both("Caltech-101", "caltech101"), *both("Flowers", "flowers102")),
    (
        row(
            "standard, ResNet-50",
            (86.97, 7.56, 86.28, 1.96),
            caltech101=of_resnet(caltech101_standard()),
            flowers102=of_resnet(flowers102_standard()),
        ),
        row(
            "standard, XCiT-S12 (c)",
            (89.92, 0.96, 88.13, 0.99),
            caltech101=canonical(caltech101_standard()),
            flowers102=canonical(flowers102_standard()),
        ),
        row(
            "standard, XCiT-S12 (light)",
            (90.36, 17.12, 91.65, 5.71),
            caltech101=light(caltech101_standard()),
            flowers102=light(flowers102_standard()),
        ),
        row(
            "adversarial, ResNet-50",
            (81.38, 34.49, 74.51, 32.75),
            caltech101=of_resnet(caltech101_light()),
            flowers102=of_resnet(flowers102_light()),
        ),
        row(
            "adversarial, XCiT-S12 (c)",
            (86.18, 58.84, 76.26, 42.42),
            caltech101=canonical(caltech101_light()),
            flowers102=canonical(flowers102_light()),
        ),
        row(
            "adversarial, XCiT-S12 (light)",
            (87.59, 61.74, 82.86, 47.91),
            caltech101=light(caltech101_light()),
            flowers102=light(flowers102_light()),
        ),
    ),
    tuple(
        claim
        for name in SETS_7A
        for claim in (
            *ordered(f"{name}, AutoAttack", *(f"adversarial, {model}" for model in IN_ORDER)),
            *ordered(f"{name}, clean", *(f"adversarial, {model}" for model in IN_ORDER)),
            *above("standard, XCiT-S12 (light)", OTHERS_7A, f"{name}, AutoAttack", f"{name}, clean"),
        )
    ),
    ("(c): pre-trained by the canonical recipe with eps warmed up, without which it fails at 8/255.",),
)

ORDER = (
    *ordered("AutoAttack", "XCiT-L12 (light)", "XCiT-M12 (light)", "XCiT-S12 (light)", "XCiT-S12 (c)", "ResNet-50"),
    *above("XCiT-S12 (light)", ("WideResNet-28-10",), "AutoAttack", "clean"),
    *above("XCiT-S12 (light)", ("ResNet-50",), "clean"),
)
TABLE_7B = Artefact(
    "table-7b",
    "Fine-tuning on CIFAR-10",
    (CLEAN, AUTOATTACK),
    (
        row("WideResNet-28-10", (87.11, 54.92), WIDE_RESNET_C10),
        row("ResNet-50", (84.80, 41.56), of_resnet(cifar10_finetuned())),
        row("XCiT-S12 (c)", (89.07, 54.37), canonical(cifar10_finetuned())),
        row("XCiT-S12 (light)", (90.06, 56.14), light(cifar10_finetuned())),
        row("XCiT-M12 (light)", (91.30, 57.27), larger(cifar10_finetuned(), "medium")),
        row("XCiT-L12 (light)", (91.73, 57.58), larger(cifar10_finetuned(), "large")),
    ),
    ORDER,
)

TABLE_7C = Artefact(
    "table-7c",
    "Pre-training is necessary for smaller sets",
    (CLEAN, AUTOATTACK),
    (
        row("from scratch", (82.84, 39.49), trained(cifar10_from_scratch())),
        row("from scratch, generated images", (80.01, 47.88), trained(cifar10_from_scratch_generated())),
        row("pre-trained", (90.06, 56.14), light(cifar10_finetuned())),
    ),
    ordered("AutoAttack", "pre-trained", "from scratch, generated images", "from scratch"),
    ("The paper's generated images are those of Sehwag et al. (2022); their share of a batch is not stated, here half.",),
)

TABLE_7D = Artefact(
    "table-7d",
    "Fine-tuning on CIFAR-100",
    (CLEAN, AUTOATTACK),
    (
        row("WideResNet-28-10", (59.23, 28.42), WIDE_RESNET_C100),
        row("ResNet-50", (61.28, 22.01), of_resnet(cifar100_finetuned())),
        row("XCiT-S12 (c)", (65.44, 30.97), canonical(cifar100_finetuned())),
        row("XCiT-S12 (light)", (67.34, 32.19), light(cifar100_finetuned())),
        row("XCiT-M12 (light)", (69.21, 34.21), larger(cifar100_finetuned(), "medium")),
        row("XCiT-L12 (light)", (70.76, 35.08), larger(cifar100_finetuned(), "large")),
    ),
    ORDER,
)

SETS = {
    "caltech101": caltech101_light(),
    "flowers102": flowers102_light(),
    "cifar10": cifar10_finetuned(),
    "cifar100": cifar100_finetuned(),
}
NAMES = {
    "imagenet": "ImageNet",
    "caltech101": "Caltech-101",
    "flowers102": "Flowers",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
}
FIGURE_1 = Artefact(
    "figure-1",
    "A light recipe is better: in pre-training and after fine-tuning",
    tuple(Column(title, "autoattack", FOUR if name == "imagenet" else EIGHT, of=name) for name, title in NAMES.items()),
    (
        row(
            "ResNet-50",
            (35.51, 34.49, 32.75, 41.56, 22.01),
            imagenet=m.GELU_RESNET,
            caltech101=of_resnet(SETS["caltech101"]),
            flowers102=of_resnet(SETS["flowers102"]),
            cifar10=of_resnet(SETS["cifar10"]),
            cifar100=of_resnet(SETS["cifar100"]),
        ),
        row("WideResNet-28-10", (None, None, None, 54.92, 28.42), cifar10=WIDE_RESNET_C10, cifar100=WIDE_RESNET_C100),
        row(
            "XCiT-S12 (c)",
            (28.70, 58.84, 42.42, 54.37, 30.97),
            imagenet=m.CANONICAL,
            **{name: canonical(recipe) for name, recipe in SETS.items()},
        ),
        row(
            "XCiT-S12 (light)",
            (41.78, 61.74, 47.91, 56.14, 32.19),
            imagenet=m.LIGHT,
            **{name: light(recipe) for name, recipe in SETS.items()},
        ),
    ),
    tuple(claim for title in NAMES.values() for claim in ordered(title, "XCiT-S12 (light)", "XCiT-S12 (c)")),
    (
        "The paper's bars have no numbers: these are those of its tables 1, 7a, 7b and 7d. On CIFAR its bar is Hendrycks et "
        "al.'s WideResNet-28-10, in the place of the ResNet-50 of those tables.",
    ),
)
