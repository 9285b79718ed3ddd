"""What recovery makes of a folder: the torn is cut, the damaged stays, and the gone is told."""

import errno
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from roost.errors import Corrupt
from roost.journal.chain import Damage, Opened
from roost.sim.disk import SimDisk
from roost.types import EntryId, LedgerId, Position
from tests.unit.journal import bydocument
from tests.unit.journal.lives import FOLDER, HEALTHY, SALVAGE, Read, read
from tests.unit.journal.oddities import LongFileDisk, ScratchedDisk
from tests.unit.sim.disks import content, new_disk

PAYLOADS = [b"first", b"second", b"third", b"fourth"]
# Where the records of these payloads end.
ENDS = [81, 163, 244, 326]


def name(number: int) -> str:
    return f"{number:016d}.journal"


def put(disk: SimDisk, number: int, whole: bytes) -> Path:
    """Put a segment into the folder, durably."""
    disk.make_folder(FOLDER)
    file = disk.open(FOLDER / name(number), create=True)
    file.write_at(0, whole)
    file.sync()
    file.close()
    disk.sync_folder(FOLDER)
    return FOLDER / name(number)


def with_segments(*wholes: bytes, first: int = 1) -> SimDisk:
    """Make a disk with segments one behind the other."""
    disk = new_disk(faults=HEALTHY)
    disk.make_folder(FOLDER)
    for number, whole in enumerate(wholes, first):
        put(disk, number, whole)
    return disk


def group(
    *payloads: bytes, begin: int = 0, synced_before: int | None = None, zeros: int = 0
) -> bytes:
    """Write records of one group; what is synced is what was before them, unless it is said."""
    synced = begin if synced_before is None else synced_before
    return bydocument.adds(*payloads, begin=begin, synced_before=synced) + bytes(zeros)


def three() -> list[bytes]:
    """Write three segments of four records each."""
    end = ENDS[-1]
    return [
        bydocument.header(number, begin) + group(*PAYLOADS, begin=begin)
        for number, begin in ((1, 0), (2, end), (3, 2 * end))
    ]


def payloads(found: Read) -> list[bytes]:
    return [record.block[28:] for record in found.records]


def kinds(found: Read) -> list[str]:
    return [finding.kind for finding in found.findings]


def flip(disk: SimDisk, number: int, position: int, bit: int = 2) -> None:
    """Flip a bit, counted from the begin of a segment's records."""
    disk.rot(FOLDER / name(number), 64 + position, bit)


def salvaged(disk: SimDisk) -> dict[str, bytes]:
    if "salvage" not in disk.names(SALVAGE.parent):
        return {}
    return {kept: content(disk, SALVAGE / kept) for kept in disk.names(SALVAGE)}


# A folder that is in order


def test_a_new_folder_is_made_and_empty() -> None:
    disk = new_disk()

    found = read(disk)

    assert found.opened == Opened(number=1, begin=Position(0), segments=())
    assert (found.records, found.damages, found.findings, found.missing) == ([], [], [], False)
    assert disk.names(FOLDER) == []


def test_records_of_all_segments_come_in_order() -> None:
    found = read(with_segments(*three()))

    assert payloads(found) == PAYLOADS * 3
    assert [record.position for record in found.records] == [
        begin + at for begin in (0, 326, 652) for at in (0, *ENDS[:3])
    ]
    assert found.opened.number == 4
    assert found.opened.begin == 978
    assert (found.damages, found.findings, found.missing) == ([], [], False)


@pytest.mark.parametrize("replay_from", [0, 81, 300, 326, 400, 652, 977, 978])
def test_only_records_from_a_position_on_are_given(replay_from: int) -> None:
    disk = with_segments(*three())
    wanted = [record for record in read(disk).records if record.position >= replay_from]

    found = read(disk, replay_from=replay_from)

    assert found.records == wanted
    assert not found.missing
    assert found.opened == read(disk).opened


def test_segments_that_were_being_made_are_removed() -> None:
    disk = with_segments(*three())
    for made in (name(4) + ".making", name(3) + ".making"):
        disk.open(FOLDER / made, create=True).write_at(0, b"half")

    found = read(disk)

    assert disk.names(FOLDER) == [name(1), name(2), name(3)]
    assert found.findings == []


def test_other_files_stay_where_they_are() -> None:
    disk = with_segments(*three())
    disk.open(FOLDER / "notes", create=True).write_at(0, b"of an operator")

    assert read(disk).findings == []
    assert "notes" in disk.names(FOLDER)


