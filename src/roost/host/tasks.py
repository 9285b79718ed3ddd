"""Work beside the caller: jobs that may block, cut into steps.

A job is an iterator; between two of its steps anything else may happen, and the simulator makes
sure that it does. So a job holds no lock over a `yield`, and re-checks what it knew before one.
"""

from collections.abc import Iterator
from typing import Protocol


class Worker(Protocol):
    """Runs jobs one after the other, off the caller's thread and off every event loop."""

    def start(self, steps: Iterator[None], *, delay_s: float = 0.0) -> None:
        """Run a job to its end once `delay_s` has passed, after the jobs that are ready before it.

        A job handles its own errors; one that escapes is a defect and is reported loudly. Once
        `stop` was called, a job without delay raises `Closed`, and one with a delay is dropped
        as if it had been waiting (so a job that repeats itself needs no care at the end).
        """

    def stop(self) -> None:
        """Run what is ready, drop what is still delayed, and end. Stopping twice does nothing.

        A job may stop its own worker: then the call returns at once, and the worker ends after
        that job and the ready ones behind it.
        """


class Tasks(Protocol):
    """Makes workers."""

    def worker(self, name: str) -> Worker:
        """Make a worker of its own; it costs nothing before its first job."""
