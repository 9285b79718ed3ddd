"""The one tree of errors, sorted by what the caller does next.

    RoostError
    ├─ Retryable   nothing was decided: ask again, perhaps elsewhere
    │  ├─ Sealed       this ledger is closed for good; append to the one that follows it
    │  ├─ Throttled    too much is under way; slow down
    │  ├─ NoRoom       the disk or a quota is full; it works again when there is room
    │  └─ Unavailable  this object failed or is held by another; reopen it, or wait
    ├─ Unknown     it may or may not have happened: reconcile by position
    ├─ Fenced      a newer epoch owns this: stop, never retry
    ├─ Conflict    the state is not what the request expected
    ├─ Invalid     the request can never work: which field, what is allowed
    ├─ Missing     it does not exist
    │  ├─ NotFound
    │  ├─ Trimmed      it existed; `head` says where what is left begins
    │  └─ Compacted    so old a history is forgotten; list again, and go on from there
    ├─ Corrupt     stored bytes contradict their checksum: which file, which offset
    ├─ Closed      this object was closed
    └─ Denied      not allowed, or not known

A wait that runs out is the built-in `TimeoutError`. Each error says what happened, to what,
and what to do, and carries the file, offset or position involved as attributes.
"""

from typing import Final


class RoostError(Exception):
    """Any error that Roost raises on purpose."""


class Retryable(RoostError):
    """Nothing was decided; the same request may work later or elsewhere."""


class Sealed(Retryable):
    """The ledger is closed and `last` is its last entry; what follows it takes appends."""

    def __init__(self, message: str, *, ledger: int, last: int) -> None:
        super().__init__(message)
        self.ledger: Final = ledger
        self.last: Final = last


class Throttled(Retryable):
    """Too much is under way; the same request works once some of that is done."""


class NoRoom(Retryable):
    """There is no space for it; nothing was written, and it works again when there is room."""


class Unavailable(Retryable):
    """The object is held by somebody else, or failed and must be opened again."""


class Unknown(RoostError):
    """It may or may not have happened; look at the position before trying again."""


class Fenced(RoostError):
    """The ledger was fenced by `epoch`: whoever wrote to it before has to stop."""

    def __init__(self, message: str, *, ledger: int, epoch: int) -> None:
        super().__init__(message)
        self.ledger: Final = ledger
        self.epoch: Final = epoch


class Conflict(RoostError):
    """The state is not what the request expected; look at it before anything else."""


class Invalid(RoostError):
    """The request can never work; the message names the field and what is allowed."""


class Missing(RoostError):
    """What was asked for does not exist."""


class NotFound(Missing):
    """There is nothing of this name."""


class Trimmed(Missing):
    """It existed once; what is left begins at `head`."""

    def __init__(self, message: str, *, head: int) -> None:
        super().__init__(message)
        self.head: Final = head


class Compacted(Missing):
    """The store's history is forgotten up to revision `upto`: list again, and go on from there."""

    def __init__(self, message: str, *, upto: int) -> None:
        super().__init__(message)
        self.upto: Final = upto


class Corrupt(RoostError):
    """Stored bytes contradict their checksum; they are neither served nor removed."""

    def __init__(self, message: str, *, file: str, offset: int) -> None:
        super().__init__(message)
        self.file: Final = file
        self.offset: Final = offset


class Closed(RoostError):
    """The object was closed before or during the call."""


class Denied(RoostError):
    """Whoever asks may not do that, or is not known."""
