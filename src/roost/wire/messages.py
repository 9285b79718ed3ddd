"""What a server can be asked, and what it answers: kinds, flags and bodies.

    asked                       answered, last with DONE or ERROR unless it says otherwise
    HELLO    1  Hello           WELCOME; nothing else may come before it
    ADD      2  <Qq epoch, lac  ADDED; blob: one entry block; flag RECOVERY
    READ     3  Read            ENTRIES, each but the last with MORE
    STATE    4  State           LedgerState
    FENCE    5  Fence           LedgerState
    CLOSE    6  Close           LedgerState
    PLACE    7  Place           Placed
    DELETE   8  Delete          nothing
    LIST     9  List            Ledgers
    STAT    10  nothing         NodeStat
    VERIFY  11  Verify          VerifyReport
    CANCEL  12  nothing         nothing of its own: it gives up the request that has its id
    CONFIRM 13  Confirm         nothing

    A server of metadata is asked, and answers with DONE (see `roost.metadata.protocol`):
    TXN     32    RANGE   33    WATCH   34    GRANT   35    RENEW   36    REVOKE  37

    WELCOME 65  Welcome
    ADDED   66  <I count        requests [request, request + count) modulo 2^32 are durable
    ENTRIES 67  Entries         blob: the blocks that were found, in order; flag MORE
    DONE    68  by the request
    ERROR  127  see `roost.wire.errors`

All other bodies are MessagePack: an array of the fields in the order in which they stand here. A
field that is new stands last and has a default; a receiver passes over those it does not know.
Every number and every length is checked when a body is decoded, so that who gets one of these
objects need not ask again whether it can be; what is wrong with it is said by `Invalid`.
"""

from collections.abc import Callable
from struct import Struct
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from roost.errors import Invalid
from roost.types import EntryId, Epoch, LedgerId
from roost.wire.entry import ENTRY_ID_MAX, LEDGER_ID_MAX

T = TypeVar("T")

PROTOCOL_VERSION: Final = 1

HELLO: Final = 1
ADD: Final = 2
READ: Final = 3
STATE: Final = 4
FENCE: Final = 5
CLOSE: Final = 6
PLACE: Final = 7
DELETE: Final = 8
LIST: Final = 9
STAT: Final = 10
VERIFY: Final = 11
CANCEL: Final = 12
CONFIRM: Final = 13
TXN: Final = 32
RANGE: Final = 33
WATCH: Final = 34
GRANT: Final = 35
RENEW: Final = 36
REVOKE: Final = 37
WELCOME: Final = 65
ADDED: Final = 66
ENTRIES: Final = 67
DONE: Final = 68
ERROR: Final = 127

KINDS: Final = {
    HELLO: "HELLO",
    ADD: "ADD",
    READ: "READ",
    STATE: "STATE",
    FENCE: "FENCE",
    CLOSE: "CLOSE",
    PLACE: "PLACE",
    DELETE: "DELETE",
    LIST: "LIST",
    STAT: "STAT",
    VERIFY: "VERIFY",
    CANCEL: "CANCEL",
    CONFIRM: "CONFIRM",
    TXN: "TXN",
    RANGE: "RANGE",
    WATCH: "WATCH",
    GRANT: "GRANT",
    RENEW: "RENEW",
    REVOKE: "REVOKE",
    WELCOME: "WELCOME",
    ADDED: "ADDED",
    ENTRIES: "ENTRIES",
    DONE: "DONE",
    ERROR: "ERROR",
}
"""The names of the kinds, for people."""

RECOVERY: Final = 1
"""Flag of ADD: recovery writes back what is there elsewhere."""

MORE: Final = 1
"""Flag of an answer: another one follows for the same request."""

ROLES: Final = ("client", "node", "admin")
"""Who may say hello: programs that use ledgers, other nodes, and people with tools."""

SUSPECTS_MAX: Final = 4096
LEDGERS_MAX: Final = 512
"""How many ledgers one LIST answers at most; so many fit in a body, however large they are."""

BAD_ENTRIES_MAX: Final = 1000
READ_BYTES_MAX: Final = 32 << 20
WAIT_S_MAX: Final = 300.0
SOURCES_MAX: Final = 16

