"""Takes messages as a named receiver and writes them down.

The promise: a message is acknowledged only once the operating system has it on our output. So
whatever ends the command (a signal, a pipe whose reader has gone), what was not written comes
again, and at most what was written last comes twice.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

import msgspec

from roost.channel.channel import MESSAGE_BYTES_LIMIT, FileChannel
from roost.channel.receiver import Receiver
from roost.channel.view import View
from roost.cli.ending import said
from roost.cli.framing import Write
from roost.cli.machine import view
from roost.cli.pipes import Pipes
from roost.cli.waiting import Patience
from roost.errors import Corrupt, Unavailable
from roost.host.disk import Held
from roost.segments.format import FRAME_BYTES
from roost.types import Durability

BATCH_COUNT: Final = 1000
BATCH_BYTES: Final = 1 << 20


class Wanted(msgspec.Struct, frozen=True):
    """Whose messages are taken, how many at most, and what is done about damage."""

    receiver: str
    start: int | str
    count_max: int | None
    skip_corrupt: bool


class Receiving:
    """One run of `recv`."""

    def __init__(
        self,
        path: Path,
        wanted: Wanted,
        *,
        pipes: Pipes,
        write: Write,
        say: Callable[[str], None],
    ) -> None:
        self._path: Final = path
        self._wanted: Final = wanted
        self._pipes: Final = pipes
        self._write: Final = write
        self._say: Final = say
        self._view: Final[View] = view(path)
        self._left = wanted.count_max
        self._position: int | None = None
        self._held: Unavailable | None = None

    def run(self, patience: Patience | None) -> bool:
        """Take what is there, and wait for more with patience; False if the time ran out."""
        with self._view:
            if patience is None:
                self._take()
                self._fail_if_held()
                return True
            while self._left != 0:
                if not patience.until(self._take):
                    self._fail_if_held()
                    return self._left is None
                patience.renew()
            return True

    def _fail_if_held(self) -> None:
        if self._held is not None:
            raise self._held

    def _take(self) -> bool:
        """Take what is there; False if there is nothing, or the folder is held by another."""
        if self._position is not None:
            self._view.refresh()
            if self._view.visible <= self._position:
                return False
        before, self._held = self._held, None
        try:
            channel = FileChannel(
                self._path,
                # Who only takes leaves the mode to those who send.
                durability=cast("Durability", self._view.durability or "fsync"),
                message_bytes_max=MESSAGE_BYTES_LIMIT,
                create=False,
            )
        except Unavailable as error:
            if not isinstance(error.__cause__, Held):
                raise
            self._held = before if before is not None else error
            return False
        with channel:
            rx = channel.rx(self._wanted.receiver, start=self._wanted.start, auto_ack=False)
            before_position = rx.position
            self._drain(rx)
            self._position = rx.position
        return self._position != before_position

    def _drain(self, rx: Receiver[bytes]) -> None:
        while self._left != 0:
            count_max = BATCH_COUNT if self._left is None else min(self._left, BATCH_COUNT)
            try:
                payloads = rx.recv_many(count_max, timeout=0, bytes_max=BATCH_BYTES)
            except TimeoutError:
                return
            except Corrupt as error:
                if not self._wanted.skip_corrupt:
                    raise
                self._say(f"{said(error)} Passed over {rx.skip_corrupt()} bytes.")
                continue
            self._pipes.write(self._framed(rx.position, payloads))
            rx.ack(len(payloads))
            if self._left is not None:
                self._left -= len(payloads)

    def _framed(self, position: int, payloads: list[bytes]) -> bytes:
        framed = []
        for payload in payloads:
            framed.append(self._write(position, payload))
            position += FRAME_BYTES + len(payload)
        return b"".join(framed)
