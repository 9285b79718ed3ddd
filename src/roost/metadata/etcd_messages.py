"""etcd's interface as bytes: what we ask, and what it answers (its version 3 interface).

Pure. Each function names a message of etcd's, with the numbers of the fields that we use; keys lie
below a prefix, which callers never see. Whatever a server leaves out is 0 or empty, as Protocol
Buffers have it.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from roost.errors import Invalid
from roost.metadata.operations import (
    Absent,
    ChangedAt,
    Compare,
    Delete,
    Event,
    Get,
    Item,
    LeaseId,
    Operation,
    Outcome,
    Page,
    Put,
    Revision,
)
from roost.metadata.protobuf import (
    Fields,
    all_of,
    bytes_of,
    decode,
    encode,
    number_of,
    one_of,
)

RANGE: Final = "/etcdserverpb.KV/Range"
TXN: Final = "/etcdserverpb.KV/Txn"
WATCH: Final = "/etcdserverpb.Watch/Watch"
GRANT: Final = "/etcdserverpb.Lease/LeaseGrant"
REVOKE: Final = "/etcdserverpb.Lease/LeaseRevoke"
KEEP_ALIVE: Final = "/etcdserverpb.Lease/LeaseKeepAlive"
AUTHENTICATE: Final = "/etcdserverpb.Auth/Authenticate"
STATUS: Final = "/etcdserverpb.Maintenance/Status"

# Compare.CompareTarget
_BY_VERSION, _BY_CREATE, _BY_MOD = 0, 1, 2
_DELETE: Final = 1

_VERSION: Final = re.compile(r"(\d{1,4})\.(\d{1,4})\.(\d{1,6})")
_LEAST: Final = {4: 22, 5: 6}
"""The first releases that do not lose what they acknowledged, of each minor that once did."""


class Watched(msgspec.Struct, frozen=True):
    """One answer of a watch."""

    cluster: int
    canceled: bool
    compacted: Revision
    """Up to where history is forgotten, if that is why the watch was canceled."""

    reason: str
    fragment: bool
    """Whether the rest of the last revision follows."""

    events: Sequence[Event]


class Keys:
    """Keys as etcd has them: ours, below a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix: Final = prefix.encode()

    def key(self, key: str) -> bytes:
        """Name one key."""
        return self._prefix + key.encode()

    def end(self, prefix: str) -> bytes:
        """Name the end of all keys that begin with something: UTF-8 has no byte 255."""
        whole = self.key(prefix)
        return whole[:-1] + bytes([whole[-1] + 1]) if whole else b"\0"

    def ours(self, key: bytes) -> str:
        """Name a key as we do."""
        try:
            return key.removeprefix(self._prefix).decode()
        except UnicodeDecodeError as error:
            raise Invalid(f"etcd holds a key below our prefix that is no text: {key!r}") from error

    # What is asked

    def range(self, prefix: str, after: str, limit: int, revision: Revision | None) -> bytes:
        """RangeRequest: read keys, linearizably."""
        begin = self.key(after) + b"\0" if after and after >= prefix else self.key(prefix)
        end = self.end(prefix)
        return encode([(1, begin or b"\0"), (2, end), (3, limit), (4, revision or 0)])

    def txn(
        self, compares: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation]
    ) -> bytes:
        """TxnRequest."""
        return encode(
            [
                *((1, self._compare(compare)) for compare in compares),
                *((2, self._operation(operation)) for operation in then),
                *((3, self._operation(operation)) for operation in orelse),
            ]
        )

    def watch(self, prefix: str, first: Revision) -> bytes:
        """WatchRequest with a WatchCreateRequest, whose long answers may come in fragments."""
        begin = self.key(prefix) or b"\0"
        return encode([(1, encode([(1, begin), (2, self.end(prefix)), (3, first), (8, 1)]))])

    def _compare(self, compare: Compare) -> bytes:
        key = self.key(compare.key)
        if isinstance(compare, Absent):
            return encode([(2, _BY_VERSION), (3, key)])
        if isinstance(compare, ChangedAt):
            return encode([(2, _BY_MOD), (3, key), (6, compare.revision)])
        return encode([(2, _BY_CREATE), (3, key), (5, compare.revision)])

    def _operation(self, operation: Operation) -> bytes:
        key = self.key(operation.key)
        match operation:
            case Get():
                return encode([(1, encode([(1, key)]))])
            case Put(_, value, lease):
                return encode([(2, encode([(1, key), (2, value), (3, lease)]))])
            case Delete():
                return encode([(3, encode([(1, key)]))])

    # What is answered

    def page(self, answer: Fields, revision: Revision | None) -> Page:
        """RangeResponse."""
        items = [self.item(found) for found in all_of(answer, 2)]
        return Page(items, revision or revision_of(answer), bool(number_of(answer, 3)))

    def outcome(self, answer: Fields, reads: Sequence[bool]) -> Outcome:
        """TxnResponse; `reads` says which operations of the branch that ran were reads."""
        got: list[Item | None] = []
        answers = all_of(answer, 3)
        if len(answers) != len(reads):
            raise Invalid(f"{len(reads)} operations have {len(answers)} answers")
        for one, is_read in zip(answers, reads, strict=True):
            if is_read:
                found = all_of(one_of(one, 1), 2)
                got.append(self.item(found[0]) if found else None)
        return Outcome(bool(number_of(answer, 2)), revision_of(answer), got)

    def watched(self, answer: Fields) -> Watched:
        """WatchResponse."""
        return Watched(
            cluster=cluster_of(answer),
            canceled=bool(number_of(answer, 4)),
            compacted=Revision(number_of(answer, 5)),
            reason=bytes_of(answer, 6).decode(errors="replace"),
            fragment=bool(number_of(answer, 7)),
            events=[self._event(event) for event in all_of(answer, 11)],
        )

    def item(self, found: Fields) -> Item:
        """KeyValue."""
        return Item(
            key=self.ours(bytes_of(found, 1)),
            value=bytes_of(found, 5),
            created=Revision(number_of(found, 2)),
            changed=Revision(number_of(found, 3)),
            version=number_of(found, 4),
            lease=LeaseId(number_of(found, 6)),
        )

    def _event(self, event: Fields) -> Event:
        item = self.item(one_of(event, 2))
        deleted = number_of(event, 1) == _DELETE
        return Event(item.key, item.changed, None if deleted else item)


