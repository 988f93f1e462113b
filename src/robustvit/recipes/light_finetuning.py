"""Recipes of "A Light Recipe to Train Robust Vision Transformers" for small sets (section IV-B, appendix D).

All against 8/255. They start from a run of `imagenet-light-eps8`; from another one by override:
`model.init=runs/imagenet-canonical-eps-warmup-eps8`.
"""

from dataclasses import replace

from robustvit.attacks import FGSM, PGD
from robustvit.config import Optim, Recipe
from robustvit.data import DataSpec
from robustvit.data.augment import Flip, ResizedCrop
from robustvit.data.mixing import Generated
from robustvit.models import ModelSpec
from robustvit.objectives import PGDAT, TRADES
from robustvit.recipes.light_recipe import BASIC, EIGHT, on_clean_images
from robustvit.training.schedule import Cosine, Phase

START = "runs/imagenet-light-eps8"


def caltech101_light() -> Recipe:
    """Clean 87.59, AutoAttack 61.74 (table 7a).  robustvit train caltech101-light --out runs/caltech101-light

    One step, no eps warm-up. The authors' file adds ten epochs of cool-down to the 20.
    """
    adversary = PGD(EIGHT, steps=1, step=1.5)
    schedule = Cosine(warmup=5, start=0.1, floor=0.1)
    return Recipe(
        name="caltech101-light",
        model=ModelSpec("xcit_small_12_p16_224", 101, mean=(0.5,), std=(0.5,), args={"drop_path_rate": 0.05}, init=START),
        data=DataSpec("caltech101", size=224, transform=BASIC),
        phases=(Phase(PGDAT(adversary, label_smoothing=0.1), epochs=20),),
        optim=Optim("adamw", lr=5e-5, weight_decay=0.5, schedule=schedule),
        batch_size=512,
        precision="bf16",
        select=FGSM(EIGHT, seed=0),
    )


def caltech101_standard() -> Recipe:
    """Fine-tuned on clean images: 90.36, 17.12 (table 7a).

    robustvit train caltech101-standard --out runs/caltech101-standard
    """
    return replace(on_clean_images(caltech101_light()), name="caltech101-standard")


def flowers102_light() -> Recipe:
    """Clean 82.86, AutoAttack 47.91 (table 7a).  robustvit train flowers102-light --out runs/flowers102-light

    In batches of 128, since the training set has 1,020 images, of which some are held out; at a rate in proportion to the batch
    (appendix D).
    """
    caltech, batch_size = caltech101_light(), 128
    rate = caltech.optim.lr * batch_size / caltech.batch_size
    return replace(
        caltech,
        name="flowers102-light",
        model=replace(caltech.model, num_classes=102),
        data=replace(caltech.data, source="flowers102"),
        optim=replace(caltech.optim, lr=rate),
        batch_size=batch_size,
    )


def flowers102_standard() -> Recipe:
    """Fine-tuned on clean images: 91.65, 5.71 (table 7a).

    robustvit train flowers102-standard --out runs/flowers102-standard
    """
    return replace(on_clean_images(flowers102_light()), name="flowers102-standard")


def cifar10_finetuned() -> Recipe:
    """Clean 90.06, AutoAttack 56.14 (table 7b).  robustvit train cifar10-finetuned --out runs/cifar10-finetuned

    TRADES-10 with beta 6 on patches of 4x4. The authors' file scales the rate by the square root of the batch, and crops after
    padding by four, turns by 2 degrees and jitters by 0.25 instead: `pad_crop`, `rotation`, `colour_jitter` in data.augment.
    """
    adversary = PGD(EIGHT, steps=10, step=1.5, loss="kl")
    return Recipe(
        name="cifar10-finetuned",
        model=ModelSpec("xcit_small_12_p4_32", args={"drop_path_rate": 0.05}, init=START),
        data=DataSpec("cifar10", augment=(ResizedCrop(scale=(0.8, 1.2), ratio=(0.95, 1.05)), Flip())),
        phases=(Phase(TRADES(adversary, beta=6.0), epochs=20),),
        optim=Optim("adamw", lr=2e-4, weight_decay=0.5, schedule=Cosine(warmup=5, floor=0.025)),
        batch_size=512,
        precision="bf16",
        select=FGSM(EIGHT, seed=0),
    )


def cifar100_finetuned() -> Recipe:
    """Clean 67.34, AutoAttack 32.19 (table 7d).  robustvit train cifar100-finetuned --out runs/cifar100-finetuned"""
    recipe = cifar10_finetuned()
    return replace(
        recipe,
        name="cifar100-finetuned",
        model=replace(recipe.model, num_classes=100),
        data=replace(recipe.data, source="cifar100"),
    )


def cifar10_from_scratch() -> Recipe:
    """Without pre-training: 82.84, 39.49 (table 7c).  robustvit train cifar10-from-scratch --out runs/cifar10-from-scratch"""
    recipe = cifar10_finetuned()
    return replace(
        recipe,
        name="cifar10-from-scratch",
        model=replace(recipe.model, init=None),
        phases=(replace(recipe.phases[0], epochs=300),),
    )


def cifar10_from_scratch_generated() -> Recipe:
    """With generated images: 80.01, 47.88 (table 7c).

    robustvit train cifar10-from-scratch-generated --out runs/cifar10-from-scratch-generated

    Those of Sehwag et al. (2022) in the paper; half of each batch, a share that it does not state.
    """
    recipe = cifar10_from_scratch()
    data = replace(recipe.data, generated=Generated("data/cifar10-generated.npz", share=0.5))
    return replace(recipe, name="cifar10-from-scratch-generated", data=data)