# The tail


def test_a_torn_tail_is_cut_and_kept() -> None:
    torn = bydocument.add(ENDS[-1], 4, b"torn" * 20)[:100]
    whole = bydocument.header() + group(*PAYLOADS)
    disk = with_segments(whole + torn + bytes(900))

    found = read(disk)

    assert payloads(found) == PAYLOADS
    assert found.damages == []
    assert kinds(found) == ["torn"]
    assert found.opened.begin == ENDS[-1]
    assert content(disk, FOLDER / name(1)) == whole
    assert salvaged(disk) == {f"{name(1)}.at.{64 + ENDS[-1]}": torn}
    assert read(disk).findings == []


def test_zeros_behind_the_records_are_only_cut() -> None:
    whole = bydocument.header() + group(*PAYLOADS)
    disk = with_segments(whole + bytes(5000))

    found = read(disk)

    assert found.findings == []
    assert content(disk, FOLDER / name(1)) == whole
    assert salvaged(disk) == {}


def test_good_records_behind_a_hole_in_what_was_written_together_are_torn_too() -> None:
    body = bytearray(group(*PAYLOADS))
    body[ENDS[0] : ENDS[1]] = bytes(ENDS[1] - ENDS[0])
    disk = with_segments(bydocument.header() + bytes(body) + bytes(500))

    found = read(disk)

    assert payloads(found) == PAYLOADS[:1]
    assert found.damages == []
    assert found.opened.begin == ENDS[0]
    assert salvaged(disk) == {f"{name(1)}.at.{64 + ENDS[0]}": bytes(body[ENDS[0] :])}


def test_damage_below_what_a_later_record_calls_durable_stays_where_it_is() -> None:
    body = group(*PAYLOADS) + bydocument.add(ENDS[3], 4, b"later", synced_before=ENDS[3])
    disk = with_segments(bydocument.header() + body)
    flip(disk, 1, ENDS[0] + 20)
    before = content(disk, FOLDER / name(1))

    for _ in range(2):
        found = read(disk)

        assert payloads(found) == [b"first", b"third", b"fourth", b"later"]
        assert found.damages == [Damage(start=Position(ENDS[0]), stop=Position(ENDS[1]))]
        assert kinds(found) == ["corrupt"]
        assert found.opened.begin == ENDS[3] + 81
        assert found.opened.segments[0].damaged
        assert content(disk, FOLDER / name(1)) == before
        assert salvaged(disk) == {}


def test_of_damage_to_a_payload_it_is_known_whose_it_was() -> None:
    body = group(*PAYLOADS) + bydocument.add(ENDS[3], 4, b"later", synced_before=ENDS[3])
    disk = with_segments(bydocument.header() + body)
    flip(disk, 1, ENDS[1] + 78)

    (damage,) = read(disk).damages

    assert damage == Damage(
        start=Position(ENDS[1]),
        stop=Position(ENDS[2]),
        ledger=LedgerId(7),
        entry=EntryId(2),
    )


def test_a_good_head_proves_what_was_durable_though_its_payload_is_torn() -> None:
    later = bydocument.add(ENDS[3], 4, b"later" * 10, synced_before=ENDS[3])
    disk = with_segments(bydocument.header() + group(*PAYLOADS) + later[:90])
    flip(disk, 1, ENDS[0] + 20)

    found = read(disk)

    assert payloads(found) == [b"first", b"third", b"fourth"]
    assert len(found.damages) == 1
    assert kinds(found) == ["torn", "corrupt"]
    assert found.opened.begin == ENDS[3]


def test_a_tail_behind_damage_stays_since_it_may_hold_the_proof() -> None:
    body = bytearray(
        group(*PAYLOADS) + group(b"torn", b"proof", begin=ENDS[3], synced_before=ENDS[3])
    )
    body[ENDS[3] + 10] ^= 1
    body[ENDS[0] + 10] ^= 1
    disk = with_segments(bydocument.header() + bytes(body) + bytes(100))
    before = content(disk, FOLDER / name(1))

    for _ in range(3):
        found = read(disk)

        assert payloads(found) == [PAYLOADS[0], *PAYLOADS[2:]]
        assert kinds(found) == ["torn", "corrupt"]
        assert found.opened.begin == ENDS[3]
        assert content(disk, FOLDER / name(1)) == before
    put(disk, 2, bydocument.header(2, ENDS[3]) + group(b"next", begin=ENDS[3]))
    found = read(disk)
    assert payloads(found) == [PAYLOADS[0], *PAYLOADS[2:], b"next"]
    assert kinds(found) == ["corrupt"]


