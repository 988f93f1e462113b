"""Which device a verb runs on."""

import torch

from robustvit.errors import UserError


def find_device(name: str | None) -> torch.device:
    """`cpu` or `cuda`; without a name, a GPU if there is one. Never another one than was asked for."""
    if name not in (None, "cpu", "cuda"):
        raise UserError(f"device: {name!r}; accepted: cpu, cuda (CUDA_VISIBLE_DEVICES says which)")
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise UserError("device: 'cuda', but torch finds no GPU here; accepted: cpu")
    return torch.device("cuda" if there and name != "cpu" else "cpu")
