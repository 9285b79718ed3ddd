"""What etcd says, and what it means: versions, failures, keys."""

import pytest

from roost.errors import (
    Compacted,
    Denied,
    Invalid,
    NoRoom,
    NotFound,
    Throttled,
    Unavailable,
    Unknown,
)
from roost.metadata.etcd_errors import ELSEWHERE, LOG_IN, TooLong, verdict
from roost.metadata.etcd_messages import Keys, check_version
from roost.metadata.protobuf import decode, encode


@pytest.mark.parametrize(
    "version", ["3.4.22", "3.4.23", "3.5.6", "3.5.21", "3.6.0", "3.6.0-rc.1", "3.12.0", "4.0.0"]
)
def test_releases_that_keep_what_they_acknowledge_are_taken(version: str) -> None:
    assert check_version(encode([(2, version.encode())]), "here:1") == version


@pytest.mark.parametrize("version", ["3.4.21", "3.4.0", "3.5.0", "3.5.5", "3.3.27", "2.3.8"])
def test_releases_that_may_lose_it_are_refused(version: str) -> None:
    with pytest.raises(Invalid, match=f"here:1 runs etcd {version}, which may lose committed"):
        check_version(encode([(2, version.encode())]), "here:1")


@pytest.mark.parametrize("answer", [b"", encode([(2, b"\xff")]), encode([(2, b"three")])])
def test_what_does_not_tell_its_version_is_refused(answer: bytes) -> None:
    with pytest.raises(Invalid, match="is it etcd at all"):
        check_version(answer, "here:1")


@pytest.mark.parametrize(
    ("code", "details", "read", "change"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses; x", ELSEWHERE, ELSEWHERE),
        ("UNAVAILABLE", "Socket closed", ELSEWHERE, Unknown),
        ("UNAVAILABLE", "etcdserver: request timed out", ELSEWHERE, Unknown),
        ("UNAVAILABLE", "etcdserver: leader changed", ELSEWHERE, Unknown),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", ELSEWHERE, Unknown),
        ("UNKNOWN", "etcdserver: what else", ELSEWHERE, Unknown),
        ("CANCELLED", "whoever", Unavailable, Unknown),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", Throttled, Throttled),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", NoRoom, NoRoom),
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max", TooLong, Unknown),
        ("NOT_FOUND", "etcdserver: requested lease not found", NotFound, NotFound),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", Compacted, None),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision", Invalid, None),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", Invalid, Invalid),
        ("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user ID", Denied, None),
        ("PERMISSION_DENIED", "etcdserver: permission denied", Denied, Denied),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", LOG_IN, LOG_IN),
    ],
)
def test_a_failure_says_what_was_decided(
    code: str, details: str, read: object, change: object
) -> None:
    for changes, expected in ((False, read), (True, change or read)):
        found = verdict(code, details, what="it", changes=changes)

        assert found == expected or type(found) is expected


def test_keys_lie_below_a_prefix_that_nobody_sees() -> None:
    keys = Keys("roost/prod/")

    assert keys.key("ä") == b"roost/prod/\xc3\xa4"
    assert keys.ours(b"roost/prod/\xc3\xa4") == "ä"
    assert keys.end("nodes/") == b"roost/prod/nodes0"
    assert keys.end("") == b"roost/prod0"
    assert Keys("").end("") == b"\0"
    with pytest.raises(Invalid, match="is no text"):
        keys.ours(b"roost/prod/\xff")


def test_a_page_behind_a_key_begins_behind_it() -> None:
    keys = Keys("p/")

    behind = decode(keys.range("a", "ab", 10, None))
    before = decode(keys.range("b", "a", 10, None))

    assert behind[1] == [b"p/ab\0"]
    assert before[1] == [b"p/b"]
