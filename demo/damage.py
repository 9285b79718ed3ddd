"""A bit on the disk flips: it is found, reported, never served, and the rest stays."""

from collections.abc import Iterator
from pathlib import Path

from roost import Corrupt, FileChannel

COUNT = 1_000
HARMED = 20_000


def play(folder: Path) -> Iterator[str]:
    """Damage one byte of a segment, and read around it."""
    with FileChannel(folder) as channel:
        channel.tx().send_many([b"reading-%06d " % n + b"." * 50 for n in range(COUNT)])
    segment = folder / "segment.0"
    content = bytearray(segment.read_bytes())
    content[HARMED] ^= 1
    segment.write_bytes(content)
    yield f"one bit at offset {HARMED:,} of {segment.name} was flipped"
    with FileChannel(folder) as channel:
        rx = channel.rx("reader")
        served, passed_over = 0, 0
        while True:
            try:
                if rx.try_recv() is None:
                    break
                served += 1
            except Corrupt as error:
                yield f"after {served} messages: Corrupt at offset {error.offset:,} of the file"
                passed_over += rx.skip_corrupt()
    assert served == COUNT - 1
    yield f"skip_corrupt passed over {passed_over} bytes; all other {served} messages were served"