def revision_of(answer: Fields) -> Revision:
    """Read the store's revision from an answer's ResponseHeader."""
    return Revision(number_of(one_of(answer, 1), 3))


def cluster_of(answer: Fields) -> int:
    """Read whose answer it is, from its ResponseHeader."""
    return number_of(one_of(answer, 1), 1)


def lease_grant(ttl_s: int) -> bytes:
    """LeaseGrantRequest, with an id that the server draws."""
    return encode([(1, ttl_s)])


def lease_request(lease: LeaseId) -> bytes:
    """LeaseRevokeRequest and LeaseKeepAliveRequest."""
    return encode([(1, lease)])


def lease_answer(answer: Fields) -> tuple[LeaseId, int]:
    """LeaseGrantResponse and LeaseKeepAliveResponse: the lease, and the seconds that it has.

    A lease that is gone has no seconds; that is not an error of its own.
    """
    return LeaseId(number_of(answer, 2)), number_of(answer, 3)


def authenticate(user: str, password: str) -> bytes:
    """AuthenticateRequest."""
    return encode([(1, user.encode()), (2, password.encode())])


def token_of(answer: Fields) -> str:
    """AuthenticateResponse."""
    return bytes_of(answer, 2).decode(errors="replace")


def check_version(answer: bytes, endpoint: str) -> str:
    """StatusResponse: refuse a server that may lose what it has acknowledged; returns its version.

    Releases of 3.5 before 3.5.6, and of 3.4 before 3.4.22, can come to disagree with each other
    after a crash under load; older minors are not maintained.
    """
    version = bytes_of(decode(answer), 2).decode(errors="replace")
    found = _VERSION.match(version)
    if found is None:
        raise Invalid(f"{endpoint} says that it is etcd {version!r}: is it etcd at all?")
    major, minor, patch = map(int, found.groups())
    if (major, minor) < (3, 4) or (major == 3 and patch < _LEAST.get(minor, 0)):  # noqa: PLR2004
        raise Invalid(
            f"{endpoint} runs etcd {version}, which may lose committed changes after a crash, or "
            "is maintained no more: use 3.4.22 or later of 3.4, 3.5.6 or later of 3.5, or newer"
        )
    return version
