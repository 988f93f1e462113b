"""Attacks by name. A new one is one file, one row here and one row in tests/attacks/test_attack_contract.py."""

from robustvit.attacks.apgd import APGD
from robustvit.attacks.base import Attack, attackable
from robustvit.attacks.ensemble import WorstOf, autoattack
from robustvit.attacks.fab import FAB
from robustvit.attacks.gama import GAMA
from robustvit.attacks.pgd import FGSM, PGD
from robustvit.attacks.query import Model, Queries
from robustvit.attacks.square import Square
from robustvit.attacks.wrappers import EOT, InPrecision, LogitScaling, Restarts

ATTACKS: dict[str, type[Attack]] = {
    "fgsm": FGSM,
    "pgd": PGD,
    "apgd": APGD,
    "fab": FAB,
    "square": Square,
    "gama": GAMA,
    "restarts": Restarts,
    "worst_of": WorstOf,
    "in_precision": InPrecision,
    "eot": EOT,
    "logit_scaling": LogitScaling,
}

__all__ = [
    "APGD",
    "ATTACKS",
    "EOT",
    "FAB",
    "FGSM",
    "GAMA",
    "PGD",
    "Attack",
    "InPrecision",
    "LogitScaling",
    "Model",
    "Queries",
    "Restarts",
    "Square",
    "WorstOf",
    "attackable",
    "autoattack",
]
