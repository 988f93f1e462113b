"""The arithmetic that a model is asked in: attacks may be approximate, verdicts may not."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, get_args

import torch

Precision = Literal["fp32", "tf32", "bf16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)


@contextmanager
def arithmetic(precision: Precision) -> Iterator[None]:
    """float32 as written; its products rounded to TF32 (on GPUs that have it); or autocast to bfloat16."""
    before, short = _switches(), precision == "tf32"
    autocast = precision == "bf16"
    on_gpu = autocast and torch.cuda.is_available()  # or torch warns at each call
    try:
        _switch("high" if short else "highest", short, ["tf32" if short else "ieee"] * 3 + ["ieee"] * 3)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast), torch.autocast("cuda", torch.bfloat16, enabled=on_gpu):
            yield
    finally:
        _switch(*before)


def exact() -> AbstractContextManager[None]:
    """What every verdict is made in: no TF32, no autocast."""
    return arithmetic("fp32")


def _backends() -> list[Any]:
    """Where torch may round float32 products to something shorter: on a GPU, then on the CPU."""
    backends: Any = torch.backends
    cuda, cudnn, mkldnn = backends.cuda, backends.cudnn, backends.mkldnn
    return [cuda.matmul, cudnn.conv, cudnn.rnn, mkldnn.matmul, mkldnn.conv, mkldnn.rnn]


def _switches() -> tuple[str | None, bool | None, list[str]]:
    """torch's older two switches, None where the newer ones were used so that they cannot be read, and the newer ones."""
    try:
        matmul = torch.get_float32_matmul_precision()
    except RuntimeError:
        matmul = None
    try:
        cudnn = torch.backends.cudnn.allow_tf32
    except RuntimeError:
        cudnn = None
    return matmul, cudnn, [backend.fp32_precision for backend in _backends()]


def _switch(matmul: str | None, cudnn: bool | None, newer: list[str]) -> None:
    """The older switches first: they set the newer ones too, and other libraries still read them."""
    if matmul is not None:
        torch.set_float32_matmul_precision(matmul)
    if cudnn is not None:
        torch.backends.cudnn.allow_tf32 = cudnn
    for backend, wanted in zip(_backends(), newer, strict=True):
        # "none" is float32 as written, unless a wider switch says otherwise, and then it does not read "none".
        if backend.fp32_precision != wanted and (backend.fp32_precision, wanted) != ("none", "ieee"):
            backend.fp32_precision = wanted
