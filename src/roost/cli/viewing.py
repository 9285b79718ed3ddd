"""Writes messages down that a view shows, and says what is in the way of the others."""

from collections.abc import Callable, Iterator
from typing import Final

from roost.channel.view import BATCH_COUNT, Message, View
from roost.cli.ending import said
from roost.cli.pipes import Pipes
from roost.cli.progress import Progress
from roost.errors import Corrupt, Trimmed

BATCH_BYTES: Final = 1 << 20


class Viewing:
    """One reading of a channel beside its owner."""

    def __init__(
        self, view: View, pipes: Pipes, *, skip_corrupt: bool, say: Callable[[str], None]
    ) -> None:
        self._view: Final = view
        self._pipes: Final = pipes
        self._skip_corrupt: Final = skip_corrupt
        self._say: Final = say

    def write_all(
        self,
        write: Callable[[Message], bytes],
        *,
        before: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Write what is there, up to a position if one is given."""
        begin = self._view.position
        for messages in self._batches(before):
            self._pipes.write(b"".join(map(write, messages)))
            if progress is not None:
                progress.at(self._view.position - begin, self._view.visible - begin)

    def _batches(self, before: int | None) -> Iterator[list[Message]]:
        while before is None or self._view.position < before:
            try:
                messages = self._view.take(BATCH_COUNT, bytes_max=BATCH_BYTES)
            except Trimmed:
                passed = self._view.pass_over()
                self._say(f"{passed} bytes were removed before they could be shown.")
                continue
            except Corrupt as error:
                if not self._skip_corrupt:
                    raise
                self._say(f"{said(error)} Passed over {self._view.pass_over()} bytes.")
                continue
            if not messages:
                return
            yield [message for message in messages if before is None or message.begin < before]
