"""The real workers are threads: what can only be said of those."""

import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.host.system import ThreadTasks

LONG_S = 30.0
KEEPING = """
import sys
from pathlib import Path
from roost.host.system import keep_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

kept = len(sys.argv) > 1 and keep_memory(256 << 20)
before = resident()
blocks = [bytearray(1 << 20) for _ in range(64)]
del blocks
print(int(kept), (resident() - before) >> 20)
"""


def job(event: threading.Event) -> Iterator[None]:
    yield
    event.set()


def names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def times_waited(name: str) -> int:
    """Tell how often a thread gave up the processor, which it must have done to have got it."""
    (thread,) = [thread for thread in threading.enumerate() if thread.name == name]
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


@pytest.fixture
def reported() -> Iterator[list[threading.ExceptHookArgs]]:
    reports: list[threading.ExceptHookArgs] = []
    before, threading.excepthook = threading.excepthook, reports.append
    yield reports
    threading.excepthook = before


def test_a_worker_is_a_thread_of_its_name_from_its_first_job_to_its_stop() -> None:
    worker = ThreadTasks().worker("a name of its own")
    done = threading.Event()
    assert "a name of its own" not in names()

    worker.start(job(done))

    assert done.wait(LONG_S)
    assert "a name of its own" in names()
    worker.stop()
    assert "a name of its own" not in names()


def test_an_idle_worker_never_wakes() -> None:
    idle, other = ThreadTasks().worker("idle"), ThreadTasks().worker("other")
    first, second = threading.Event(), threading.Event()
    idle.start(job(threading.Event()), delay_s=LONG_S)
    other.start(job(first), delay_s=0.05)
    assert first.wait(LONG_S)
    before = times_waited("idle")

    other.start(job(second), delay_s=0.1)

    assert second.wait(LONG_S)
    # One that looked each millisecond would have waited about 100 times more.
    assert times_waited("idle") <= before + 3
    idle.stop()
    other.stop()


def test_a_job_that_fails_is_reported_and_ends_alone(
    reported: list[threading.ExceptHookArgs],
) -> None:
    worker = ThreadTasks().worker("failing")
    done = threading.Event()

    def fail() -> Iterator[None]:
        yield
        raise LookupError("planted")

    worker.start(fail())
    worker.start(job(done))

    assert done.wait(LONG_S)
    worker.stop()
    assert [str(report.exc_value) for report in reported] == ["planted"]
    assert [report.thread.name for report in reported if report.thread] == ["failing"]


def test_an_idle_worker_keeps_no_finished_job_alive() -> None:
    class Thing:
        """Something that can be referred to weakly."""

    worker = ThreadTasks().worker("forgetful")
    gone, done = threading.Event(), threading.Event()

    def run(thing: Thing) -> Iterator[None]:
        weakref.finalize(thing, gone.set)
        yield

    worker.start(run(Thing()))
    worker.start(job(done))

    assert gone.wait(LONG_S)
    worker.stop()


def test_what_is_freed_is_kept_for_what_comes() -> None:
    def freed(*arguments: str) -> list[int]:
        command = [sys.executable, "-c", KEEPING, *arguments]
        return [int(word) for word in subprocess.check_output(command, timeout=LONG_S).split()]

    assert freed()[1] < 16
    kept, resident_mib = freed("keep")
    assert kept == 1
    assert resident_mib > 48
