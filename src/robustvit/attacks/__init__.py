"""Attacks by name. A new one is one file, one row here and one row in tests/attacks/test_contract.py."""

from robustvit.attacks.base import Attack, Model, attackable
from robustvit.attacks.ensemble import Restarts
from robustvit.attacks.pgd import FGSM, PGD

ATTACKS: dict[str, type[Attack]] = {"fgsm": FGSM, "pgd": PGD, "restarts": Restarts}

__all__ = ["ATTACKS", "FGSM", "PGD", "Attack", "Model", "Restarts", "attackable"]
