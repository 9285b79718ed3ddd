"""Sends what was given or read, batch by batch, and tells how far it came, however it ends."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

from roost.channel.channel import FileChannel
from roost.cli.progress import Progress
from roost.cli.waiting import Patience
from roost.cli.words import counted
from roost.errors import Unavailable
from roost.host.disk import Held
from roost.types import Durability


class Sending:
    """One run of `send`."""

    def __init__(
        self,
        path: Path,
        *,
        durability: Durability,
        compression: str | None,
        segment_bytes: int,
        message_bytes_max: int,
    ) -> None:
        self._path: Final = path
        self._durability: Final[Durability] = durability
        self._compression: Final = compression
        self._segment_bytes: Final = segment_bytes
        self._message_bytes_max: Final = message_bytes_max
        self._channel: FileChannel[bytes] | None = None
        self._held: Unavailable | None = None
        self._sent = 0
        self._skipped = 0

    def run(
        self,
        batches: Iterable[list[bytes]],
        *,
        patience: Patience,
        progress: Progress,
        all_bytes: int,
    ) -> None:
        """Send all batches; `all_bytes` is how long the input is, or 0."""
        channel = self._opened(patience)
        with channel:
            try:
                with progress:
                    self._send(channel, batches, progress, all_bytes)
            finally:
                self._tell(channel.stat().tail)

    def _opened(self, patience: Patience) -> FileChannel[bytes]:
        if not patience.until(self._open):
            assert self._held is not None, "it was not opened, for no reason"
            raise self._held
        assert self._channel is not None, "opened, and not there"
        return self._channel

    def _open(self) -> bool:
        """Open the channel; False if another process has it open."""
        try:
            self._channel = FileChannel(
                self._path,
                durability=self._durability,
                compression=self._compression,
                segment_bytes=self._segment_bytes,
                message_bytes_max=self._message_bytes_max,
            )
        except Unavailable as error:
            if not isinstance(error.__cause__, Held):
                raise
            self._held = error
            return False
        return True

    def _send(
        self,
        channel: FileChannel[bytes],
        batches: Iterable[list[bytes]],
        progress: Progress,
        all_bytes: int,
    ) -> None:
        tx = channel.tx()
        done_bytes = 0
        for batch in batches:
            messages = [message for message in batch if message]
            self._skipped += len(batch) - len(messages)
            if messages:
                tx.send_many(messages)
                self._sent += len(messages)
                done_bytes += sum(map(len, messages)) + len(messages)
                progress.at(done_bytes, all_bytes)

    def _tell(self, end: int) -> None:
        if self._skipped:
            click.echo(
                f"skipped {counted(self._skipped, 'empty message')}: one without a byte cannot "
                "be sent",
                err=True,
            )
        click.echo(
            f"sent {counted(self._sent, 'message')}; the channel ends at position {end}",
            err=True,
        )