def test_a_bad_place_that_begins_below_and_ends_above_ends_where_durable_ended() -> None:
    written = group(b"x", b"y", begin=ENDS[3], synced_before=ENDS[3])
    body = bytearray(group(*PAYLOADS) + written)
    body[ENDS[2] : ENDS[3] + 77] = bytes(ENDS[3] + 77 - ENDS[2])
    disk = with_segments(bydocument.header() + bytes(body))

    found = read(disk)

    assert payloads(found) == PAYLOADS[:3]
    assert found.damages == [Damage(start=Position(ENDS[2]), stop=Position(ENDS[3]))]
    assert found.opened.begin == ENDS[3]
    assert salvaged(disk) == {}
    assert read(disk).records == found.records


def test_what_the_caller_has_stored_is_never_cut() -> None:
    disk = with_segments(bydocument.header() + group(*PAYLOADS))
    flip(disk, 1, ENDS[0] + 20)

    found = read(disk, replay_from=ENDS[2])

    assert payloads(found) == PAYLOADS[3:]
    assert found.damages == []
    assert kinds(found) == ["corrupt"]
    assert found.opened.begin == ENDS[3]


def test_a_flip_in_the_last_group_is_a_torn_tail_since_nothing_proves_more() -> None:
    body = group(*PAYLOADS)
    disk = with_segments(bydocument.header() + body)
    flip(disk, 1, ENDS[1] + 5)

    found = read(disk)

    assert payloads(found) == PAYLOADS[:2]
    assert found.damages == []
    assert len(salvaged(disk)) == 1


def test_what_is_kept_above_the_bound_is_durable_before_it_is_given() -> None:
    disk = with_segments(bydocument.header())
    file = disk.open(FOLDER / name(1))
    file.write_at(64, group(*PAYLOADS))

    assert payloads(read(disk)) == PAYLOADS

    disk.crash("none")
    assert payloads(read(disk)) == PAYLOADS


def test_what_a_failed_sync_left_in_memory_is_written_again() -> None:
    for seed in range(20):
        disk = new_disk(seed, HEALTHY)
        put(disk, 1, bydocument.header())
        file = disk.open(FOLDER / name(1))
        file.write_at(64, group(*[b"payload" * 100] * 8))
        disk.fail_next("sync", name(1), errno.EIO)
        with pytest.raises(OSError, match="EIO"):
            file.sync()
        disk.kill()

        given = read(disk).records

        assert len(given) == 8
        disk.crash("none")
        assert read(disk).records == given


def test_the_name_of_a_segment_is_durable_before_its_records_are_given() -> None:
    disk = new_disk(faults=HEALTHY)
    disk.make_folder(FOLDER)
    file = disk.open(FOLDER / name(1), create=True)
    file.write_at(0, bydocument.header() + group(*PAYLOADS))
    file.sync()

    assert payloads(read(disk)) == PAYLOADS

    disk.crash("none")
    assert payloads(read(disk)) == PAYLOADS


# Damage in segments that were sealed


def test_everything_in_a_segment_that_has_a_follower_was_durable() -> None:
    for position in (0, ENDS[0] + 50, ENDS[3] - 1):
        disk = with_segments(*three())
        flip(disk, 1, position)
        hit = sum(position >= end for end in ENDS)

        found = read(disk)

        assert payloads(found) == PAYLOADS[:hit] + PAYLOADS[hit + 1 :] + PAYLOADS * 2
        assert [(d.start, d.stop) for d in found.damages] == [((0, *ENDS)[hit], ENDS[hit])]
        assert salvaged(disk) == {}
        assert [segment.damaged for segment in found.opened.segments] == [True, False, False]


def test_a_sealed_segment_that_was_cut_is_damage_up_to_the_next_one() -> None:
    for size in (0, 64, 64 + 81, 64 + 100, 64 + 325):
        segments = three()
        segments[1] = segments[1][:size]
        left = sum(end <= size - 64 for end in ENDS)

        found = read(with_segments(*segments))

        assert payloads(found) == PAYLOADS + PAYLOADS[:left] + PAYLOADS
        assert min(damage.start for damage in found.damages) == 326 + (0, *ENDS)[left]
        assert max(damage.stop for damage in found.damages) == 652
        assert not found.missing
        assert found.opened.begin == 978


