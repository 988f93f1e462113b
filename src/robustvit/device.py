"""Which device a verb runs on."""

from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def one_thread() -> Iterator[None]:
    """For models so small that threads wait for each other longer than they work, most of all beside other programs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
