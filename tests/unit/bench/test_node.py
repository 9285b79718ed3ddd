"""The node's benchmark adds, waits and counts as it says; the figures are its own business."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from bench.harness import report
from bench.node import measure
from bench.node.bars import BARS
from bench.node.client import EPOCH, Load, Window
from bench.node.node import event, listening
from bench.node.programs import Beside, Failed, Program, settle
from bench.node.raw import RawFile, socket_bytes_s
from bench.node.recovery import beyond
from bench.node.scale import Scale
from roost.errors import NoRoom
from roost.types import EntryId, Epoch, LedgerId
from roost.wire.sink import Sink

TINY = Scale(
    rounds=1,
    turn_s=0.05,
    sync_turn_s=0.05,
    large_adds=8,
    tail_entries=100,
    stored_bytes=1 << 20,
    stored_rounds=1,
    journal_bytes=1 << 20,
    journal_entries=1_000,
    recovery_rounds=1,
    ledgers=100,
    start_rounds=1,
)


class Ideal:
    """A node that stores an add once it is told to, and remembers what it was sent."""

    def __init__(self) -> None:
        self.adds: list[tuple[int, int, int]] = []
        self.waiting: list[tuple[Sink, int]] = []
        self.most = 0

    def start_add(
        self,
        ledger: LedgerId,
        entry: EntryId,
        payload: bytes | memoryview,
        *,
        epoch: Epoch,
        lac: EntryId,
        sink: Sink,
        tag: int,
    ) -> None:
        assert (len(payload), epoch) == (8, EPOCH)
        self.adds.append((ledger, entry, lac))
        self.waiting.append((sink, tag))
        self.most = max(self.most, len(self.waiting))

    def store_one(self) -> None:
        sink, tag = self.waiting.pop(0)
        sink.stored(tag)


def test_the_bars_are_those_that_the_node_is_held_to() -> None:
    assert {name: (bar.figure, bar.better) for name, bar in BARS.items()} == {
        "adds_vs_nats_always": (10, "higher"),
        "adds_vs_nats_default": (3, "higher"),
        "depth1_vs_fdatasync": (2.5, "lower"),
        "large_vs_raw": (0.6, "higher"),
        "tail_read_vs_add": (1, "higher"),
        "many_ledgers_ratio": (0.5, "higher"),
        "cold_read_vs_socket": (0.5, "higher"),
        "recovery_mb_s": (200, "higher"),
        "recovery_entries_s": (250_000, "higher"),
        "start_100k_s": (10, "lower"),
        "rss_100k_mib": (600, "lower"),
    }


async def drive(node: Ideal, load: Load, adds: int) -> Window:
    window = Window(node, load, adds)
    window.start()
    while node.waiting:
        node.store_one()
    await window.ended
    return window


def test_a_window_stays_full_until_all_is_started_and_ends_once_all_is_stored() -> None:
    node = Ideal()

    window = asyncio.run(drive(node, Load(ledger=7, payload_bytes=8, in_flight=3), adds=10))

    assert window.done == 10
    assert node.most == 3
    assert [(ledger, entry) for ledger, entry, _ in node.adds] == [(7, n) for n in range(10)]


def test_a_window_goes_over_its_ledgers_in_turn() -> None:
    node = Ideal()

    asyncio.run(drive(node, Load(ledger=7, payload_bytes=8, in_flight=5, ledgers=2), adds=6))

    assert [(ledger, entry) for ledger, entry, _ in node.adds] == [
        *((7, 0), (8, 0), (7, 1), (8, 1), (7, 2), (8, 2)),
    ]


@pytest.mark.parametrize("ledgers", [1, 2, 3, 100])
@pytest.mark.parametrize("in_flight", [1, 4, 50])
def test_each_add_tells_the_last_entry_of_its_ledger_that_is_known_to_be_stored(
    ledgers: int, in_flight: int
) -> None:
    node = Ideal()

    asyncio.run(drive(node, Load(0, 8, in_flight, ledgers), adds=60))

    # An add beyond the first window is started by the one that was stored so long before.
    for tag, (ledger, _, lac) in enumerate(node.adds):
        stored = [other for other in node.adds[: max(0, tag - in_flight + 1)] if other[0] == ledger]
        assert lac == len(stored) - 1


def test_a_window_that_is_stopped_waits_for_what_is_under_way() -> None:
    async def stopped() -> tuple[int, bool, bool]:
        node = Ideal()
        window = Window(node, Load(ledger=7, payload_bytes=8, in_flight=2))
        window.start()
        node.store_one()
        window.stop()
        node.store_one()
        before = window.ended.done()
        node.store_one()
        return len(node.adds), before, window.ended.done()

    assert asyncio.run(stopped()) == (3, False, True)


def test_a_window_ends_with_the_error_when_an_add_is_refused() -> None:
    async def refused() -> int:
        node = Ideal()
        window = Window(node, Load(ledger=7, payload_bytes=8, in_flight=2))
        window.start()
        sink, tag = node.waiting.pop(0)
        sink.refused(tag, NoRoom("the disk is full"))
        node.store_one()
        with pytest.raises(NoRoom, match="the disk is full"):
            await window.ended
        return len(node.adds)

    assert asyncio.run(refused()) == 2


def test_the_address_is_that_of_the_event_listening_and_of_nothing_else() -> None:
    assert listening('{"event": "listening", "address": "127.0.0.1:4710"}\n') == "127.0.0.1:4710"
    assert listening('{"event": "recovered", "address": "127.0.0.1:1"}\n') is None
    assert listening("listening on 127.0.0.1:4710\n") is None
    assert event('["listening"]') == {}


def test_what_an_empty_node_takes_is_taken_off_round_by_round() -> None:
    assert beyond([3.0, 9.0, 4.0], [1.0, 2.0, 1.0]) == 3.0


def test_a_program_is_heard_and_stopped(tmp_path: Path) -> None:
    said = json.dumps({"event": "listening", "address": "127.0.0.1:7"})
    script = f"import sys, time; print({said!r}, file=sys.stderr, flush=True); time.sleep(60)"

    with Program([sys.executable, "-c", script], tmp_path / "log") as program:
        address = program.await_line(listening)
        program.stop()

    assert address == "127.0.0.1:7"
    assert not Path(f"/proc/{program.pid}").exists()


def test_a_program_that_ends_too_early_is_quoted(tmp_path: Path) -> None:
    with (
        Program([sys.executable, "-c", "raise SystemExit('no such disk')"], tmp_path / "log") as it,
        pytest.raises(Failed, match=r"(?s)ended with 1; it said last:.*no such disk"),
    ):
        it.await_line(listening)


def test_a_program_is_killed_when_something_else_fails(tmp_path: Path) -> None:
    script = "import sys, time; print('up', file=sys.stderr, flush=True); time.sleep(60)"
    program = Program([sys.executable, "-c", script], tmp_path / "log")

    def fail_beside_it() -> None:
        with program:
            program.await_line(lambda line: line)
            settle(program)
            raise Failed("something else")

    with pytest.raises(Failed, match="something else"):
        fail_beside_it()

    assert not Path(f"/proc/{program.pid}").exists()


def test_a_raw_file_begins_again_when_it_is_full_and_is_removed(tmp_path: Path) -> None:
    raw = RawFile(tmp_path / "raw", 4096)

    rate = raw.bytes_s(bytes(1500), times=3)
    written = (tmp_path / "raw").read_bytes()
    raw.close()

    assert rate > 0
    assert len(written) == 4096
    assert not (tmp_path / "raw").exists()


def test_the_plain_loop_sends_every_byte_of_every_file(tmp_path: Path) -> None:
    files = [tmp_path / "one", tmp_path / "two"]
    for path in files:
        path.write_bytes(os.urandom(100_001))

    with Beside() as sending:
        rate = socket_bytes_s(files, 4096, sending)

    assert rate > 0


@pytest.mark.slow
def test_every_bar_is_measured_and_reported_in_one_line_and_nothing_is_left_behind(
    tmp_path: Path,
) -> None:
    claims = measure(TINY, tmp_path)

    assert list(tmp_path.iterdir()) == []
    line = report("node", claims)
    told = json.loads(line)
    assert "\n" not in line
    assert told.keys() == {"bench", "commit", "machine", "claims"}
    assert told["bench"] == "node"
    assert [claim["name"] for claim in told["claims"]] == list(BARS)
    for claim in told["claims"]:
        bar = BARS[claim["name"]]
        assert claim.keys() == {"name", "value", "bar", "better", "holds", "detail"}
        assert (claim["bar"], claim["better"]) == (bar.figure, bar.better)
        assert claim["detail"]
