"""What the worker writes: pieces of any size byte for byte, and no file that is half made."""

import errno
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from roost.journal.header import HEADER_BYTES, Header, encode_header
from roost.journal.plan import Part
from roost.journal.writer import JOINED_BYTES, LONG_BYTES, Writer
from roost.types import Position
from tests.unit.channel.disks import WatchedDisk, quick, refuse
from tests.unit.journal.lives import UUID

FILE_BYTES = 8 << 20


def finish(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


def header(number: int, begin: int) -> Header:
    return Header(
        uuid=UUID,
        number=number,
        begin=Position(begin),
        nonce=number,
        synced_before=Position(begin),
    )


def part(number: int, begin: int, at: int, pieces: list[bytes | memoryview]) -> Part:
    """Make what goes into a segment that begins at `begin`, from the position `at` on."""
    return Part(
        number=number,
        header=header(number, begin) if at == begin else None,
        offset=HEADER_BYTES + at - begin,
        begin=Position(at),
        end=Position(at + sum(map(len, pieces))),
        pieces=pieces,
    )


def segment(folder: Path, number: int) -> bytes:
    return (folder / f"{number:016d}.journal").read_bytes()


@pytest.mark.parametrize(
    "sizes",
    [
        [100],
        [100] * 5000,
        [LONG_BYTES],
        [48, LONG_BYTES - 1] * 20,
        [48, LONG_BYTES] * 20,
        [48, 1 << 20, 48, 1 << 20, 48, 5, 48, 1 << 20],
        [LONG_BYTES, 48] * 19,
        [JOINED_BYTES],
        [JOINED_BYTES - 1, 1, 1],
        [JOINED_BYTES // 2] * 3,
    ],
    ids=lambda sizes: f"{len(sizes)} of {max(sizes)}",
)
def test_pieces_of_any_size_stand_one_behind_the_other(tmp_path: Path, sizes: list[int]) -> None:
    rng = Random(1)
    first: list[bytes | memoryview] = [rng.randbytes(size) for size in sizes]
    second: list[bytes | memoryview] = [memoryview(rng.randbytes(size)) for size in sizes]
    writer = Writer(quick(), tmp_path, file_bytes=FILE_BYTES)
    middle = sum(sizes)

    finish(writer.make(1))
    finish(writer.write([part(1, 0, 0, first)], sync=True))
    finish(writer.write([part(1, 0, middle, second)], sync=True))
    finish(writer.finish())

    written = encode_header(header(1, 0)) + b"".join(first) + b"".join(second)
    assert segment(tmp_path, 1) == written


def test_a_segment_is_allocated_whole_and_cut_to_its_records_when_it_is_left(
    tmp_path: Path,
) -> None:
    writer = Writer(quick(), tmp_path, file_bytes=FILE_BYTES)
    finish(writer.make(1))
    finish(writer.write([part(1, 0, 0, [b"one"])], sync=True))
    finish(writer.make(2))
    assert len(segment(tmp_path, 1)) == FILE_BYTES

    finish(writer.write([part(1, 0, 3, [b"two"]), part(2, 6, 6, [b"three"])], sync=True))

    assert segment(tmp_path, 1) == encode_header(header(1, 0)) + b"onetwo"
    assert segment(tmp_path, 2).rstrip(b"\0") == encode_header(header(2, 6)) + b"three"
    finish(writer.make(3))
    finish(writer.finish())
    assert len(segment(tmp_path, 2)) == HEADER_BYTES + 5
    assert sorted(path.name[15:] for path in tmp_path.iterdir()) == ["1.journal", "2.journal"]


def test_things_are_done_in_the_order_in_which_they_have_to_be_durable(tmp_path: Path) -> None:
    done: list[str] = []
    disk = quick()
    writer = Writer(disk, tmp_path, file_bytes=FILE_BYTES)
    finish(writer.make(1))
    finish(writer.make(2))
    finish(writer.write([part(1, 0, 0, [b"one"])], sync=True))
    disk.watch = lambda operation, path: done.append(f"{operation} {path.name[15:]}".strip())

    finish(writer.write([part(1, 0, 3, [b"two"]), part(2, 6, 6, [b"three"])], sync=True))

    assert done == [
        "write 1.journal.making",
        "truncate 1.journal.making",
        "sync 1.journal.making",
        "write 2.journal.making",
        "sync 2.journal.making",
        "rename 2.journal",
        f"sync_folder {tmp_path.name[15:]}".strip(),
    ]


def test_much_that_is_short_is_not_joined_all_at_once(tmp_path: Path) -> None:
    disk = quick()
    writer = Writer(disk, tmp_path, file_bytes=FILE_BYTES)
    finish(writer.make(1))
    writes: list[str] = []
    disk.watch = lambda operation, _: writes.append(operation) if operation == "write" else None

    finish(writer.write([part(1, 0, 0, [b"x" * 1000] * 2000)], sync=True))

    assert len(writes) == 2_000_000 // JOINED_BYTES + 1


@pytest.mark.parametrize("operation", ["truncate", "allocate", "sync"])
def test_a_segment_that_cannot_be_made_leaves_nothing(tmp_path: Path, operation: str) -> None:
    disk = WatchedDisk(refuse(errno.ENOSPC, operation))
    writer = Writer(disk, tmp_path, file_bytes=FILE_BYTES)

    with pytest.raises(OSError, match="No space left"):
        finish(writer.make(1))

    assert list(tmp_path.iterdir()) == []
    disk.watch = None
    finish(writer.make(1))
    finish(writer.finish())


def test_what_an_earlier_process_left_of_a_segment_is_not_in_it(tmp_path: Path) -> None:
    (tmp_path / f"{1:016d}.journal.making").write_bytes(b"junk" * 1000)
    writer = Writer(quick(), tmp_path, file_bytes=FILE_BYTES)

    finish(writer.make(1))
    finish(writer.write([part(1, 0, 0, [b"one"])], sync=True))

    assert segment(tmp_path, 1).rstrip(b"\0") == encode_header(header(1, 0)) + b"one"
