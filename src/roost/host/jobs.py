"""Lets a task wait for a job of a worker: the way between an event loop and its workers."""

import asyncio
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TypeVar

from roost.host.tasks import Worker

T = TypeVar("T")


def begin(worker: Worker, job: Generator[None, None, T]) -> "asyncio.Future[T]":
    """Give a job to a worker, and a future of what it returns or raises."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def steps() -> Iterator[None]:
        try:
            result = yield from job
        except Exception as error:  # noqa: BLE001  whoever waits must hear of any failure
            outcome: T | Exception = error
        else:
            outcome = result
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, done, outcome)

    worker.start(steps())
    return done


def _settle(done: "asyncio.Future[T]", outcome: T | Exception) -> None:
    if done.done():  # nobody waits any more
        return
    if isinstance(outcome, Exception):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)
