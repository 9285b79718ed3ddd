"""Fan-out: every receiver has a position of its own, kept over restarts."""

from collections.abc import Iterator
from pathlib import Path

from roost import FileChannel


def play(folder: Path) -> Iterator[str]:
    """Let two receivers read at their own pace, one of them acknowledging by hand."""
    with FileChannel(folder, codec="json") as channel:
        channel.tx().send_many([{"order": number} for number in range(5)])
        billing, audit = channel.rx("billing"), channel.rx("audit", auto_ack=False)
        yield f"billing takes two: {billing.recv()}, {billing.recv()}"
        taken = audit.recv_many(3)
        audit.ack(1)
        yield f"audit takes {len(taken)}, acknowledges 1, and {audit.unack_count} are open"
    with FileChannel(folder, codec="json") as channel:
        yield f"after a restart billing goes on with {channel.rx('billing').recv()}"
        again = channel.rx("audit", auto_ack=False).recv_many(10)
        yield f"and audit gets what it had not acknowledged again: {again[0]} to {again[-1]}"
