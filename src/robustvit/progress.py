"""Progress for loops of more than a few seconds: a bar with rate and time left, or plain lines when nobody watches."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

WIDE = 110  # columns of a terminal that holds all there is to say
EVERY = 10.0  # seconds between two plain lines
_SILENT = False


class Advance(Protocol):
    """So much more is finished; `spared` is what needed no work, which says nothing of the rate."""

    def __call__(self, count: int, note: str, spared: int = 0) -> None: ...


def unseen(count: int, note: str, spared: int = 0) -> None:
    """The Advance that nobody watches."""


def silence() -> None:
    """From now on nothing is shown by this process: another shows how far it is."""
    global _SILENT
    _SILENT = True


@contextmanager
def progress(total: int, what: str, unit: str = "images", done: int = 0, shown: bool = True) -> Iterator[Advance]:
    """Yields advance(count, note, spared); `done` were finished before, as after a resume."""
    pace = Pace(total, unit, done)
    if _SILENT or not shown:
        yield unseen
    elif sys.stderr.isatty():
        yield from _bar(pace, what)
    else:
        yield from _lines(pace, what)


class Pace:
    """How far it is, how fast it goes, and how long that still takes."""

    def __init__(self, total: int, unit: str, done: int) -> None:
        self.total, self.unit, self.finished = total, unit, done
        self.worked, self.started = 0, time.monotonic()

    def add(self, count: int, spared: int) -> None:
        self.worked += count
        self.finished += count + spared

    @property
    def share(self) -> float:
        return 100 * self.finished / max(1, self.total)

    def rate(self, unit: bool = True) -> str:
        """So many a second, or so many seconds each."""
        seconds = max(time.monotonic() - self.started, 1e-9)
        if not self.worked:
            return ""
        rate = self.worked / seconds
        return f"{rate:,.0f}{f' {self.unit}' if unit else ''}/s" if rate >= 1 else f"{1 / rate:,.0f} s each"

    def left(self) -> str:
        if not self.worked:
            return "--:--"
        seconds = round(max(0, self.total - self.finished) * (time.monotonic() - self.started) / self.worked)
        hours, minutes = divmod(seconds // 60, 60)
        return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes:02}:{seconds % 60:02}"


def _bar(pace: Pace, what: str) -> Iterator[Advance]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    cut = partial(Column, no_wrap=True, overflow="ellipsis")
    console = Console(stderr=True)
    wide = console.width >= WIDE
    columns = (
        TextColumn("[bold]{task.description}", table_column=cut(max_width=console.width // 3)),
        BarColumn(bar_width=24 if wide else 8),
        TextColumn("{task.percentage:>3.0f}%", table_column=cut(min_width=4)),
        TextColumn("[cyan]{task.fields[left]}", table_column=cut(min_width=5)),
        TextColumn("{task.fields[rate]}", table_column=cut()),
        TextColumn("[dim]{task.fields[note]}", table_column=cut(ratio=1)),
    )
    with Progress(*columns, console=console, expand=True) as bar:
        task = bar.add_task(escape(what), total=pace.total, completed=pace.finished, left=pace.left(), rate="", note="")

        def advance(count: int, note: str, spared: int = 0) -> None:
            pace.add(count, spared)
            bar.update(task, completed=pace.finished, left=pace.left(), rate=pace.rate(wide), note=escape(note))

        yield advance


def _lines(pace: Pace, what: str) -> Iterator[Advance]:
    printed = time.monotonic()

    def advance(count: int, note: str, spared: int = 0) -> None:
        nonlocal printed
        pace.add(count, spared)
        if time.monotonic() - printed >= EVERY:
            printed = time.monotonic()
            told = ", ".join(filter(None, (f"{pace.share:.0f}%", pace.rate(), f"{pace.left()} left", note)))
            print(f"{what}: {told}", file=sys.stderr, flush=True)

    yield advance
