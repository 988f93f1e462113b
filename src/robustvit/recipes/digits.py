"""Recipes on the handwritten digits: seconds on a CPU, for demonstrations and tests."""

from dataclasses import replace

from robustvit.attacks import PGD
from robustvit.config import Optim, Recipe
from robustvit.data import DataSpec
from robustvit.models import ModelSpec
from robustvit.objectives import PGDAT, Standard
from robustvit.threat import Threat
from robustvit.training.schedule import Cosine, Linear, Phase

THREAT = Threat("linf", 0.12)  # the digit stays readable to a person


def digits_standard() -> Recipe:
    """A small ViT trained on clean digits.  robustvit train digits-standard --out runs/digits-standard"""
    return Recipe(
        name="digits-standard",
        model=ModelSpec("vit_nano", channels=1, mean=(0.5,), std=(0.5,)),
        data=DataSpec("digits"),
        phases=(Phase(Standard(), epochs=20),),
        optim=Optim(lr=4e-3, weight_decay=0.5, schedule=Cosine(warmup=4)),
        batch_size=64,
    )


def digits_robust() -> Recipe:
    """The same ViT trained against PGD, eps warmed up.  robustvit train digits-robust --out runs/digits-robust"""
    adversary = PGD(THREAT, steps=2)
    return replace(
        digits_standard(),
        name="digits-robust",
        phases=(Phase(PGDAT(adversary), epochs=20, eps=Linear(6)),),
        select=PGD(THREAT, steps=10, seed=0),
    )
