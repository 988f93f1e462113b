"""Objectives by name. A new one is one file, one row here and one row in tests/objectives/test_objective_contract.py."""

from robustvit.objectives.awp import AWP
from robustvit.objectives.base import Loss, Objective
from robustvit.objectives.mart import MART
from robustvit.objectives.pgd_at import PGDAT
from robustvit.objectives.standard import Standard
from robustvit.objectives.trades import TRADES

OBJECTIVES: dict[str, type[Objective]] = {"standard": Standard, "pgd_at": PGDAT, "trades": TRADES, "mart": MART}

__all__ = ["AWP", "MART", "OBJECTIVES", "PGDAT", "TRADES", "Loss", "Objective", "Standard"]