def test_bytes_behind_the_end_of_a_sealed_segment_do_not_count() -> None:
    segments = three()
    segments[0] += bytes(1000) + b"junk"

    found = read(with_segments(*segments))

    assert payloads(found) == PAYLOADS * 3
    assert found.damages == []


def test_damage_before_the_position_asked_for_is_nobodys_loss() -> None:
    disk = with_segments(*three())
    flip(disk, 1, 10)
    flip(disk, 2, 10)

    found = read(disk, replay_from=326 + ENDS[0])

    assert payloads(found) == PAYLOADS[1:] + PAYLOADS
    assert found.damages == []
    assert [segment.damaged for segment in found.opened.segments] == [False, True, False]


# Headers


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_flipped_bit_of_a_header_costs_its_segment_and_is_told(number: int) -> None:
    for bit in range(0, 512, 7):
        disk = with_segments(*three())
        flip(disk, number, bit // 8 - 64, bit % 8)
        before = content(disk, FOLDER / name(number))

        found = read(disk)

        assert payloads(found) == PAYLOADS * 2
        assert [(d.start, d.stop) for d in found.damages] == [(326 * (number - 1), 326 * number)]
        assert kinds(found) == ["corrupt"]
        assert not found.missing
        assert found.opened.begin == 978
        assert found.opened.number == 4
        assert found.opened.segments[number - 1].damaged
        assert content(disk, FOLDER / name(number)) == before


@pytest.mark.parametrize("left", [b"", b"\0" * 64, b"\0" * 5000, b"RoJo\x01torn", b"x" * 64])
def test_a_last_segment_with_nothing_but_a_torn_header_was_never_made(left: bytes) -> None:
    disk = with_segments(*three(), left)

    found = read(disk)

    assert payloads(found) == PAYLOADS * 3
    assert found.damages == []
    assert kinds(found) == (["torn"] if left.strip(b"\0") else [])
    assert found.opened.number == 4
    assert name(4) not in disk.names(FOLDER)
    assert [kept.rstrip(b"\0") for kept in salvaged(disk).values()] == [
        kept for kept in [left.rstrip(b"\0")] if kept
    ]
    disk.crash("none")
    assert name(4) not in disk.names(FOLDER)


def test_a_last_segment_with_a_bad_header_and_something_behind_it_stays() -> None:
    disk = with_segments(*three(), b"x" * 64 + bytes(500) + b"y")

    found = read(disk)

    assert payloads(found) == PAYLOADS * 3
    assert found.damages == [Damage(start=Position(978), stop=Position(978 + 501))]
    assert found.opened.begin == 978 + 501
    assert found.opened.number == 5
    assert disk.names(FOLDER)[-1] == name(4)


def test_only_one_segment_is_taken_for_one_that_was_never_made() -> None:
    disk = with_segments(*three(), b"", b"")

    for _ in range(2):
        found = read(disk)

        assert payloads(found) == PAYLOADS * 3
        assert kinds(found) == ["corrupt", "corrupt"]
        assert found.opened.number == 6


def test_a_segment_of_another_node_is_left_alone_and_told() -> None:
    segments = three()
    segments[1] = bydocument.header(2, 326, uuid=b"another node....") + segments[1][64:]
    disk = with_segments(*segments)

    found = read(disk)

    assert payloads(found) == PAYLOADS * 2
    assert found.damages == [Damage(start=Position(326), stop=Position(652))]
    assert kinds(found) == ["foreign"]
    assert content(disk, FOLDER / name(2)) == segments[1]


def test_a_segment_under_the_name_of_another_does_not_count() -> None:
    segments = three()
    disk = with_segments(segments[0], segments[0], segments[2])

    found = read(disk)

    assert payloads(found) == PAYLOADS * 2
    assert found.damages == [Damage(start=Position(326), stop=Position(652))]


@pytest.mark.parametrize(
    ("number", "begin"), [(10**16 - 1, 0), (1, 1 << 62)], ids=["number", "position"]
)
def test_a_folder_that_claims_what_no_journal_reaches_is_not_touched(
    number: int, begin: int
) -> None:
    disk = with_segments(bydocument.header(number, begin), first=number)
    disk.open(FOLDER / (name(3) + ".making"), create=True)

    with pytest.raises(Corrupt, match="Nothing was changed; restore its files"):
        read(disk)

    assert len(disk.names(FOLDER)) == 2


# What is gone


@pytest.mark.parametrize("gone", [{1}, {2}, {1, 2}, {1, 3}, {1, 2, 3}])
def test_a_segment_that_is_gone_is_told_with_its_place(gone: set[int]) -> None:
    disk = with_segments(*three())
    for number in gone:
        disk.unlink(FOLDER / name(number))

    found = read(disk, replay_from=10)

    assert found.missing
    assert "missing" in kinds(found)
    assert len(found.records) == 4 * (3 - len(gone)) - (1 not in gone)
    lost = {position for d in found.damages for position in range(d.start, d.stop)}
    assert lost >= {
        position
        for number in gone
        for position in range(326 * (number - 1), 326 * number)
        if position >= 10 and max({1, 2, 3} - gone, default=0) > number
    }


def test_a_last_segment_that_is_gone_is_told_if_the_caller_had_more() -> None:
    disk = with_segments(*three()[:2])

    found = read(disk, replay_from=700)

    assert found.missing
    assert found.opened.begin == 700
    assert found.records == []


def test_segments_that_the_caller_does_not_need_may_be_gone() -> None:
    disk = with_segments(*three())
    disk.unlink(FOLDER / name(1))

    found = read(disk, replay_from=326)

    assert not found.missing
    assert payloads(found) == PAYLOADS * 2


# A disk that does not do as it should


def test_what_cannot_be_read_is_damage_and_is_neither_cut_nor_written_over() -> None:
    body = group(*[b"p" * 1000] * 12)
    disk = with_segments(bydocument.header() + body + bytes(300))
    scratched = ScratchedDisk(disk, name(1), range(4096, 8192))
    hit = {
        number
        for number in range(12)
        if 64 + (number + 1) * 1076 > 4096 and 64 + number * 1076 < 8192
    }

    found = read(scratched)

    assert [record.position // 1076 for record in found.records] == [*({*range(12)} - hit)]
    assert [(d.start, d.stop) for d in found.damages] == [
        (3 * 1076, 4 * 1076),
        (4 * 1076, 8 * 1076),
    ]
    assert kinds(found) == ["unreadable", "corrupt", "corrupt"]
    assert salvaged(disk) == {}
    assert scratched.written == 0
    assert content(disk, FOLDER / name(1)) == bydocument.header() + body + bytes(300)
    assert len(read(disk).records) == 12


def test_a_header_that_cannot_be_read_is_no_reason_to_put_its_segment_aside() -> None:
    disk = with_segments(*three())

    found = read(ScratchedDisk(disk, name(3), range(10)))

    assert payloads(found) == PAYLOADS * 2
    assert kinds(found) == ["unreadable"]
    assert found.opened.begin == 978
    assert payloads(read(disk)) == PAYLOADS * 3


@pytest.mark.parametrize("operation", ["names", "open", "size", "sync_folder"])
def test_other_errors_of_the_disk_end_recovery_and_harm_nothing(operation: Any) -> None:
    disk = with_segments(*three())
    disk.fail_next(operation, "", errno.EMFILE)

    with pytest.raises(OSError, match="EMFILE"):
        read(disk)

    assert payloads(read(disk)) == PAYLOADS * 3


@pytest.mark.parametrize("operation", ["write", "sync", "truncate", "sync_folder"])
def test_a_recovery_that_fails_while_it_writes_can_be_tried_again(operation: Any) -> None:
    torn = bydocument.add(ENDS[-1], 4, b"torn" * 20)[:100]
    for path in ("journal", "salvage", f"at.{64 + ENDS[-1]}"):
        disk = with_segments(bydocument.header() + group(*PAYLOADS) + torn)
        disk.fail_next(operation, path, errno.EIO)

        with suppress(OSError):
            read(disk)
        disk.crash()

        assert payloads(read(disk)) == PAYLOADS
        assert torn in salvaged(disk).values()


def test_a_tail_is_kept_beside_what_was_kept_before() -> None:
    disk = with_segments(bydocument.header() + b"torn")
    disk.make_folder(SALVAGE)
    disk.open(SALVAGE / f"{name(1)}.at.64", create=True).write_at(0, b"older")

    read(disk)

    assert salvaged(disk) == {f"{name(1)}.at.64": b"older", f"{name(1)}.at.64.1": b"torn"}


def test_a_file_that_is_longer_than_any_segment_is_not_read() -> None:
    disk = with_segments(*three()[:2])
    huge = LongFileDisk(disk, name(2), 1 << 50)

    found = read(huge)

    assert payloads(found) == PAYLOADS
    assert found.opened.begin == 326 + (1 << 30) - 64
    assert [(d.start, d.stop) for d in found.damages] == [(326, found.opened.begin)]
