"""One frame of each kind, as its bytes have been from the first day on."""

from pathlib import Path

import pytest

from roost.errors import Fenced
from roost.types import EntryId, LedgerId
from roost.wire.entry import check_entry, encode_entry
from roost.wire.errors import encode_error
from roost.wire.frame import Frame, decode_frame, encode_frame
from roost.wire.messages import (
    ADD,
    ADDED,
    ADDED_BODY,
    CANCEL,
    CLOSE,
    CONFIRM,
    DELETE,
    DONE,
    ENTRIES,
    ERROR,
    FENCE,
    HELLO,
    KINDS,
    LIST,
    MORE,
    PLACE,
    READ,
    RECOVERY,
    REVOKE,
    STAT,
    STATE,
    TXN,
    VERIFY,
    WELCOME,
    Close,
    Confirm,
    Delete,
    Entries,
    Fence,
    Hello,
    Ledgers,
    LedgerState,
    List,
    NodeStat,
    Place,
    Placed,
    Read,
    State,
    Verify,
    VerifyReport,
    Welcome,
    encode,
    encode_add,
)
from tests.unit.wire.bodies import EXAMPLES

GOLDEN = Path(__file__).parents[2] / "golden" / "wire" / "frames.txt"
BLOCK = encode_entry(LedgerId(7), EntryId(42), b"payload")
BODIES = {type(message): encode(message) for message in EXAMPLES}
FRAMES = {
    "HELLO": Frame(HELLO, 0, 0, BODIES[Hello], b""),
    "ADD": Frame(ADD, 0, 1, encode_add(3, 41), BLOCK),
    "ADD recovery": Frame(ADD, RECOVERY, 2**32 - 1, encode_add(3, -1), BLOCK),
    "READ": Frame(READ, 0, 2, BODIES[Read], b""),
    "STATE": Frame(STATE, 0, 3, BODIES[State], b""),
    "FENCE": Frame(FENCE, 0, 4, BODIES[Fence], b""),
    "CLOSE": Frame(CLOSE, 0, 5, BODIES[Close], b""),
    "PLACE": Frame(PLACE, 0, 6, BODIES[Place], b""),
    "DELETE": Frame(DELETE, 0, 7, BODIES[Delete], b""),
    "LIST": Frame(LIST, 0, 8, BODIES[List], b""),
    "STAT": Frame(STAT, 0, 9, b"", b""),
    "VERIFY": Frame(VERIFY, 0, 10, BODIES[Verify], b""),
    "CANCEL": Frame(CANCEL, 0, 2, b"", b""),
    "CONFIRM": Frame(CONFIRM, 0, 11, BODIES[Confirm], b""),
    "WELCOME": Frame(WELCOME, 0, 0, BODIES[Welcome], b""),
    "ADDED": Frame(ADDED, 0, 1, ADDED_BODY.pack(2), b""),
    "ENTRIES more": Frame(ENTRIES, MORE, 2, BODIES[Entries], BLOCK + BLOCK),
    "DONE state": Frame(DONE, 0, 3, BODIES[LedgerState], b""),
    "DONE placed": Frame(DONE, 0, 6, BODIES[Placed], b""),
    "DONE delete": Frame(DONE, 0, 7, b"", b""),
    "DONE list": Frame(DONE, 0, 8, BODIES[Ledgers], b""),
    "DONE stat": Frame(DONE, 0, 9, BODIES[NodeStat], b""),
    "DONE verify": Frame(DONE, 0, 10, BODIES[VerifyReport], b""),
    "ERROR": Frame(ERROR, 0, 4, encode_error(Fenced("ledger 7", ledger=7, epoch=5)), b""),
}


def golden() -> dict[str, bytes]:
    lines = GOLDEN.read_text().splitlines()
    named = (line.split(": ") for line in lines if line and not line.startswith("#"))
    return {name: bytes.fromhex(text) for name, text in named}


def test_each_kind_has_a_golden_frame() -> None:
    of_metadata = range(TXN, REVOKE + 1)  # these have golden frames of their own
    assert {frame.kind for frame in FRAMES.values()} == KINDS.keys() - of_metadata
    assert golden().keys() == FRAMES.keys()


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_what_it_always_was(name: str) -> None:
    frame = FRAMES[name]

    made = encode_frame(frame.kind, frame.request, frame.body, bytes(frame.blob), frame.flags)

    assert made.hex() == golden()[name].hex(), "a format that is in use never changes"
    assert decode_frame(golden()[name]) == frame


def test_the_golden_entry_is_one() -> None:
    head = check_entry(decode_frame(golden()["ADD"]).blob)

    assert (head.ledger, head.entry, head.length) == (7, 42, 7)
