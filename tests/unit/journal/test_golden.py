"""The file in `tests/golden/journal` pins the format: it is read and written as it is, for ever."""

from pathlib import Path

from roost.journal.header import HEADER_BYTES, Header, decode_header, encode_header
from roost.journal.record import ADD, CLOSE, DELETE, FENCE, encode_head
from roost.types import Position
from roost.wire.entry import check_entry, payload_of
from tests.unit.channel.disks import quick
from tests.unit.journal.lives import UUID, read

GOLDEN = Path(__file__).parents[2] / "golden" / "journal" / "0000000000000002.journal"
NONCE = 0x1122334455667788
# Kind, write-back, position, ledger, entry, epoch, LAC, payload, synced before.
RECORDS = [
    (ADD, False, 4096, 7, 0, 3, -1, b"the first entry", 4096),
    (ADD, True, 4187, 7, 1, 3, 0, b"written back by recovery", 4096),
    (FENCE, False, 4287, 7, 0, 4, -1, b"", 4187),
    (CLOSE, False, 4363, 7, 0, 3, 1, b"", 4187),
    (DELETE, False, 4439, 2**63 - 1, 0, 0, -1, b"", 4187),
]


def test_the_golden_segment_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    folder.mkdir()
    (folder / GOLDEN.name).write_bytes(GOLDEN.read_bytes())

    found = read(quick(), folder=folder, replay_from=4096)

    said = [
        (
            r.kind,
            r.recovery,
            r.position,
            r.ledger,
            r.entry,
            r.epoch,
            r.lac,
            bytes(payload_of(r.block)),
        )
        for r in found.records
    ]
    assert said == [record[:8] for record in RECORDS]
    assert [check_entry(record.block).ledger for record in found.records] == [7, 7, 7, 7, 2**63 - 1]
    assert (found.damages, found.findings, found.missing) == ([], [], False)
    assert found.opened.begin == 4515
    assert (folder / GOLDEN.name).read_bytes() == GOLDEN.read_bytes()


def test_the_golden_segment_is_written() -> None:
    header = Header(
        uuid=UUID, number=2, begin=Position(4096), nonce=NONCE, synced_before=Position(4096)
    )
    golden = GOLDEN.read_bytes()
    assert decode_header(golden[:HEADER_BYTES]) == header

    written = encode_header(header)
    for kind, recovery, position, _, _, epoch, lac, payload, synced_before in RECORDS:
        block = golden[len(written) + 48 :][: 28 + len(payload)]
        what = kind | 256 if recovery else kind
        head = encode_head(what, position, synced_before, epoch, lac, block, header.seed)
        written += head + block

    assert written == golden
