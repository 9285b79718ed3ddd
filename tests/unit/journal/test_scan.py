"""Records, and the walk over them: good ones come back whole, bad ones never, and none is lost."""

import zlib
from random import Random

import pytest

from roost.journal.chain import Damage
from roost.journal.header import HEADER_BYTES, Header, decode_header
from roost.journal.record import ADD, CLOSE, DELETE, FENCE, Record, encode_head
from roost.journal.scan import Walk, judge_tail
from roost.types import EntryId, Epoch, LedgerId, Position
from tests.unit.journal import bydocument

SEED = bydocument.NONCE & 0xFFFFFFFF
PAYLOADS = [b"one", b"", b"x" * 300, b"the fourth", b"\0" * 40, b"last"]


def segment(*payloads: bytes, begin: int = 0, zeros: int = 0) -> bytes:
    """Write a segment that holds one group."""
    body = bydocument.adds(*payloads, begin=begin, synced_before=begin)
    return bydocument.header(begin=begin) + body + bytes(zeros)


def walked(content: bytes, *, header: Header | None = None) -> tuple[list[Record], Walk]:
    """Walk over all of it."""
    walk = Walk(content, header or decode_header(content[:HEADER_BYTES]), stop=len(content))
    return list(walk.records()), walk


def payloads(records: list[Record]) -> list[bytes]:
    """Give what users sent."""
    return [record.block[28:] for record in records]


def test_a_head_is_what_the_document_says() -> None:
    body = bydocument.block(7, 9, b"payload")
    for kind, flags, recovery in ((ADD, 0, 0), (ADD, 1, 256), (FENCE, 0, 0), (DELETE, 1, 256)):
        written = bydocument.record(
            1 << 40, body, kind=kind, flags=flags, synced_before=5, epoch=-2, lac=-1
        )

        for block in (body, memoryview(body)):
            assert encode_head(kind | recovery, 1 << 40, 5, -2, -1, block, SEED) + body == written


def test_records_of_each_kind_are_read_back() -> None:
    begin = 1000
    wanted = []
    content = bydocument.header(begin=begin)
    for kind, entry, payload in (
        (ADD, 5, b"p"),
        (FENCE, 0, b""),
        (CLOSE, 0, b""),
        (DELETE, 0, b""),
    ):
        position = begin + len(content) - HEADER_BYTES
        body = bydocument.block(7, entry, payload)
        content += bydocument.record(position, body, kind=kind, flags=entry and 1, epoch=3, lac=4)
        wanted.append(
            Record(
                kind=kind,
                recovery=bool(entry),
                position=Position(position),
                ledger=LedgerId(7),
                entry=EntryId(entry),
                epoch=Epoch(3),
                lac=EntryId(4),
                block=body,
            )
        )

    records, walk = walked(content)

    assert records == wanted
    assert walk.bads == []
    assert walk.end == begin + len(content) - HEADER_BYTES


def test_the_walk_knows_the_highest_position_that_was_called_durable() -> None:
    content = bydocument.header(begin=100, synced_before=90)
    assert walked(content)[1].synced_before == 90

    content += bydocument.add(100, 0, b"a", synced_before=95)
    content += bydocument.add(177, 1, b"b", synced_before=177)
    content += bydocument.add(254, 2, b"c", synced_before=100)

    assert walked(content)[1].synced_before == 177


