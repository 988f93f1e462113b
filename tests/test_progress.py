"""Rate and time left follow from what this process worked for, whatever was finished before."""

import re

import pytest

from robustvit import progress


def test_what_needed_no_work_does_not_count_for_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, *[10.0] * 20])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    pace = progress.Pace(1000, "images", done=500)
    assert (pace.share, pace.rate(), pace.left()) == (50, "", "--:--")
    pace.add(100, spared=200)
    assert (pace.share, pace.rate(), pace.left()) == (80, "10 images/s", "00:20")


def test_a_bar_shows_names_as_they_are(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    with progress.progress(8, "a[/bold]b", "images") as advance:
        advance(8, "[dim]note")
    shown = capsys.readouterr().err
    assert "a[/bold]b" in shown
    assert "[dim]note" in shown


def test_plain_lines_say_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    with progress.progress(8, "work", "images") as advance:
        advance(2, "fine")
    assert re.fullmatch(r"work: 25%, [\d,]+ images/s, 00:00 left, fine\n", capsys.readouterr().err)
