"""The messages of a served store: their bytes are what they were, and bad ones are refused."""

from pathlib import Path

import msgspec
import pytest

from roost.errors import Invalid
from roost.metadata.operations import (
    Absent,
    ChangedAt,
    CreatedAt,
    Delete,
    Event,
    Get,
    Item,
    LeaseId,
    Outcome,
    Page,
    Put,
    Revision,
)
from roost.metadata.protocol import (
    Found,
    Grant,
    Granted,
    Left,
    Look,
    Range,
    Renew,
    Revoke,
    Txn,
    pack,
    unpack,
)
from roost.wire.checksum import crc32
from roost.wire.frame import Frame, decode_frame, encode_frame
from roost.wire.messages import DONE, GRANT, KINDS, RANGE, RENEW, REVOKE, TXN, WATCH

GOLDEN = Path(__file__).parents[2] / "golden" / "metadata" / "frames.txt"
SEVEN = Revision(7)
ITEM = Item("a/ä", b"\x00\xff", Revision(5), SEVEN, 2, LeaseId(1 << 61))
MESSAGES: dict[str, tuple[int, msgspec.Struct]] = {
    "TXN": (
        TXN,
        Txn(
            [ChangedAt("a", SEVEN), CreatedAt("b", SEVEN), Absent("c")],
            [Put("a", b"\x00\xff", LeaseId(9)), Delete("b"), Get("c")],
            [Get("a")],
        ),
    ),
    "RANGE": (RANGE, Range("a/", "a/1", 10, SEVEN)),
    "WATCH": (WATCH, Look("a/", SEVEN, 20.0)),
    "GRANT": (GRANT, Grant(10)),
    "RENEW": (RENEW, Renew(LeaseId(9))),
    "REVOKE": (REVOKE, Revoke(LeaseId(9))),
    "DONE outcome": (DONE, Outcome(True, SEVEN, [ITEM, None])),
    "DONE page": (DONE, Page([ITEM], SEVEN, True)),
    "DONE found": (DONE, Found([Event("a/ä", SEVEN, ITEM), Event("b", SEVEN, None)], SEVEN)),
    "DONE granted": (DONE, Granted(LeaseId(9))),
    "DONE left": (DONE, Left(10.0)),
}


def golden() -> dict[str, bytes]:
    lines = (line.split(": ") for line in GOLDEN.read_text().splitlines() if line[0] != "#")
    return {name: bytes.fromhex(text) for name, text in lines}


def test_each_kind_has_a_golden_frame() -> None:
    kinds = {kind for kind, _ in MESSAGES.values()} - {DONE}

    assert kinds == {kind for kind in KINDS if TXN <= kind <= REVOKE}
    assert golden().keys() == MESSAGES.keys()


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_what_it_always_was(name: str) -> None:
    kind, message = MESSAGES[name]

    body, blob = pack(message)
    frame = decode_frame(golden()[name])

    assert encode_frame(kind, 1, body, blob).hex() == golden()[name].hex()
    assert unpack(frame, type(message)) == message


def test_a_message_that_was_changed_on_its_way_is_refused() -> None:
    body, blob = pack(Grant(10))

    with pytest.raises(Invalid, match="checksum of a Grant of 2 bytes does not hold"):
        unpack(Frame(GRANT, 0, 1, body, blob[:-1] + b"\x0b"), Grant)
    with pytest.raises(Invalid, match="checksum"):
        unpack(Frame(GRANT, 0, 1, b"", blob), Grant)


@pytest.mark.parametrize(
    "blob", [b"", b"\xc1", b"\x90", b"\x91\xa1a", b"\x91\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00"]
)
def test_what_is_no_message_is_refused(blob: bytes) -> None:
    with pytest.raises(Invalid, match="is no Grant"):
        unpack(Frame(GRANT, 0, 1, crc32(blob).to_bytes(4, "little"), blob), Grant)
