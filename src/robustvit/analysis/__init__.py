"""Analyses by name. A new one is one file, one row here, one in report/sections and one in the contract test."""

from robustvit.analysis.base import Analysis
from robustvit.analysis.convergence import Convergence
from robustvit.analysis.effectiveness import Effectiveness
from robustvit.analysis.eps_sweep import EpsSweep
from robustvit.analysis.feature_images import FeatureImages
from robustvit.analysis.finding import Finding
from robustvit.analysis.gallery import Gallery
from robustvit.analysis.pgd_steps import PGDSteps
from robustvit.analysis.semantic import Semantic
from robustvit.analysis.subjects import Subject

ANALYSES: dict[str, type[Analysis]] = {
    "effectiveness": Effectiveness,
    "convergence": Convergence,
    "eps_sweep": EpsSweep,
    "pgd_steps": PGDSteps,
    "semantic": Semantic,
    "feature_images": FeatureImages,
    "gallery": Gallery,
}

__all__ = [
    "ANALYSES",
    "Analysis",
    "Convergence",
    "Effectiveness",
    "EpsSweep",
    "FeatureImages",
    "Finding",
    "Gallery",
    "PGDSteps",
    "Semantic",
    "Subject",
]
