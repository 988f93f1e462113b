"""What a number was measured with."""

import platform
from importlib.metadata import PackageNotFoundError, version

import torch


def versions(device: torch.device) -> dict[str, str]:
    packages = {name: _version(name) for name in ("robustvit", "torch", "torchvision", "timm", "numpy")}
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine() + " CPU"
    return {**packages, "python": platform.python_version(), "device": hardware}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from its source, as on a machine where nothing can be installed
        return "source"
