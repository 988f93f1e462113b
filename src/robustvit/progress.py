"""Progress for loops of more than a few seconds: a bar with rate and time left, or plain lines when nobody watches."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

WIDE = 110  # columns of a terminal that holds all there is to say
Advance = Callable[[int, str], None]
_SILENT = False


def silence() -> None:
    """From now on nothing is shown by this process: another shows how far it is."""
    global _SILENT
    _SILENT = True


@contextmanager
def progress(total: int, what: str, unit: str = "images", done: int = 0, shown: bool = True) -> Iterator[Advance]:
    """Yields advance(count, note); `done` were finished before, as after a resume."""
    if _SILENT or not shown:
        yield lambda count, note: None
    elif sys.stderr.isatty():
        yield from _bar(total, what, unit, done)
    else:
        yield from _lines(total, what, unit, done)


def _bar(total: int, what: str, unit: str, done: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    cut = partial(Column, no_wrap=True, overflow="ellipsis")

    console = Console(stderr=True)
    columns = (
        TextColumn("[bold]{task.description}", table_column=cut(max_width=console.width // 3)),
        BarColumn(bar_width=24 if console.width >= WIDE else 8),
        TextColumn("{task.percentage:>3.0f}%", table_column=cut(min_width=4)),
        TimeRemainingColumn(compact=True, table_column=cut(min_width=8)),
        TextColumn("{task.fields[rate]}", table_column=cut()),
        TextColumn("[dim]{task.fields[note]}", table_column=cut(ratio=1)),
    )
    started = time.monotonic()
    with Progress(*columns, console=console, expand=True) as bar:
        task = bar.add_task(what, total=total, completed=done, rate="", note="")
        finished = 0

        def advance(count: int, note: str) -> None:
            nonlocal finished
            finished += count
            each = f" {unit}" if console.width >= WIDE else ""
            bar.update(task, advance=count, rate=_pace(finished, time.monotonic() - started, each), note=note)

        yield advance


def _lines(total: int, what: str, unit: str, done: int, every: float = 10.0) -> Iterator[Advance]:
    started = printed = time.monotonic()
    finished = 0

    def advance(count: int, note: str) -> None:
        nonlocal finished, printed
        finished += count
        now = time.monotonic()
        if now - printed >= every:
            printed = now
            rate = _pace(finished, now - started, f" {unit}")
            left = max(0, total - done - finished) * (now - started) / finished
            share = 100 * (done + finished) / total
            print(f"{what}: {share:.0f}%, {rate}, {left:.0f} s left  {note}", file=sys.stderr, flush=True)

    yield advance


def _pace(finished: int, seconds: float, unit: str) -> str:
    """So many a second, or so many seconds each."""
    rate = finished / max(seconds, 1e-9)
    return f"{rate:,.0f}{unit}/s" if rate >= 1 or not finished else f"{seconds / finished:,.0f} s each"
