"""A journal's folder with segments of any bytes, read back from any position.

The oracle knows the format from the document alone. Whatever the files hold: recovery ends, and
refuses only what claims to reach where no journal gets; every record that it gives stands in a
file at its place with checksums that hold; between them everything is reported or cut into
`salvage/`; a second run finds the same; and what is appended afterwards is given back.
"""

import struct
import zlib
from random import Random

from roost.errors import Corrupt
from roost.sim.disk import SimDisk
from roost.sim.faults import DiskFaults
from tests.fuzz.changes import any_bytes, any_number
from tests.unit.journal import bydocument
from tests.unit.journal.lives import FOLDER, SALVAGE, Read, read

# From where on records are wanted; then the files, each behind its number and length.
SETTINGS = "<Q"
FILE = "<QH"
HEADER = "<4sB3s16sQQQQ4sI"
HEADS = "<IIBBHIQQQQHBBIIQQ"
HEADS_BYTES = struct.calcsize(HEADS)
HEADER_BYTES = 64
# Where there is room for more behind whatever is claimed.
POSITION_TRIED_MAX = (1 << 61) - (1 << 40)
NUMBER_TRIED_MAX = 10**15
FINDINGS = {"torn", "corrupt", "foreign", "missing"}


def files_in(raw: bytes) -> dict[int, bytes]:
    """Take an input apart."""
    files: dict[int, bytes] = {}
    at = struct.calcsize(SETTINGS)
    while at + struct.calcsize(FILE) <= len(raw):
        number, size = struct.unpack_from(FILE, raw, at)
        at += struct.calcsize(FILE)
        if 0 < number < 10**16:
            files[number] = raw[at : at + size]
        at += size
    return files


def packed(replay_from: int, files: dict[int, bytes]) -> bytes:
    """Make an input."""
    parts = [struct.pack(FILE, number, len(whole)) + whole for number, whole in files.items()]
    return struct.pack(SETTINGS, replay_from) + b"".join(parts)


def segment(number: int, begin: int, count: int, *, zeros: int = 0) -> bytes:
    """Write a segment of groups of three records."""
    body, synced_before = b"", begin
    for n in range(count):
        if n % 3 == 0:
            synced_before = begin + len(body)
        payload = b"%d:" % n * (n * n % 7)
        body += bydocument.record(
            begin + len(body),
            bydocument.block(n % 3, n, payload) if n % 5 else bydocument.block(1, 0, b""),
            kind=1 if n % 5 else 2 + n // 5 % 3,
            synced_before=synced_before,
        )
    return bydocument.header(number, begin) + body + bytes(zeros)


def seeds() -> list[bytes]:
    """Make inputs to begin with."""
    first, second = segment(1, 0, 9), segment(2, len(segment(1, 0, 9)) - 64, 11, zeros=300)
    third = segment(3, len(first) + len(second) - 128 - 300, 4)
    return [
        packed(0, {1: first}),
        packed(0, {1: first, 2: second}),
        packed(300, {1: first, 2: second[:-300], 3: third}),
        packed(0, {1: first, 3: third}),
        packed(1000, {2: second}),
        packed(0, {}),
    ]


def mutate(raw: bytes, rng: Random) -> bytes:
    """Change the position asked for, a file, a header, a record, or anything."""
    files = files_in(raw)
    (replay_from,) = struct.unpack_from(SETTINGS, raw.ljust(8, b"\0"))
    if not files or rng.randrange(8) == 0:
        return any_bytes(raw, rng)
    number = rng.choice(sorted(files))
    whole = files[number]
    match rng.randrange(8):
        case 0:
            replay_from = rng.choice((0, len(whole), rng.randrange(3000), rng.getrandbits(64)))
        case 1:
            files[number] = any_bytes(whole, rng)
        case 2:
            files[rng.choice((number + 1, number + 2, rng.randrange(1, 6)))] = whole
        case 3:
            del files[number]
        case 4 | 5:
            files[number] = _changed_header(whole, rng)
        case _:
            files[number] = _changed_record(whole, rng)
    return packed(replay_from, files)


def _changed_header(whole: bytes, rng: Random) -> bytes:
    changed = any_number(whole, HEADER, rng)
    if rng.getrandbits(1):
        changed = changed[:60] + struct.pack("<I", zlib.crc32(changed[:60])) + changed[64:]
    return changed


