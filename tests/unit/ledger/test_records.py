"""Ledgers' documents in a store whose answers get lost."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from roost.errors import Conflict, Corrupt, NotFound, Unavailable, Unknown
from roost.ledger.records import Records
from roost.metadata.layout import ledger_key
from roost.metadata.ledgers import Fragment, LedgerDocument, LedgerPhase, Quorum
from roost.metadata.operations import Put
from roost.sim.metadata import MetadataFaults, SimMetadata
from roost.sim.world import World
from roost.types import EntryId, Epoch, LedgerId, NodeId

Program = Callable[[SimMetadata, Records], Awaitable[None]]


def document(ledger: int = 0) -> LedgerDocument:
    nodes = tuple(NodeId(name) for name in "abc")
    return LedgerDocument(
        ledger=LedgerId(ledger),
        epoch=Epoch(1),
        quorum=Quorum(),
        fragments=(Fragment(EntryId(0), nodes),),
    )


def play(program: Program, faults: MetadataFaults | None = None, timeout_s: float = 30.0) -> None:
    with World(7) as world:
        store = SimMetadata(world, faults)
        records = Records(store.handle("me"), clock=store.clock, timeout_s=timeout_s)

        async def main() -> None:
            async with asyncio.timeout(1000):
                await program(store, records)

        world.run(main)


def test_a_document_comes_back_as_it_was_put() -> None:
    async def program(_: SimMetadata, records: Records) -> None:
        made = await records.create(document(5))

        assert await records.read(LedgerId(5)) == made
        assert made.document == document(5)
        with pytest.raises(NotFound):
            await records.read(LedgerId(6))
        with pytest.raises(Conflict):
            await records.create(document(5))

    play(program)


def test_the_second_of_two_changes_finds_that_it_was_overtaken() -> None:
    async def program(_: SimMetadata, records: Records) -> None:
        made = await records.create(document())
        await records.change(made, made.document.in_recovery("one"))

        with pytest.raises(Conflict):
            await records.change(made, made.document.in_recovery("two"))

    play(program)


def test_ids_come_once_and_grow() -> None:
    async def program(_: SimMetadata, records: Records) -> None:
        ids = [await records.new_id() for _ in range(5)]

        assert ids == sorted({*ids})

    play(program, MetadataFaults(forgets=0.3, refuses=0.2, loses=0.1))


def test_changes_are_made_once_though_answers_and_requests_get_lost() -> None:
    async def program(_: SimMetadata, records: Records) -> None:
        now = await records.create(document())
        for number in range(20):
            now = await records.change(now, now.document.in_recovery(f"try {number}"))
        now = await records.change(now, now.document.closed(EntryId(3), length=9, laggards=()))

        assert await records.read(LedgerId(0)) == now
        assert now.document.phase is LedgerPhase.CLOSED

    play(program, MetadataFaults(forgets=0.3, refuses=0.2, loses=0.1))


def test_a_store_that_never_answers_is_given_up() -> None:
    async def program(store: SimMetadata, records: Records) -> None:
        made = await records.create(document())
        store.cut("me")

        with pytest.raises(Unknown):
            await records.change(made, made.document.in_recovery("me"))
        with pytest.raises(Unavailable):
            await records.read(LedgerId(0))
        with pytest.raises(Unavailable):
            await records.new_id()

    play(program, timeout_s=3.0)


def test_a_store_that_refused_after_an_answer_was_lost_leaves_it_unknown() -> None:
    async def program(store: SimMetadata, records: Records) -> None:
        made = await records.create(document())
        store.faults = MetadataFaults(forgets=1.0)
        changing = asyncio.ensure_future(records.change(made, made.document.in_recovery("me")))
        await asyncio.sleep(2.5)
        store.faults = MetadataFaults(refuses=1.0)

        with pytest.raises(Unknown):
            await changing

    play(program, timeout_s=5.0)


def test_pages_have_all_ledgers_in_order() -> None:
    async def program(_: SimMetadata, records: Records) -> None:
        for number in (3, 1, 200, 12):
            await records.create(document(number))

        page = await records.page(None, 3)
        rest = await records.page(page[-1].document.ledger, 3)

        assert [each.document.ledger for each in page] == [1, 3, 12]
        assert [each.document.ledger for each in rest] == [200]

    play(program)


def test_what_is_no_document_is_said_so() -> None:
    async def program(store: SimMetadata, records: Records) -> None:
        handle = store.handle("other")
        await handle.txn((), (Put(ledger_key(1), b'{"kind": "node", "version": 1}'),))

        with pytest.raises(Corrupt):
            await records.read(LedgerId(1))

    play(program)


def test_a_document_that_breaks_its_rules_is_never_put() -> None:
    async def program(_: SimMetadata, records: Records) -> None:
        broken = [
            msgspec.structs.replace(document(), fragments=()),
            msgspec.structs.replace(document(), last=EntryId(3)),
            msgspec.structs.replace(document(), quorum=Quorum(4, 3, 2)),
        ]
        for each in broken:
            with pytest.raises(AssertionError):
                await records.create(each)

    play(program)
