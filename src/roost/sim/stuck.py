"""Where tasks wait, in words: what a deadlock's message is made of."""

import asyncio
from collections.abc import Iterable
from types import CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any


def describe(name: str, tasks: Iterable[asyncio.Task[Any]]) -> list[str]:
    """Say for each task of the loop `name` what it runs and at which line it waits."""
    return [f"{name}: {task.get_name()} {_path(task.get_coro())}" for task in tasks]


def _path(awaitable: object) -> str:
    """Follow what awaits what, from the task's coroutine to the innermost one."""
    names = []
    line = 0
    while True:
        match awaitable:
            case CoroutineType(cr_code=code, cr_frame=frame, cr_await=inner):
                pass
            case GeneratorType(gi_code=code, gi_frame=frame, gi_yieldfrom=inner):
                pass
            case _:
                break
        names.append(code.co_qualname)
        line = _line(code, frame)
        awaitable = inner
    return f"{' > '.join(names)} at line {line}" if names else repr(awaitable)


def _line(code: CodeType, frame: FrameType | None) -> int:
    return code.co_firstlineno if frame is None or frame.f_lineno is None else frame.f_lineno