ADD_BODY: Final = Struct("<Qq")
ADDED_BODY: Final = Struct("<I")

_INT_MAX: Final = (1 << 63) - 1

Ledger = Annotated[LedgerId, Meta(ge=0, le=LEDGER_ID_MAX)]
Entry = Annotated[EntryId, Meta(ge=0, le=ENTRY_ID_MAX)]
Last = Annotated[EntryId, Meta(ge=-1, le=ENTRY_ID_MAX)]
"""The last entry of something that may have none: -1 then."""

Before = Annotated[EntryId, Meta(ge=0, le=ENTRY_ID_MAX + 1)]
Term = Annotated[Epoch, Meta(ge=0, le=_INT_MAX)]
Count = Annotated[int, Meta(ge=0, le=_INT_MAX)]
Moment = Annotated[float, Meta(ge=0.0, le=1e18)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e18)]
Name = Annotated[str, Meta(max_length=255)]
Reason = Annotated[str, Meta(max_length=1000)]


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """Say who is calling, and which cluster is meant; a tool may leave that open with ''."""

    version: Count
    cluster: Name
    role: Name
    name: Name
    credential: Annotated[bytes, Meta(max_length=1024)] = b""


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """Say who has answered, and how long a frame it takes."""

    version: Count
    cluster: Name
    node: Name
    uuid: Annotated[bytes, Meta(min_length=16, max_length=16)]
    frame_bytes_max: Count


class Read(msgspec.Struct, frozen=True, array_like=True):
    """Read the entries from `first` upto `upto`, as far as they are there.

    With `fence`, the ledger is fenced first, by that epoch. With `wait_s`, and nothing there, wait
    so long for `first`; or, if `lac` is given, for a LAC that is higher.
    """

    ledger: Ledger
    first: Entry
    upto: Entry
    bytes_max: Annotated[int, Meta(ge=0, le=READ_BYTES_MAX)]
    """How many bytes of blocks are wanted in all frames together; the first block always comes.

    A suspect id counts as 16.
    """

    fence: Term | None = None
    wait_s: Annotated[float, Meta(ge=0.0, le=WAIT_S_MAX)] = 0.0
    lac: Last | None = None


class Entries(msgspec.Struct, frozen=True, array_like=True):
    """What there is of the entries [first, before): an id neither found nor suspect is absent."""

    first: Entry
    before: Before
    lac: Last
    last: Last | None
    """The last entry, once the ledger is closed."""

    fenced: Term | None
    suspects: Annotated[list[Entry], Meta(max_length=SUSPECTS_MAX)]
    """Ids of which the node cannot tell whether it had them."""


class State(msgspec.Struct, frozen=True, array_like=True):
    """Ask how a ledger is."""

    ledger: Ledger


class Fence(msgspec.Struct, frozen=True, array_like=True):
    """Refuse this ledger's writer for good."""

    ledger: Ledger
    epoch: Term
    """Whose doing it is; only to be named in errors."""