def test_every_flipped_bit_costs_its_record_alone_and_is_told() -> None:
    content = segment(*PAYLOADS)
    whole, _ = walked(content)
    starts = [HEADER_BYTES + record.position for record in whole]
    for bit in range(8 * HEADER_BYTES, 8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        hit = max(n for n, start in enumerate(starts) if start <= bit // 8)

        records, walk = walked(bytes(flipped))

        assert records == whole[:hit] + whole[hit + 1 :]
        (bad,) = walk.bads
        assert bad.start == whole[hit].position
        assert bad.stop == (whole[hit + 1].position if hit + 1 < len(whole) else walk.end)
        in_payload = bit // 8 >= starts[hit] + 76
        assert bad.entry == (hit if in_payload else None)
        assert bad.ledger == (7 if in_payload else None)


def test_a_segment_cut_at_any_byte_gives_what_is_whole() -> None:
    content = segment(*PAYLOADS)
    whole, walk = walked(content)
    ends = [*[record.position for record in whole][1:], walk.end]
    for size in range(len(content) - HEADER_BYTES):
        records, walk = walked(content[: HEADER_BYTES + size])

        assert records == [r for r, end in zip(whole, ends, strict=True) if end <= size]
        assert [bad.stop for bad in walk.bads] == ([] if size in {0, *ends} else [size])


def test_zeros_behind_the_records_are_one_bad_place() -> None:
    content = segment(*PAYLOADS, zeros=5000)

    records, walk = walked(content)

    assert payloads(records) == PAYLOADS
    end = len(content) - 5000 - HEADER_BYTES
    assert walk.bads == [Damage(start=Position(end), stop=Position(end + 5000))]


def test_records_of_another_segment_are_none() -> None:
    body = bydocument.adds(*PAYLOADS)
    for header in (bydocument.header(nonce=1), bydocument.header(begin=1)):
        records, walk = walked(header + body)

        assert records == []
        assert len(walk.bads) == 1


def test_the_upper_half_of_the_nonce_is_not_in_the_checksums() -> None:
    content = bydocument.header(nonce=bydocument.NONCE ^ 1 << 40) + bydocument.adds(*PAYLOADS)

    assert payloads(walked(content)[0]) == PAYLOADS


def test_a_record_inside_of_a_damaged_payload_does_not_come_to_light() -> None:
    trap = bydocument.adds(b"one", b"two")
    content = bytearray(segment(b"before", trap * 3, b"behind"))
    content[HEADER_BYTES + 82 + 10] ^= 1  # in the head, so that its length is not believed

    records, _ = walked(bytes(content))

    assert payloads(records) == [b"before", b"behind"]


def test_a_whole_segment_inside_of_a_payload_does_not_come_to_light() -> None:
    content = segment(segment(b"one", b"two", b"three"), b"behind")
    damaged = content[:HEADER_BYTES] + b"\0" * 76 + content[HEADER_BYTES + 76 :]

    assert payloads(walked(damaged)[0]) == [b"behind"]


def sealed(content: bytes, at: int, fmt: tuple[int, int, int]) -> bytes:
    """Change a number in a record, and put the checksum right."""
    offset, size, value = fmt
    changed = bytearray(content)
    changed[at + offset : at + offset + size] = value.to_bytes(size, "little")
    crc = zlib.crc32(bytes(changed[at + 8 : at + 76]), SEED)
    changed[at + 4 : at + 8] = crc.to_bytes(4, "little")
    return bytes(changed)


@pytest.mark.parametrize(
    "change",
    [
        (8, 1, 0),
        (8, 1, 5),
        (9, 1, 2),
        (10, 2, 1),
        (12, 4, 30),
        (12, 4, 32),
        (12, 4, 0xFFFFFFFF),
        (24, 8, 1),
        (48, 2, 0xE27B),
        (50, 1, 2),
        (51, 1, 1),
        (56, 4, 4),
        (60, 8, 1 << 63),
        (68, 8, 1 << 36),
    ],
    ids=str,
)
def test_what_no_record_says_is_none_though_its_checksum_holds(
    change: tuple[int, int, int],
) -> None:
    content = sealed(segment(b"one", b"two"), HEADER_BYTES, change)

    assert payloads(walked(content)[0]) == [b"two"]


def test_a_huge_length_with_the_right_checksum_costs_one_record_and_no_memory() -> None:
    content = sealed(segment(b"one", b"two"), HEADER_BYTES, (12, 4, 28 + (16 << 20)))
    content = sealed(content, HEADER_BYTES, (56, 4, 16 << 20))

    records, walk = walked(content)

    # Its heads hold, so that whose it is and how long it was is believed.
    assert records == []
    assert walk.bads == [
        Damage(start=Position(0), stop=walk.end, ledger=LedgerId(7), entry=EntryId(0))
    ]


def test_nothing_but_magic_is_searched_through_in_one_pass() -> None:
    content = bydocument.header() + 200_000 * b"\x7e\x6f\x52\x6a"

    records, walk = walked(content)

    assert records == []
    assert len(walk.bads) == 1


def test_random_damage_never_gives_bytes_that_were_not_stored() -> None:
    content = segment(*PAYLOADS * 8)
    whole, _ = walked(content)
    for seed in range(1000):
        rng = Random(seed)
        damaged = bytearray(content)
        for _ in range(rng.randrange(1, 6)):
            start = rng.randrange(HEADER_BYTES, len(content))
            stop = start + rng.randrange(1, 600)
            match rng.randrange(3):
                case 0:
                    damaged[start:stop] = bytes(len(damaged[start:stop]))
                case 1:
                    damaged[start:stop] = rng.randbytes(len(damaged[start:stop]))
                case _:
                    damaged[start:stop] = damaged[HEADER_BYTES:][: len(damaged[start:stop])]

        records, walk = walked(bytes(damaged))

        assert [record for record in records if record not in whole] == []
        covered = sum(bad.stop - bad.start for bad in walk.bads)
        assert covered + sum(48 + len(record.block) for record in records) == walk.end


def bad(start: int, stop: int) -> Damage:
    return Damage(start=Position(start), stop=Position(stop))


@pytest.mark.parametrize(
    ("bads", "bound", "end"),
    [
        ([], 0, 100),
        ([], 50, 100),
        ([bad(40, 60)], 0, 40),
        ([bad(40, 60)], 40, 40),
        ([bad(40, 60)], 50, 50),
        ([bad(40, 60)], 60, 100),
        ([bad(40, 60), bad(80, 90)], 60, 80),
        ([bad(40, 60), bad(80, 90)], 85, 85),
        ([bad(40, 60), bad(80, 100)], 100, 100),
        ([bad(40, 60), bad(80, 100)], 200, 100),
    ],
)
def test_a_tail_begins_with_the_first_bad_place_that_reaches_over_the_bound(
    bads: list[Damage], bound: int, end: int
) -> None:
    assert judge_tail(bads, bound=Position(bound), end=Position(100)) == end


def test_a_bad_place_that_could_not_be_read_is_no_tail() -> None:
    bads = [bad(40, 60), bad(80, 100)]

    for unread_before, end in ((40, 40), (41, 80), (80, 80), (81, 100)):
        found = judge_tail(
            bads, bound=Position(0), unread_before=Position(unread_before), end=Position(100)
        )
        assert found == end
