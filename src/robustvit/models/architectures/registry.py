"""register(): one row makes a model known to timm's factory, and so to everything that takes a model by name."""

from collections.abc import Callable
from typing import Any

from timm.models import register_model
from torch import nn

OWN: dict[str, str] = {}  # name -> what it is, in a line

# What timm's factory passes on to every model and the constructors do not take.
_OF_THE_FACTORY = ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")


def register(name: str, line: str, make: Callable[..., nn.Module], **shape: Any) -> None:
    """`name` is `make` with `shape`; what a caller gives the factory goes before `shape`."""

    def entrypoint(pretrained: bool = False, **given: Any) -> Any:
        if pretrained:
            raise ValueError("pretrained: True; the project's own models have no published weights, accepted: False")
        model: Any = make(**shape | {key: value for key, value in given.items() if key not in _OF_THE_FACTORY})
        # Where timm notes it, too.
        model.pretrained_cfg = {**(getattr(model, "pretrained_cfg", None) or {}), "architecture": name}
        return model

    assert name not in OWN, name
    OWN[name] = line
    entrypoint.__name__ = entrypoint.__qualname__ = name
    entrypoint.__doc__ = line
    register_model(entrypoint)
