"""The arithmetic that a model is asked in: attacks may be approximate, verdicts may not."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, get_args

import torch

Precision = Literal["fp32", "tf32", "bf16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)


@contextmanager
def arithmetic(precision: Precision) -> Iterator[None]:
    """float32 as written; its products rounded to TF32 (on GPUs that have it); or autocast to bfloat16."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = precision == "tf32"
    cpu = precision == "bf16"
    cuda = cpu and torch.cuda.is_available()  # or torch warns at each call
    try:
        with torch.autocast("cpu", torch.bfloat16, enabled=cpu), torch.autocast("cuda", torch.bfloat16, enabled=cuda):
            yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def exact() -> AbstractContextManager[None]:
    """What every verdict is made in: no TF32, no autocast."""
    return arithmetic("fp32")
