"""Objectives by name. A new one is one file, one row here and one row in tests/objectives/test_contract.py."""

from robustvit.objectives.base import Loss, Objective
from robustvit.objectives.pgd_at import PGDAT
from robustvit.objectives.standard import Standard
from robustvit.objectives.trades import TRADES

OBJECTIVES: dict[str, type[Objective]] = {"standard": Standard, "pgd_at": PGDAT, "trades": TRADES}

__all__ = ["OBJECTIVES", "PGDAT", "TRADES", "Loss", "Objective", "Standard"]
