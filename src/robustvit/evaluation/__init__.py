"""Evaluation: model × suite -> outcomes that carry their evidence."""

from robustvit.evaluation.outcome import Outcome
from robustvit.evaluation.run import evaluate
from robustvit.evaluation.suites import SUITES, quick, sweep

__all__ = ["SUITES", "Outcome", "evaluate", "quick", "sweep"]