class Close(msgspec.Struct, frozen=True, array_like=True):
    """Close a ledger for good, with this last entry."""

    ledger: Ledger
    last: Last


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Copy the entries from `first` upto `upto` here, from other nodes."""

    ledger: Ledger
    epoch: Term
    first: Entry
    upto: Entry
    sources: Annotated[list[Name], Meta(min_length=1, max_length=SOURCES_MAX)]
    """The addresses of the nodes that have them, the best first."""


class Placed(msgspec.Struct, frozen=True, array_like=True):
    """What was copied, and is durable here."""

    ledger: Ledger
    entries: Count
    bytes: Count
    missing: Annotated[list[Entry], Meta(max_length=BAD_ENTRIES_MAX)]
    """The first of those that no source has, or has whole."""

    missing_total: Count


class Delete(msgspec.Struct, frozen=True, array_like=True):
    """Forget a ledger and all of its entries."""

    ledger: Ledger


class List(msgspec.Struct, frozen=True, array_like=True):
    """List the ledgers behind one; behind -1 are all."""

    after: Annotated[LedgerId, Meta(ge=-1, le=LEDGER_ID_MAX)] = LedgerId(-1)
    limit: Annotated[int, Meta(ge=1, le=LEDGERS_MAX)] = LEDGERS_MAX


class LedgerState(msgspec.Struct, frozen=True, array_like=True):
    """How a ledger is, on one node."""

    ledger: Ledger
    epoch: Term | None
    """The one epoch whose adds are taken; None if there was no add yet."""

    fenced: Term | None
    """Who fenced it, if anybody did."""

    last: Last | None
    """The last entry, once it is closed."""

    lac: Last
    highest: Last
    """The highest entry that is here; some before it may not be."""

    entries: Count
    bytes: Count
    flushed_before: Count
    """Everything of it that the journal holds before this position is in its files."""

    flushed_at: Moment
    """When, by the wall; 0 for never."""

    suspect: bool
    """Whether this node may have lost some of it: then it cannot say that an entry is absent."""


class Ledgers(msgspec.Struct, frozen=True, array_like=True):
    """Some ledgers, by their ids; fewer than were asked for are the last."""

    states: Annotated[list[LedgerState], Meta(max_length=LEDGERS_MAX)]


class NodeStat(msgspec.Struct, frozen=True, array_like=True):
    """How a node is."""

    node: Name
    cluster: Name
    uuid: Annotated[bytes, Meta(min_length=16, max_length=16)]
    version: Name
    health: Reason
    """What is wrong with it; '' if it is well."""

    readonly: Reason
    """Why it takes no adds; '' if it does."""

    sync: Name
    """The sync policy of its journal."""

    uptime_s: Seconds
    ledgers: Count
    memory_bytes: Count
    """Entries in memory that are not in their ledgers' files."""

    journal_kept_bytes: Count
    journal_queued_bytes: Count
    journal_tail: Count
    journal_durable: Count
    free_bytes: Count
    counters: Annotated[dict[Name, Count], Meta(max_length=256)]


class Verify(msgspec.Struct, frozen=True, array_like=True):
    """Read every entry of a ledger, and check it."""

    ledger: Ledger


class VerifyReport(msgspec.Struct, frozen=True, array_like=True):
    """What became of that."""

    ledger: Ledger
    entries: Count
    """How many were checked."""

    bytes: Count
    bad: Annotated[list[Entry], Meta(max_length=BAD_ENTRIES_MAX)]
    """The first of those that contradict their checksum, or cannot be read."""

    bad_total: Count
    complete: bool
    """Whether all of it was checked."""


class Confirm(msgspec.Struct, frozen=True, array_like=True):
    """Say up to where a writer knows all to be durable, when it has no entry to say it with."""

    ledger: Ledger
    epoch: Term
    """The writer's."""

    lac: Last


Body = (
    Hello
    | Welcome
    | Read
    | Entries
    | State
    | Fence
    | Close
    | Place
    | Placed
    | Delete
    | List
    | Ledgers
    | LedgerState
    | NodeStat
    | Verify
    | Confirm
    | VerifyReport
)

encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
"""Make the bytes of a body."""


def decode(body: bytes | memoryview, kind: type[T]) -> T:
    """Read a body of one kind; `Invalid` names the field that is wrong."""
    decoder = _DECODERS.get(kind) or _DECODERS.setdefault(kind, msgspec.msgpack.Decoder(kind))
    try:
        message: T = decoder.decode(body)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"the body is no {kind.__name__}: {error}") from error
    return message


def encode_add(epoch: int, lac: int) -> bytes:
    """Make the body of an ADD."""
    return ADD_BODY.pack(epoch, lac)


def decode_add(body: bytes) -> tuple[Epoch, EntryId]:
    """Read the body of an ADD: the writer's epoch and its LAC."""
    if len(body) != ADD_BODY.size:
        raise Invalid(f"an ADD with a body of {len(body)} bytes, where {ADD_BODY.size} belong")
    epoch, lac = ADD_BODY.unpack(body)
    if epoch > _INT_MAX or not -1 <= lac <= ENTRY_ID_MAX:
        raise Invalid(f"an ADD of epoch {epoch} with the LAC {lac}: beyond what is allowed")
    return epoch, lac


_DECODERS: Final[dict[type, msgspec.msgpack.Decoder[Any]]] = {}
