"""Reads a damaged channel to its end, as a careful program does."""

import msgspec

from roost import Corrupt, FileChannel, Trimmed


class Read(msgspec.Struct, frozen=True):
    """What came out of a channel, and the errors on the way."""

    messages: list[bytes]
    errors: list[Corrupt | Trimmed]
    skipped: int


def read_all(channel: FileChannel[bytes], name: str = "reader") -> Read:
    """Receive everything, going on behind damage wherever it is met."""
    messages: list[bytes] = []
    errors: list[Corrupt | Trimmed] = []
    skipped = 0
    with channel.rx(name) as rx:
        while True:
            try:
                messages += rx.recv_many(1_000_000, 0)
            except (Corrupt, Trimmed) as error:
                errors.append(error)
                passed = rx.skip_corrupt()
                assert passed > 0, "the receiver does not get past the damage"
                skipped += passed
            except TimeoutError:
                return Read(messages, errors, skipped)
