"""Documents: their text is what it always was, and what cannot be read is refused."""

from pathlib import Path
from typing import Any

import pytest

from roost.errors import Corrupt, Invalid
from roost.metadata.documents import Kind
from roost.metadata.ids import COUNTER, Counter
from roost.metadata.node_documents import (
    CLUSTER_DOCUMENT,
    NODE_IDENTITY,
    NODE_REPORT,
    ClusterDocument,
    NodeIdentity,
    NodeReport,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "metadata" / "documents.jsonl"
EXAMPLES: list[tuple[Kind[Any], Any]] = [
    (CLUSTER_DOCUMENT, ClusterDocument("prod", 1700000000.5)),
    (
        NODE_IDENTITY,
        NodeIdentity("alice", "0123456789abcdef" * 2, "127.0.0.1:4710", 1700000000.5),
    ),
    (
        NODE_REPORT,
        NodeReport(
            node="alice",
            address="127.0.0.1:4710",
            zone="b2",
            roost="0.1.0",
            health="",
            readonly="",
            free_bytes=1 << 40,
            ledgers=3,
            added_bytes_per_s=1000.5,
            read_bytes_per_s=0.0,
            reported_at=1700000000.5,
        ),
    ),
    (COUNTER, Counter(42)),
]


@pytest.mark.parametrize("place", range(len(EXAMPLES)))
def test_a_document_is_what_it_always_was(place: int) -> None:
    kind, document = EXAMPLES[place]
    golden = GOLDEN.read_bytes().splitlines()

    assert len(golden) == len(EXAMPLES)
    assert kind.encode(document) == golden[place]
    assert kind.decode("key", golden[place]) == document


def test_fields_of_a_newer_writer_are_passed_over() -> None:
    value = b'{"kind":"counter","version":1,"next":3,"step":{"by":2}}'

    assert COUNTER.decode("ids/a", value) == Counter(3)


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(Invalid, match="'ids/a' has version 2, and this Roost reads up to 1: upd"):
        COUNTER.decode("ids/a", b'{"kind":"counter","version":2,"ranges":[]}')


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"kind":"counter"}',
        b'{"kind":"node","version":1}',
        b'{"kind":"counter","version":0,"next":1}',
        b'{"kind":"counter","version":1}',
        b'{"kind":"counter","version":1,"next":"1"}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_document_of_the_kind_is_corrupt(value: bytes) -> None:
    with pytest.raises(Corrupt, match="'ids/a' cannot be read") as caught:
        COUNTER.decode("ids/a", value)

    assert caught.value.file == "ids/a"
