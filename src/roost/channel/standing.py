"""How an open channel stands: sound, failed, or closed; and the one lock that guards it.

The promise: after a failed write or sync nothing is acknowledged any more, and whoever asks hears
why and what to do. A full disk is no failure.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from roost.errors import Closed, Corrupt, Unavailable, Unknown
from roost.host.metrics import ChannelMetrics

AGAIN: Final = "Close the channel, open it again, and look at what is there."


class Standing:
    """What everybody asks before doing anything.

    Methods are called with the lock held, but for `fail` and the checks of those who wait.
    """

    def __init__(
        self, folder: Path, *, failed: Callable[[], None], metrics: ChannelMetrics
    ) -> None:
        self.lock: Final = Lock()
        self.folder: Final = folder
        self.metrics: Final = metrics
        self.failure = ""
        self.closed = False
        self._failed: Final = failed

    def check_open(self) -> None:
        """Refuse what only an open channel can do."""
        if self.closed:
            raise Closed(f"the channel {self.folder} was closed")

    def check_sending(self) -> None:
        """Refuse a send, of which nothing was done yet."""
        self.check_open()
        if self.failure:
            raise Unavailable(
                f"{self.folder} takes no more messages: {self.failure}. Nothing was sent; close "
                "the channel and open it again."
            )

    def check_settling(self, what: str) -> None:
        """Raise `Unknown` if what somebody waits for will never be known."""
        if self.failure:
            raise Unknown(
                f"{what} may or may not be durable in {self.folder}: {self.failure}. {AGAIN}"
            )

    def check_arriving(self) -> None:
        """Raise if nothing will ever arrive any more."""
        if self.failure:
            raise Unavailable(
                f"nothing more arrives in {self.folder}: {self.failure}. Close the channel and "
                "open it again."
            )

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Fail the channel for a write to the file `name` that may have been done in part."""
        try:
            yield
        except OSError as error:
            if error.filename is None:  # the kernel knows the page, not the file
                error.filename = str(self.folder / name)
            self.fail_locked(error)
            raise Unknown(
                f"it may or may not have been done in {self.folder}: {self.failure}. {AGAIN}"
            ) from error

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Say that a read failed, and count damage; nothing was moved by either."""
        try:
            yield
        except Corrupt:
            self.metrics.corrupt_reads += 1
            raise
        except OSError as error:
            raise Unavailable(
                f"{self.folder} cannot be read now: {error}. No message was taken; try again."
            ) from error

    def fail(self, error: OSError) -> None:
        """Stop acknowledging: a write or a sync failed, and what it was about is not known."""
        with self.lock:
            self.fail_locked(error)

    def fail_locked(self, error: OSError) -> None:
        """Do as `fail` does, for a caller that holds the lock."""
        if not self.failure:
            self.failure = f"writing to the disk failed ({error})"
        self._failed()
