"""Jobs beside each other: what they are given, what they say, and how they end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

import psutil
import pytest
import torch

from robustvit.crew import Crew
from robustvit.errors import UserError
from robustvit.progress import progress


@pytest.fixture(scope="module")
def two() -> Iterator[Crew]:
    with Crew(2) as crew:
        yield crew


def place(number: int) -> tuple[int, int, int]:
    return number, os.getpid(), torch.get_num_threads()


def talk(number: int) -> int:
    with progress(1, "a bar of its own") as advance:
        advance(1, "")
        print("too little to compile for", file=sys.stderr)
    return number


def refuse_or_sleep(seconds: float) -> None:
    if not seconds:
        raise UserError("a model: batch_size: 0; accepted: 1 or more")
    time.sleep(seconds)


def leave(number: int) -> None:
    os._exit(number)


def test_results_come_in_order_from_processes_with_the_threads_of_this_one(two: Crew) -> None:
    numbers, processes, threads = zip(*two.all(place, range(6), "done"), strict=True)
    assert numbers == tuple(range(6))
    assert os.getpid() not in processes
    assert len(set(processes)) <= 2
    assert set(threads) == {torch.get_num_threads()}


def test_what_jobs_say_is_said_once_and_their_bars_are_not_shown(two: Crew, capfd: pytest.CaptureFixture[str]) -> None:
    assert two.all(talk, [1, 2, 3], "done") == [1, 2, 3]
    assert capfd.readouterr().err == "too little to compile for\n"


def test_one_job_at_a_time_or_one_in_all_is_done_here(two: Crew) -> None:
    with Crew() as alone:
        assert [process for _, process, _ in alone.all(place, [1, 2], "done")] == [os.getpid()] * 2
    assert two.all(place, [1], "done")[0][1] == os.getpid()
    assert two.all(place, [], "done") == []


def test_the_first_error_is_raised_as_it_is_and_ends_the_others() -> None:
    started, before = time.monotonic(), set(_workers(os.getpid()))
    with pytest.raises(UserError, match=r"^a model: batch_size: 0; accepted: 1 or more$"), Crew(2) as crew:
        crew.all(refuse_or_sleep, [300, 0, 300], "done")
    assert time.monotonic() - started < 60
    assert set(_workers(os.getpid())) == before


def test_a_process_that_is_gone_says_what_to_do() -> None:
    with pytest.raises(UserError, match=r"jobs: a process ended before its work did.*fewer --jobs"), Crew(2) as crew:
        crew.all(leave, [3, 3], "done")


@pytest.mark.parametrize("jobs", [0, -2])
def test_fewer_than_one_is_an_error(jobs: int) -> None:
    with pytest.raises(UserError, match=f"jobs: {jobs}; accepted: 1 or more"):
        Crew(jobs)


def test_a_crew_is_not_for_each_process_of_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="one or the other"):
        Crew(2)
    Crew(1)


ASLEEP = "import time; from robustvit.crew import Crew\nwith Crew(2) as crew: crew.all(time.sleep, [300, 300], 'done')"


@pytest.mark.parametrize(
    ("how", "after"), [(signal.SIGINT, 0.0), (signal.SIGINT, 3.0), (signal.SIGKILL, 3.0)], ids=["early", "Ctrl-C", "killed"]
)
def test_its_processes_end_with_the_one_that_started_them(how: signal.Signals, after: float) -> None:
    heeded = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # which a shell's background jobs are started without
    main = subprocess.Popen(
        [sys.executable, "-c", ASLEEP], stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heeded
    )
    started = time.monotonic()
    while len(workers := _workers(main.pid)) < 2:
        assert time.monotonic() - started < 60
        time.sleep(0.1)
    time.sleep(after)
    if how == signal.SIGINT:  # a terminal's goes to all
        os.killpg(main.pid, how)
    else:
        main.send_signal(how)
    _, err = main.communicate(timeout=30)
    assert main.returncode == -how
    assert err.count("Traceback") == (how == signal.SIGINT)  # this process's own
    assert not psutil.wait_procs(workers, timeout=10)[1]


def _workers(parent: int) -> list[psutil.Process]:
    children = psutil.Process(parent).children()
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]
