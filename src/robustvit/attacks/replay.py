"""Small batches on a GPU: what is asked over and over is captured once as a CUDA graph, and replayed without launch gaps."""

import sys
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robustvit.sizes import filled

Work = Callable[..., tuple[Tensor, ...]]


@dataclass
class Replay:
    """Runs work on rows of tensors; what it captured it compares once with the plain run.

    It may live no longer than the memory that the model reads: one attack, within which nothing of the model changes.
    A model that waits for the device, or whose answers are random, is asked plainly, and that is said aloud.
    """

    after: int = 8  # plain runs first: a capture costs about as much as these
    pixels: int = 2**20  # of larger batches the launches hide behind the work
    graphs: dict[Hashable, "_Graph"] = field(default_factory=dict)
    seen: Counter[Hashable] = field(default_factory=Counter)
    refused: bool = False

    def __call__(self, name: Hashable, work: Work, *rows: Tensor) -> tuple[Tensor, ...]:
        """work(*rows); the name stands for what else it depends on."""
        x = rows[0]
        size = filled(len(x))
        if self.refused or not x.is_cuda or size * x.shape[2] * x.shape[3] > self.pixels:
            return work(*rows)
        key = name, size, tuple((each.shape[1:], each.dtype) for each in rows)
        self.seen[key] += 1
        if self.seen[key] <= self.after:
            return work(*rows)
        if key not in self.graphs:
            try:
                self.graphs[key] = _Graph(work, size, rows, self._pool())
            except _CannotReplayError as why:
                self.refused = True
                print(f"cuda graphs: not for this model, {why}; it is asked without them", file=sys.stderr)
                return work(*rows)
        return self.graphs[key](*rows)

    def _pool(self) -> Any:
        """Graphs share their memory: no answer outlives the next call."""
        return next(iter(self.graphs.values())).graph.pool() if self.graphs else None


class _CannotReplayError(Exception):
    """The reason, for people."""


class _Graph:
    def __init__(self, work: Work, size: int, rows: tuple[Tensor, ...], pool: Any) -> None:
        self.rows = [each[-1:].expand(size, *each.shape[1:]).clone() for each in rows]
        self._fill(rows)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            plain = work(*self.rows)
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        random = generator.clone_state()
        try:
            with torch.cuda.graph(self.graph, pool=pool):
                self.answer = work(*self.rows)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            # A capture that failed leaves the generator waiting for its end.
            generator.graphsafe_set_state(random)
            raise _CannotReplayError(str(error).splitlines()[0]) from None
        self.graph.replay()
        if not all(_alike(*pair) for pair in zip(plain, self.answer, strict=True)):
            raise _CannotReplayError("whose answers differ from one time to the next")

    def __call__(self, *rows: Tensor) -> tuple[Tensor, ...]:
        self._fill(rows)
        self.graph.replay()
        return tuple(each[: len(rows[0])].clone() for each in self.answer)

    def _fill(self, rows: tuple[Tensor, ...]) -> None:
        """What lies beyond is some other image's, and shows nowhere."""
        for own, each in zip(self.rows, rows, strict=True):
            own[: len(each)].copy_(each)


def _alike(one: Tensor, other: Tensor) -> bool:
    """Up to rounding, which another stream may do in another order."""
    return torch.allclose(one, other, rtol=1e-2, atol=1e-2 * float(one.nan_to_num().abs().amax()), equal_nan=True)
