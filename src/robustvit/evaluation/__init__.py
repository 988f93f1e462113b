"""Evaluation: model × suite -> outcomes that carry their evidence."""

from robustvit.evaluation.outcome import Outcome
from robustvit.evaluation.run import evaluate
from robustvit.evaluation.suites import SUITES, attacks_of, autoattack, build_suite, quick, sweep
from robustvit.evaluation.verify import verify

__all__ = ["SUITES", "Outcome", "attacks_of", "autoattack", "build_suite", "evaluate", "quick", "sweep", "verify"]
