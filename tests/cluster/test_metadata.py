"""Nodes that register themselves: real processes of `roost meta` and `roost node`."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.cluster.nodes import ROOST, WAIT_S, NodeProgram, formatted
from tests.metas import MetaProgram


@pytest.fixture
def meta(tmp_path: Path) -> Iterator[MetaProgram]:
    program = MetaProgram(tmp_path).start()
    yield program
    program.stop()


def node(folder: Path, url: str, *options: str, seed: int = 1) -> NodeProgram:
    """Start a node of a folder, which is formatted first; all of them are called alice."""
    if not folder.exists():
        formatted(folder, Random(seed))
    return NodeProgram(folder, "--cluster", url, *options)


def until(program: NodeProgram, event: str) -> None:
    """Wait for an event."""

    async def main() -> None:
        async with asyncio.timeout(WAIT_S):
            while not any(each["event"] == event for each in program.events()):
                assert program.process.poll() is None, program.events()
                await asyncio.sleep(0.01)

    asyncio.run(main())


def status(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Ask for the cluster's status."""
    return subprocess.run(
        [str(ROOST), "cluster", "status", "--cluster", url, *options],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def test_a_node_registers_is_seen_and_leaves(tmp_path: Path, meta: MetaProgram) -> None:
    url = f"meta://{meta.address}"
    alice = node(tmp_path / "alice", url, "--zone", "b2")
    until(alice, "registered")

    shown, told = status(url), status(url, "--json")
    stopped = alice.stop()
    later = status(url)

    assert shown.returncode == told.returncode == later.returncode == 0, shown.stderr
    first, titles, row = shown.stdout.splitlines()
    assert first == "cluster prod: 1 of 1 nodes are up"
    assert titles.split() == ["NODE", "ADDRESS", "ZONE", "STATE", "FREE", "LEDGERS"]
    address = alice.told("listening")["address"]
    assert row.split()[:4] == ["alice", address, "b2", "up"]
    fields = json.loads(told.stdout)
    assert (fields["cluster"], fields["node"], fields["state"]) == ("prod", "alice", "up")
    assert fields["uuid"] == alice.told("starting")["uuid"].replace("-", "")
    assert fields["free_bytes"] > 0
    assert stopped == 0
    assert later.stdout.splitlines()[2].split() == ["alice", address, "down"]


def test_another_folder_of_the_same_name_is_refused(tmp_path: Path, meta: MetaProgram) -> None:
    url = f"meta://{meta.address}"
    first = node(tmp_path / "first", url)
    until(first, "registered")

    second = node(tmp_path / "second", url, seed=2)

    assert second.process.wait(WAIT_S) == 1
    said = Path(f"{second.data}.said").read_text()
    assert "node 'alice' is known with uuid" in said
    assert "it does not hold what that node holds" in said
    assert first.stop() == 0


def test_a_node_outlives_its_metadata_and_registers_again(
    tmp_path: Path, meta: MetaProgram
) -> None:
    url = f"meta://{meta.address}"
    meta.kill()
    alice = node(tmp_path / "alice", url)
    until(alice, "not_registered")

    meta.start()

    until(alice, "registered")
    assert alice.stop() == 0
    assert meta.end() == 0
    assert '"event":"stopped"' in meta.said().splitlines()[-1]
    ran = status(url)
    assert ran.returncode == 1
    assert "cannot be reached" in ran.stderr


def test_where_no_node_has_registered_there_is_no_cluster(meta: MetaProgram) -> None:
    with_port = f"meta://{meta.address}"
    while (ran := status(with_port)).stderr.count("cannot be reached"):
        assert meta.process.poll() is None, meta.said()

    assert ran.returncode == 1
    assert "no node has ever registered" in ran.stderr
    assert status("ftp://nowhere").returncode == 2
