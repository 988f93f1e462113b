"""Interruption: a run that is asked to stop finishes its step and saves its state first."""

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; and what schedulers send before they kill


class Interruption:
    """Inside the `with`, the first signal only sets `asked`; a second one acts at once.

    Not where there are several processes: they would not stop at the same step. They go on from their last saved state.
    """

    def __init__(self, heeded: bool) -> None:
        self.heeded = heeded and threading.current_thread() is threading.main_thread()
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if self.heeded:
            self._before = {each: signal.signal(each, self._hear) for each in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._restore()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore()
        print("stopping after this step; once more stops at once", file=sys.stderr)

    def _restore(self) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)
        self._before = {}
