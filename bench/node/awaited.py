"""Adds that are waited for one by one, and large ones, against the plainest durable write.

A raw file has no client, no checksum and nothing to find again; a node puts a network, a journal
and an event loop around the same write. Small ones are compared in time, one after the other;
large ones in bandwidth, with some under way. A node whose memory takes it all shows what is left
when nothing is brought to the ledgers' files meanwhile.
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

from bench.harness import Claim, alternate, progress, ratio
from bench.node.bars import claim
from bench.node.client import Load, add_many, add_median_us
from bench.node.driven import Driven
from bench.node.node import ROOMY, Node, formatted
from bench.node.programs import Beside, Program, settle
from bench.node.raw import RawFile
from bench.node.scale import Scale

SMALL_BYTES = 100
LARGE_BYTES = 1 << 20
LARGE_IN_FLIGHT = 8
RAW_FILE_BYTES = 1 << 26


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure both."""
    with ExitStack() as started:
        client = started.enter_context(Beside())
        raw = started.enter_context(closing(RawFile(folder / "raw", RAW_FILE_BYTES)))
        driven, roomy = (
            Driven(started.enter_context(Node(formatted(folder / name), *options)), client)
            for name, options in (("node", ()), ("roomy", ROOMY))
        )
        programs = (driven.node, roomy.node)
        return [
            _depth1(scale, raw, driven, programs),
            _large(scale, raw, driven, roomy, programs),
        ]


def _depth1(scale: Scale, raw: RawFile, driven: Driven, programs: Sequence[Program]) -> Claim:
    progress(f"adds of {SMALL_BYTES} B, one in flight")

    def add() -> float:
        settle(*programs)
        return driven.ask(add_median_us, driven.fresh(), SMALL_BYTES, scale.sync_turn_s)

    def write() -> float:
        settle(*programs)
        return raw.median_us(bytes(SMALL_BYTES), scale.sync_turn_s)

    times = alternate(scale.rounds, {"raw": write, "add": add})
    detail = {
        "payload_bytes": SMALL_BYTES,
        "in_flight": 1,
        "turn_s": scale.sync_turn_s,
        "unit": "microseconds, each the median of a turn",
        "add": times["add"],
        "pwrite_fdatasync": times["raw"],
        "add_median": median(times["add"]),
    }
    return claim("depth1_vs_fdatasync", ratio(times["add"], times["raw"]), detail)


def _large(
    scale: Scale, raw: RawFile, driven: Driven, roomy: Driven, programs: Sequence[Program]
) -> Claim:
    progress(f"adds of {LARGE_BYTES >> 20} MiB, {LARGE_IN_FLIGHT} in flight")

    def add(node: Driven) -> float:
        settle(*programs)
        load = Load(node.fresh(), LARGE_BYTES, LARGE_IN_FLIGHT)
        return node.turn("adds", add_many, load, scale.large_adds).per_s * LARGE_BYTES / 1e6

    def write() -> float:
        settle(*programs)
        return raw.bytes_s(bytes(LARGE_BYTES), scale.large_adds) / 1e6

    rates = alternate(
        scale.rounds, {"raw": write, "adds": lambda: add(driven), "unflushed": lambda: add(roomy)}
    )
    detail = {
        "payload_bytes": LARGE_BYTES,
        "in_flight": LARGE_IN_FLIGHT,
        "adds_in_a_turn": scale.large_adds,
        "unit": "MB/s",
        "adds": rates["adds"],
        "pwrite_fdatasync": rates["raw"],
        "adds_median": median(rates["adds"]),
        "adds_with_room_in_memory": rates["unflushed"],
        "ratio_with_room_in_memory": ratio(rates["unflushed"], rates["raw"]),
        **driven.costs("adds"),
    }
    return claim("large_vs_raw", ratio(rates["adds"], rates["raw"]), detail)
