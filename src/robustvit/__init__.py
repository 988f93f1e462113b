"""robustvit trains, attacks, evaluates and explains robust vision transformers.

The public names, loaded when first used: importing the package imports no torch.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Any

_HOME = {
    "Threat": "robustvit.threat",
    "Classifier": "robustvit.models",
    "ModelSpec": "robustvit.models",
    "load_model": "robustvit.models",
    "AttentionTap": "robustvit.models.attention",
    "block_outputs": "robustvit.models.surgery",
    "lesion": "robustvit.models.surgery",
    "Images": "robustvit.data",
    "DataSpec": "robustvit.data",
    "FGSM": "robustvit.attacks",
    "PGD": "robustvit.attacks",
    "Restarts": "robustvit.attacks",
    "attackable": "robustvit.attacks",
    "AWP": "robustvit.objectives",
    "MART": "robustvit.objectives",
    "PGDAT": "robustvit.objectives",
    "TRADES": "robustvit.objectives",
    "Standard": "robustvit.objectives",
    "Recipe": "robustvit.config",
    "override": "robustvit.config",
    "get_recipe": "robustvit.recipes",
    "fit": "robustvit.training.loop",
    "Outcome": "robustvit.evaluation",
    "evaluate": "robustvit.evaluation",
    "autoattack": "robustvit.attacks",
    "quick": "robustvit.evaluation",
    "sweep": "robustvit.evaluation",
    "verify": "robustvit.evaluation",
    "write_report": "robustvit.report",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("robustvit")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'robustvit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_HOME)
