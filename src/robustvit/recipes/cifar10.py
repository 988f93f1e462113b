"""Recipes on CIFAR-10 for small networks: hours on a CPU, work for a GPU."""

from dataclasses import replace

from robustvit.attacks import PGD
from robustvit.config import Optim, Recipe
from robustvit.data import DataSpec
from robustvit.data.augment import Flip, PadCrop
from robustvit.models import ModelSpec
from robustvit.objectives import PGDAT, TRADES, Standard
from robustvit.threat import Threat
from robustvit.training.schedule import Cosine, Linear, Phase

THREAT = Threat("linf", 8 / 255)
EPOCHS = 25


def cifar10_standard() -> Recipe:
    """A small ViT trained on clean images.  robustvit train cifar10-standard --out runs/cifar10-standard"""
    return Recipe(
        name="cifar10-standard",
        model=ModelSpec("vit_mini", mean=(0.5,), std=(0.5,)),
        data=DataSpec("cifar10", augment=(PadCrop(4), Flip())),
        phases=(Phase(Standard(label_smoothing=0.1), epochs=EPOCHS),),
        optim=Optim(lr=1e-3, schedule=Cosine(warmup=5)),
        batch_size=512,
        clip=1.0,
        precision="bf16",
        select_every=5,
    )


def cifar10_robust() -> Recipe:
    """The same ViT trained against PGD, eps warmed up.  robustvit train cifar10-robust --out runs/cifar10-robust"""
    return replace(
        cifar10_standard(),
        name="cifar10-robust",
        phases=(Phase(PGDAT(PGD(THREAT, steps=5)), epochs=EPOCHS, eps=Linear(8)),),
        select=PGD(THREAT, steps=10, seed=0),
    )


def cifar10_trades() -> Recipe:
    """The same ViT trained with TRADES, beta 6, averaged weights.  robustvit train cifar10-trades --out runs/cifar10-trades"""
    adversary = PGD(THREAT, steps=10, step=0.25, step_unit="eps", loss="kl")
    return replace(
        cifar10_robust(),
        name="cifar10-trades",
        phases=(Phase(TRADES(adversary, beta=6.0), epochs=EPOCHS, eps=Linear(8)),),
        ema=0.995,
    )


def cifar10_light() -> Recipe:
    """The same ViT by the light recipe: two steps, weight decay 0.5.  robustvit train cifar10-light --out runs/cifar10-light

    As the paper "A Light Recipe to Train Robust Vision Transformers" has it at eps 8/255, on a small set and from scratch.
    """
    adversary = PGD(THREAT, steps=2, step=1.5)
    robust = cifar10_robust()
    return replace(
        robust,
        name="cifar10-light",
        model=replace(robust.model, args={"drop_path_rate": 0.05}),
        phases=(Phase(PGDAT(adversary, label_smoothing=0.1), epochs=EPOCHS, eps=Linear(8)),),
        optim=replace(robust.optim, weight_decay=0.5),
    )


def cifar10_xcit() -> Recipe:
    """A small XCiT trained against PGD.  robustvit train cifar10-xcit --out runs/cifar10-xcit"""
    robust = cifar10_robust()
    return replace(robust, name="cifar10-xcit", model=replace(robust.model, name="xcit_mini"))


def cifar10_resnet_standard() -> Recipe:
    """A small ResNet on clean images.  robustvit train cifar10-resnet-standard --out runs/cifar10-resnet-standard"""
    return _with_resnet(cifar10_standard(), "cifar10-resnet-standard")


def cifar10_resnet() -> Recipe:
    """A small ResNet trained against PGD.  robustvit train cifar10-resnet --out runs/cifar10-resnet"""
    return _with_resnet(cifar10_robust(), "cifar10-resnet")


def _with_resnet(recipe: Recipe, name: str) -> Recipe:
    """Convolutional networks of this size learn better from SGD."""
    return replace(
        recipe,
        name=name,
        model=replace(recipe.model, name="resnet_mini"),
        optim=Optim("sgd", lr=0.2, weight_decay=5e-4, schedule=Cosine(warmup=5)),
    )
