"""Small entries, with a thousand under way: against NATS JetStream, and against ourselves.

One client process and one server process each, on loopback, and one disk. What NATS is shipped
with acknowledges from the page cache; a node always syncs first. Reads from the tail come from
memory, while nobody adds.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.harness import Claim, alternate, progress, ratio
from bench.node import jetstream
from bench.node.bars import claim
from bench.node.client import Load, add_for, add_many, read_for, state
from bench.node.driven import Driven
from bench.node.node import Node, formatted
from bench.node.programs import Beside, Program, settle
from bench.node.scale import Scale

PAYLOAD_BYTES = 100
IN_FLIGHT = 1_000
MANY = 1_000


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure all of it in the same rounds."""
    progress(f"adds of {PAYLOAD_BYTES} B, {IN_FLIGHT} in flight")
    with ExitStack() as started:
        node = started.enter_context(Node(formatted(folder / "node")))
        always, default = (
            started.enter_context(jetstream.Server(folder / sync, sync=sync))
            for sync in (jetstream.ALWAYS, jetstream.DEFAULT)
        )
        client, rival = (started.enter_context(Beside()) for _ in range(2))
        programs = (node, always, default)
        driven = Driven(node, client)
        flushed: list[bool] = []
        for server in (always, default):
            rival.run(jetstream.open_stream, server.address)
        rates = alternate(
            scale.rounds,
            {
                "nats_always": lambda: _publish(scale, always, rival, programs),
                "nats_default": lambda: _publish(scale, default, rival, programs),
                "adds": lambda: _add(scale, driven, 1, programs),
                "adds_to_many": lambda: _add(scale, driven, MANY, programs),
                "tail_reads": lambda: _read_tail(scale, driven, flushed, programs),
            },
        )
    return _claims(scale, rates, driven, flushed)


def _claims(
    scale: Scale, rates: Mapping[str, Sequence[float]], driven: Driven, flushed: Sequence[bool]
) -> list[Claim]:
    def compare(name: str, ours: str, theirs: str, **more: object) -> Claim:
        detail = {
            "payload_bytes": PAYLOAD_BYTES,
            "in_flight": IN_FLIGHT,
            "turn_s": scale.turn_s,
            "unit": "entries/s",
            ours: rates[ours],
            theirs: rates[theirs],
            f"{ours}_median": median(rates[ours]),
            **driven.costs(ours),
            **more,
        }
        return claim(name, ratio(rates[ours], rates[theirs]), detail)

    always, default = "sync_interval: always", "as shipped: synced every two minutes"
    return [
        compare("adds_vs_nats_always", "adds", "nats_always", nats=always),
        compare("adds_vs_nats_default", "adds", "nats_default", nats=default),
        compare("many_ledgers_ratio", "adds_to_many", "adds", ledgers=MANY),
        compare(
            "tail_read_vs_add",
            "tail_reads",
            "adds",
            entries_read_again=scale.tail_entries,
            rounds_from_memory=flushed.count(False),
        ),
    ]


def _publish(
    scale: Scale, server: jetstream.Server, rival: Beside, programs: Sequence[Program]
) -> float:
    settle(*programs)
    return rival.run(jetstream.publish, server.address, PAYLOAD_BYTES, IN_FLIGHT, scale.turn_s)


def _add(scale: Scale, driven: Driven, ledgers: int, programs: Sequence[Program]) -> float:
    settle(*programs)
    load = Load(driven.fresh(ledgers), PAYLOAD_BYTES, IN_FLIGHT, ledgers)
    return driven.turn(
        "adds" if ledgers == 1 else "adds_to_many", add_for, load, scale.turn_s
    ).per_s


def _read_tail(
    scale: Scale, driven: Driven, flushed: list[bool], programs: Sequence[Program]
) -> float:
    ledger = driven.fresh()
    driven.ask(add_many, Load(ledger, PAYLOAD_BYTES, IN_FLIGHT), scale.tail_entries)
    settle(*programs)
    turn = driven.turn("tail_reads", read_for, ledger, scale.tail_entries, scale.turn_s)
    flushed.append(driven.ask(state, ledger).flushed_at > 0)
    return turn.per_s
