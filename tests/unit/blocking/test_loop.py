"""A loop on a thread of its own: calls wait, but never longer than they were told to."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from roost.blocking.loop import LoopThread
from roost.errors import Closed, NotFound


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    found = LoopThread("tested")
    yield found
    found.close()


def named_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "tested"]


def test_what_is_done_there_is_returned_and_what_is_raised_there_is_raised(
    loop: LoopThread,
) -> None:
    async def where() -> str:
        return threading.current_thread().name

    async def fails() -> None:
        raise NotFound("nothing")

    assert loop.run(where, 30) == "tested"
    with pytest.raises(NotFound, match="nothing"):
        loop.run(fails, 30)


def test_who_runs_out_of_time_cancels_what_was_begun(loop: LoopThread) -> None:
    cancelled = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(TimeoutError):
        loop.run(forever, 0.01)

    assert cancelled.wait(30)


def test_threads_share_it(loop: LoopThread) -> None:
    async def number(of: int) -> int:
        await asyncio.sleep(0)
        return of

    found: list[int] = []
    threads = [
        threading.Thread(target=lambda of=of: found.append(loop.run(lambda: number(of), 30)))
        for of in range(20)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)

    assert sorted(found) == [*range(20)]


def test_a_closed_loop_leaves_no_thread_takes_nothing_and_may_be_closed_again() -> None:
    loop = LoopThread("tested")
    ended = threading.Event()

    async def stays() -> None:
        async def task() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        kept.append(asyncio.create_task(task()))
        await asyncio.sleep(0)

    kept: list[asyncio.Task[None]] = []
    loop.run(stays, 30)

    loop.close()
    loop.close()

    assert ended.is_set()
    assert named_threads() == []
    with pytest.raises(Closed):
        loop.run(stays, 30)
