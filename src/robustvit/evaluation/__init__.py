"""Evaluation: model × suite -> outcomes that carry their evidence."""

from robustvit.evaluation.outcome import Outcome, told
from robustvit.evaluation.run import evaluate
from robustvit.evaluation.suites import SUITES, autoattack, build_suite, quick, sweep
from robustvit.evaluation.verify import verify

__all__ = ["SUITES", "Outcome", "autoattack", "build_suite", "evaluate", "quick", "sweep", "told", "verify"]
