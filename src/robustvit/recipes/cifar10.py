"""Recipes on CIFAR-10: a small ViT, hours on a CPU and minutes on one GPU."""

from dataclasses import replace

from robustvit.attacks import PGD
from robustvit.config import Optim, Recipe
from robustvit.data import DataSpec
from robustvit.models import ModelSpec
from robustvit.objectives import PGDAT, TRADES, Standard
from robustvit.threat import Threat
from robustvit.training.schedule import Cosine, Linear, Phase

THREAT = Threat("linf", 8 / 255)


def cifar10_standard() -> Recipe:
    """A small ViT trained on clean images.  robustvit train cifar10-standard --out runs/cifar10-standard"""
    return Recipe(
        name="cifar10-standard",
        model=ModelSpec("vit_mini", mean=(0.5,), std=(0.5,)),
        data=DataSpec("cifar10", pad=4, flip=True),
        phases=(Phase(Standard(label_smoothing=0.1), epochs=50),),
        optim=Optim(lr=1e-3, schedule=Cosine(warmup=5)),
        batch_size=256,
        clip=1.0,
    )


def cifar10_robust() -> Recipe:
    """The same ViT trained against PGD, eps warmed up.  robustvit train cifar10-robust --out runs/cifar10-robust"""
    return replace(
        cifar10_standard(),
        name="cifar10-robust",
        phases=(Phase(PGDAT(PGD(THREAT, steps=5)), epochs=50, eps=Linear(10)),),
        select=PGD(THREAT, steps=10, seed=0),
    )


def cifar10_trades() -> Recipe:
    """The same ViT trained with TRADES, beta 6, averaged weights.  robustvit train cifar10-trades --out runs/cifar10-trades"""
    adversary = PGD(THREAT, steps=10, step=0.25, step_unit="eps", loss="kl")
    return replace(
        cifar10_robust(),
        name="cifar10-trades",
        phases=(Phase(TRADES(adversary, beta=6.0), epochs=50, eps=Linear(10)),),
        ema=0.995,
    )