def _changed_record(whole: bytes, rng: Random) -> bytes:
    """Change a number of a record's heads, with the checksum put right or not."""
    starts = [
        at
        for at in range(64, len(whole) - HEADS_BYTES)
        if whole[at : at + 4] == b"\x7e\x6f\x52\x6a"
    ]
    if not starts:
        return any_bytes(whole, rng)
    at = rng.choice(starts)
    heads = any_number(whole[at : at + HEADS_BYTES], HEADS, rng)
    if rng.getrandbits(1):
        seed = int.from_bytes(whole[40:44], "little")
        heads = heads[:4] + struct.pack("<I", zlib.crc32(heads[8:], seed)) + heads[8:]
    return whole[:at] + heads + whole[at + HEADS_BYTES :]


def check(raw: bytes) -> None:
    """Play one input."""
    files = files_in(raw)
    (replay_from,) = struct.unpack_from(SETTINGS, raw.ljust(8, b"\0"))
    disk = _disk_of(files)
    try:
        found = read(disk, replay_from=replay_from)
    except Corrupt:
        assert _files_of(disk) == files, "a folder that was refused was changed"
        return
    assert {finding.kind for finding in found.findings} <= FINDINGS
    _check_records(found, files, replay_from)
    _check_files(disk, files)
    again = read(disk, replay_from=replay_from)
    assert again.records == found.records
    assert again.opened == found.opened
    _check_more(disk, found, replay_from)


def _disk_of(files: dict[int, bytes]) -> SimDisk:
    disk = SimDisk(Random(0), DiskFaults(file_bytes_max=128 << 10))
    disk.make_folder(FOLDER)
    for number, whole in files.items():
        _put(disk, number, whole)
    return disk


def _put(disk: SimDisk, number: int, whole: bytes) -> None:
    file = disk.open(FOLDER / f"{number:016d}.journal", create=True)
    file.write_at(0, whole)
    file.close()


def _files_of(disk: SimDisk) -> dict[int, bytes]:
    files = {}
    for name in disk.names(FOLDER):
        file = disk.open(FOLDER / name, writable=False)
        files[int(name.partition(".")[0])] = file.read_at(0, file.size())
        file.close()
    return files


def _check_records(found: Read, files: dict[int, bytes], replay_from: int) -> None:
    """Each stands in a file, and what is between them is damage."""
    reached = replay_from
    for record in found.records:
        covered = reached
        for damage in found.damages:
            covered = max(covered, damage.stop) if damage.start <= covered else covered
        # What is asked for may begin in the midst of a record.
        assert covered >= record.position or reached == replay_from, "a hole that nobody tells of"
        assert record.position >= reached, "records overlap"
        assert any(_holds(whole, record.position, record.block) for whole in files.values())
        reached = record.position + 48 + len(record.block)
    assert found.opened.begin >= max(reached, replay_from)


def _holds(whole: bytes, position: int, block: bytes) -> bool:
    """Tell whether a file has a record of this block at this position."""
    if len(whole) < HEADER_BYTES:
        return False
    begin = int.from_bytes(whole[32:40], "little")
    at = HEADER_BYTES + position - begin
    record = whole[at : at + 48 + len(block)] if at >= HEADER_BYTES else b""
    if len(record) < HEADS_BYTES or record[48:] != block:
        return False
    seed = int.from_bytes(whole[40:44], "little")
    return (
        zlib.crc32(record[8:76], seed) == int.from_bytes(record[4:8], "little")
        and zlib.crc32(block[8:]) == int.from_bytes(block[4:8], "little")
        and int.from_bytes(record[16:24], "little") == position
    )


def _check_files(disk: SimDisk, files: dict[int, bytes]) -> None:
    """Nothing was changed but the last file, of which the tail was cut, and kept if it is not 0."""
    after = _files_of(disk)
    names = disk.names(SALVAGE) if "salvage" in disk.names(SALVAGE.parent) else []
    kept = []
    for name in names:
        file = disk.open(SALVAGE / name, writable=False)
        kept.append(file.read_at(0, file.size()))
        file.close()
    assert set(after) >= set(files) - {max(files, default=0)}
    for number, whole in files.items():
        left = after.get(number, b"")
        assert whole.startswith(left)
        assert left == whole or number >= max(after, default=0)
        lost = whole[len(left) :].rstrip(b"\0")
        assert not lost or lost in [each.rstrip(b"\0") for each in kept]


def _check_more(disk: SimDisk, found: Read, replay_from: int) -> None:
    """Where it goes on there is room for more, whatever was there before."""
    begin, number = found.opened.begin, found.opened.number
    if begin > POSITION_TRIED_MAX or number > NUMBER_TRIED_MAX:
        return
    more = bydocument.add(begin, 1, b"more", synced_before=begin)
    _put(disk, number, bydocument.header(number, begin) + more)

    later = read(disk, replay_from=replay_from)

    assert later.records[:-1] == found.records
    assert later.records[-1].position == begin
    assert later.opened.begin == begin + len(more)
    assert later.opened.number == number + 1
