"""How fast a node that was killed serves again, by what its journal holds and its files do not.

The node gets room to keep everything in memory, so that nothing is flushed before it is killed, and
is killed again once it serves: each round recovers the whole journal. The time is from the start of
the process to the first answered request, and what an empty node takes for that, in the same round,
is taken off.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from bench.harness import Claim, alternate, progress
from bench.node.bars import claim
from bench.node.client import Load, add_many, stat, state
from bench.node.driven import Driven
from bench.node.node import ROOMY, Folder, Node, formatted
from bench.node.programs import Beside, Failed, settle
from bench.node.scale import Scale

LARGER_BYTES = 4096
SMALLER_BYTES = 100
IN_FLIGHT = 1_000
_LEDGER = 1


class Killed(msgspec.Struct, frozen=True):
    """What a killed node left behind."""

    folder: Folder
    entries: int
    journal_bytes: int
    """Of records; a preallocated segment is longer."""


def measure(scale: Scale, folder: Path) -> list[Claim]:
    """Measure journals of two kinds, and the empty one."""
    progress("recovery")
    with Beside() as client:
        larger = _killed(folder, client, LARGER_BYTES, scale.journal_bytes // LARGER_BYTES)
        smaller = _killed(folder, client, SMALLER_BYTES, scale.journal_entries)
        empty = Killed(formatted(folder / "empty"), 0, 0)
        times = alternate(
            scale.recovery_rounds,
            {
                "empty": lambda: _start_s(empty, client),
                "larger": lambda: _start_s(larger, client),
                "smaller": lambda: _start_s(smaller, client),
            },
        )
    return [
        _claim("recovery_mb_s", larger, "larger", times, LARGER_BYTES),
        _claim("recovery_entries_s", smaller, "smaller", times, SMALLER_BYTES),
    ]


def beyond(whole: Sequence[float], empty: Sequence[float]) -> float:
    """Tell what remains of times when those of the same rounds are taken off: their median."""
    return median(one - other for one, other in zip(whole, empty, strict=True))


def _claim(
    name: str,
    killed: Killed,
    kind: str,
    times: Mapping[str, Sequence[float]],
    payload_bytes: int,
) -> Claim:
    taken_s = beyond(times[kind], times["empty"])
    done = killed.journal_bytes / 1e6 if name == "recovery_mb_s" else killed.entries
    detail = {
        "payload_bytes": payload_bytes,
        "entries": killed.entries,
        "journal_bytes": killed.journal_bytes,
        "start_s": times[kind],
        "start_of_an_empty_node_s": times["empty"],
        "taken_off": "the start of an empty node, round by round",
        "with_the_start": done / median(times[kind]),
    }
    return claim(name, done / taken_s, detail)


def _killed(folder: Path, client: Beside, payload_bytes: int, entries: int) -> Killed:
    """Make a node that was killed with so many entries in its journal, and none in its files."""
    place = formatted(folder / f"killed-{payload_bytes}")
    with Node(place, *ROOMY) as node:
        driven = Driven(node, client)
        driven.ask(add_many, Load(_LEDGER, payload_bytes, IN_FLIGHT), entries)
        journal_bytes = driven.ask(stat).journal_tail
        if driven.ask(state, _LEDGER).flushed_at:
            raise Failed("the node flushed what was to be recovered from its journal")
        node.kill()
    return Killed(place, entries, journal_bytes)


def _start_s(killed: Killed, client: Beside) -> float:
    """Start it, tell how long it took until it answered, and kill it again."""
    settle()
    began = time.perf_counter()
    with Node(killed.folder, *ROOMY) as node:
        client.run(stat, node.address)
        took_s = time.perf_counter() - began
        if killed.entries:
            found = client.run(state, node.address, _LEDGER)
            if found.entries != killed.entries or found.flushed_at:
                raise Failed(f"{killed.entries} entries in the journal became {found}")
    return took_s
