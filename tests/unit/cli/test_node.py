"""`roost node` as a process: how it is made, started, asked, and ended."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from roost.cli.running import process_settings
from roost.config.node import NodeConfig
from roost.errors import Unavailable
from roost.host.net import Address
from roost.node.client import NodeClient
from roost.node.process import ProcessSettings
from roost.types import EntryId
from tests.unit.cli.commands import Process, Ran, roost
from tests.unit.cli.nodes import SEVEN, add_three, asking, filled, formatted, running, until


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return formatted(tmp_path / "data")


# format


def test_a_folder_is_formatted_once(tmp_path: Path) -> None:
    command = ("node", "format", "--data", tmp_path, "--cluster-id", "prod", "--node-id", "alice")

    first, second, third = roost(*command), roost(*command), roost(*command, "--force")

    assert (first.code, second.code, third.code) == (0, 1, 0)
    assert first.out.startswith(b"formatted %b for node alice of cluster prod" % bytes(tmp_path))
    assert "formatted already: node alice of cluster prod" in second.err
    assert first.out != third.out


def test_nothing_is_formatted_over(data: Path) -> None:
    filled(data)

    ran = roost("node", "format", "--data", data, "--cluster-id", "a", "--node-id", "b", "--force")

    assert ran.code == 1
    assert "holds its data (checkpoint, journal, ledgers)" in ran.err


# running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_node_in_good_order(data: Path, number: signal.Signals) -> None:
    with running(data) as process:
        listening = until(process, "listening")
        asking(listening, add_three)
        process.signal(number)
        ended = process.ended()

    assert ended.code == 0
    assert '"event":"stopped"' in ended.err.splitlines()[-1]
    assert listening["pid"] > 0
    assert (listening["cluster"], listening["node"]) == ("prod", "alice")
    with running(data) as process:
        assert until(process, "recovered")["replayed"] == 0


@pytest.mark.slow
def test_what_a_killed_node_had_acknowledged_is_there(data: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    filled(data, killed=killed)
    found: list[bytes] = []

    async def look(node: NodeClient) -> None:
        async for batch in node.read(SEVEN, EntryId(0), EntryId(2)):
            found.extend(map(bytes, batch.found.values()))

    with running(killed) as process:
        recovered = until(process, "recovered")
        asking(until(process, "listening"), look)

    assert recovered["replayed"] == 4
    assert found == [b"one", b"two \xff", b"three"]


@pytest.mark.slow
def test_a_second_signal_ends_a_node_at_once(data: Path) -> None:
    ended: list[Ran] = []

    with running(data, "--drain-s", "3600") as process:

        async def wait_and_interrupt(node: NodeClient) -> None:
            await add_three(node)
            # It is under way, and the node waits for it before it stops.
            waiting = asyncio.ensure_future(
                anext(node.read(SEVEN, EntryId(9), EntryId(9), wait_s=300.0))
            )
            await node.stat()
            process.signal(signal.SIGTERM)
            await asyncio.to_thread(until, process, "stopping")
            process.signal(signal.SIGTERM)
            ended.append(await asyncio.to_thread(process.ended))
            with pytest.raises(Unavailable):
                await waiting

        asking(until(process, "listening"), wait_and_interrupt)

    assert ended[0].code == -signal.SIGTERM
    assert roost("node", "verify", "--data", data).code == 0


@pytest.mark.slow
def test_health_and_metrics_are_told_over_http(data: Path) -> None:
    with running(data) as process:
        listening = until(process, "listening")
        asking(listening, add_three)
        address = Address.parse(listening["http"])
        with socket.create_connection((address.host, address.port), timeout=10) as stream:
            stream.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            text = b"".join(iter(lambda: stream.recv(65536), b""))

    assert b'roost_node_adds_total{node="alice"} 3\n' in text


def test_one_process_has_a_folder_at_a_time(data: Path) -> None:
    with running(data) as process:
        pid = until(process, "listening")["pid"]
        second = roost("node", "--data", data, "--listen", "127.0.0.1:0", "--http", "off")
        verified = roost("node", "verify", "--data", data)

    for ran in (second, verified):
        assert ran.code == 1
        assert f"in use by process {pid} on " in ran.err
        assert len(ran.err.splitlines()) == 1


@pytest.mark.slow
def test_events_are_columns_if_one_asks(data: Path) -> None:
    with running(data, "--log-format", "console", "--log-level", "info") as process:
        lines = [process.error_line() for _ in range(3)]

    assert b" info    listening            address=127.0.0.1:" in lines[-1]


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        (["--listen", "0.0.0.0:0"], 2, r"off loopback"),
        (
            ["--listen", "here"],
            2,
            r"listen = 'here' (flag --listen) is not allowed: give host:port",
        ),
        (["--journal-bytes-max", "1MiB"], 2, r"(flag --journal-bytes-max)"),
        (["--config", "none.toml"], 2, r"none.toml cannot be read"),
        ([], 1, r"was never formatted for a node. Make it with `roost node format"),
    ],
)
def test_a_node_that_cannot_start_says_why_in_one_line(
    tmp_path: Path, options: list[str], code: int, why: str
) -> None:
    ran = roost("node", "--data", tmp_path, *options)

    assert ran.code == code
    assert ran.err.startswith("roost: ")
    assert why in ran.err
    assert len(ran.err.splitlines()) == 1
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
def test_a_port_that_is_taken_is_named(data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with Process("node", "--data", data, "--listen", address, "--http", "off") as process:
            ended = process.ended()

    assert ended.code == 1
    assert f"roost: cannot listen on {address}: " in ended.err.splitlines()[-1]


def test_a_node_without_a_folder_asks_for_one() -> None:
    ran = roost("node")

    assert ran.code == 2
    assert "give it with --data, ROOST_NODE_DATA, or" in ran.err


def test_options_stand_behind_the_command_that_they_are_for(tmp_path: Path) -> None:
    ran = roost("node", "--data", tmp_path, "verify", "--data", tmp_path)

    assert ran.code == 2
    assert "behind 'verify'" in ran.err


def test_what_is_configured_reaches_the_parts() -> None:
    config = NodeConfig(
        data=Path("/srv"),
        listen=Address("::1", 1),
        http=None,
        insecure=True,
        sync="never",
        interval_s=0.5,
        journal_segment_bytes=1 << 20,
        journal_bytes_max=3 << 20,
        memory_bytes_max=4 << 20,
        queued_bytes_max=5 << 20,
        flush_workers=6,
        free_bytes_min=7,
        payload_bytes_max=8000,
        connections_max=9,
        connection_bytes_max=10 << 20,
        log_format="json",
        log_level="error",
        drain_s=11.0,
    )

    settings = process_settings(config)

    assert (settings.data, settings.listen, settings.http) == (config.data, config.listen, None)
    assert (settings.payload_bytes_max, settings.drain_s) == (8000, 11.0)
    journal, limits = settings.store.journal, settings.store.limits
    assert (journal.segment_bytes, journal.sync, journal.interval_s) == (1 << 20, "never", 0.5)
    assert journal.record_bytes_max > 8000
    assert (limits.journal_bytes_max, limits.memory_bytes_max) == (3 << 20, 4 << 20)
    assert (limits.queued_bytes_max, limits.free_bytes_min) == (5 << 20, 7)
    assert settings.store.flush_workers == 6
    assert settings.limits.connections_max == 9
    assert settings.limits.held_bytes_max == 10 << 20


def test_what_is_not_configured_is_what_the_parts_have_by_themselves() -> None:
    config = NodeConfig(data=Path("/srv"))

    assert process_settings(config) == ProcessSettings(
        data=config.data, listen=config.listen, http=config.http, drain_s=config.drain_s
    )


# verify


def test_a_good_folder_is_verified(data: Path) -> None:
    filled(data)

    ran = roost("node", "verify", "--data", data)

    assert ran.code == 0
    assert ran.out.startswith(b"3 entries in files, ")
    assert ran.out.endswith(b"checked: all good\n")


def test_damage_is_listed_with_its_file_and_its_entry(data: Path) -> None:
    filled(data)
    log = data / "ledgers" / "7.log"
    harmed = bytearray(log.read_bytes())
    harmed[-1] ^= 1
    log.write_bytes(harmed)

    ran = roost("node", "verify", "--data", data)

    assert ran.code == 1
    assert ran.out.splitlines()[0].startswith(b"corrupt: %b: ledger 7 entry 2: " % bytes(log))
    assert ran.out.endswith(b"checked: 1 problem\n")


def test_nothing_is_verified_where_there_is_no_node(tmp_path: Path) -> None:
    ran = roost("node", "verify", "--data", tmp_path)

    assert ran.code == 1
    assert "never formatted" in ran.err
    assert os.listdir(tmp_path) == []  # noqa: PTH208 (names, to be compared with none)
