"""The artefacts of "A Light Recipe to Train Robust Vision Transformers" (Debenedetti, Sehwag and Mittal, SaTML 2023)."""

from robustvit.papers.artefact import registry
from robustvit.papers.light_recipe import ablation, attacks, effectiveness, finetuning, imagenet, perturbations

ARTEFACTS = registry(
    "light-recipe",
    imagenet.TABLE_1,
    ablation.TABLE_2A,
    ablation.TABLE_2B,
    ablation.TABLE_2C,
    ablation.TABLE_2D,
    imagenet.TABLE_3,
    imagenet.TABLE_4A,
    imagenet.TABLE_4B,
    imagenet.TABLE_5,
    imagenet.TABLE_6,
    finetuning.TABLE_7A,
    finetuning.TABLE_7B,
    finetuning.TABLE_7C,
    finetuning.TABLE_7D,
    perturbations.TABLE_8,
    ablation.TABLE_9,
    attacks.TABLE_10,
    imagenet.TABLE_11,
    finetuning.FIGURE_1,
    attacks.FIGURE_3,
    imagenet.FIGURE_4,
    attacks.FIGURE_5,
    attacks.FIGURE_6,
    effectiveness.FIGURE_7,
    perturbations.FIGURE_8,
    effectiveness.FIGURE_12,
    effectiveness.FIGURE_13,
    attacks.FIGURES_14_17,
    perturbations.FIGURE_18,
)
