"""Crew: jobs beside each other on one device, in processes of their own, where each alone would leave most of it idle."""

import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stderr
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self, TypeVar

from robustvit import progress
from robustvit.errors import UserError

Argument = TypeVar("Argument")
Result = TypeVar("Result")
Pending = Future[tuple[Result, str]]


class Crew:
    """So many `jobs` at a time; one at a time is this process's own work.

    Others start when they are first needed and stay until the `with` ends; if it ends in an error, at once. They have the
    threads of this one, since sums depend on how many add.
    """

    def __init__(self, jobs: int = 1) -> None:
        if jobs < 1:
            raise UserError(f"jobs: {jobs}; accepted: 1 or more")
        if jobs > 1 and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UserError(f"jobs: {jobs} within `accelerate launch`; accepted: one or the other")
        self.jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        self._leash: Connection | None = None
        self._said: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._pool and self._leash:
            if kind:
                self._leash.close()
            self._pool.shutdown(cancel_futures=True)
            self._leash.close()
            self._pool = None

    def all(self, function: Callable[[Argument], Result], arguments: Sequence[Argument], what: str) -> list[Result]:
        """`function` of each argument; the first error is raised. `what` are they when done, as in "models trained"."""
        if min(self.jobs, len(arguments)) <= 1:
            return [function(argument) for argument in arguments]
        pending = [self.start(function, argument) for argument in arguments]
        with progress.progress(len(pending), what, "models") as advance:
            for count, future in enumerate(as_completed(pending), 1):
                self.result(future)
                advance(1, f"{count} of {len(pending)}")
        return [self.result(future) for future in pending]

    def start(self, function: Callable[[Argument], Result], argument: Argument) -> "Pending[Result]":
        """`function` of the argument in another process, while this one goes on; its value is `result` of what this gives."""
        self._pool = self._pool or self._assemble()
        with _deaf():
            return self._pool.submit(_do, function, argument)

    def result(self, future: "Pending[Result]") -> Result:
        """Waits for it, and passes on what the job had to say, but not again what another has said."""
        try:
            value, said = future.result()
        except BrokenProcessPool as error:
            why = "a process ended before its work did, as when memory runs out"
            raise UserError(f"jobs: {why}; the same command goes on where it stopped, with fewer --jobs if need be") from error
        lines = dict.fromkeys(said.splitlines())
        for line in (line for line in lines if line not in self._said):
            print(line, file=sys.stderr)
        self._said.update(lines)
        return value

    def _assemble(self) -> ProcessPoolExecutor:
        import torch

        # Spawned, because a fork has no GPU. Whatever ends this process lets go of the leash.
        spawn = get_context("spawn")
        follower, self._leash = spawn.Pipe(duplex=False)
        cores = max(1, (os.cpu_count() or 1) // self.jobs)
        return ProcessPoolExecutor(self.jobs, spawn, _enlist, (follower, torch.get_num_threads(), cores))


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that start meanwhile will not hear Ctrl-C, which a terminal sends to all: it is for this one alone."""
    heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)


def _enlist(leash: Connection, threads: int, cores: int) -> None:
    """A new process: it ends when the leash is let go of, and leaves the terminal to the one that started it."""
    threading.Thread(target=_follow, args=(leash,), daemon=True).start()
    progress.silence()
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(cores))
    import torch

    torch.set_num_threads(threads)


def _follow(leash: Connection) -> None:
    """At once, whatever is being done: a run that is cut short goes on from its last state."""
    leash.poll(None)
    os._exit(1)


def _do(function: Callable[[Argument], Result], argument: Argument) -> tuple[Result, str]:
    """The result and what was said meanwhile, which would tear the progress bar of the process that waits for it."""
    import torch

    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return function(argument), said.getvalue()
    except BaseException:
        sys.stderr.write(said.getvalue())
        raise
    finally:
        gc.collect()
        if torch.cuda.is_initialized():  # what this process would keep for its next job, another may need now
            torch.cuda.empty_cache()
