"""A replicated ledger outlives its writer, and the loss of a node."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import roost
from roost.blocking.cluster import Cluster, Writer

NAMES = ("alice", "bob", "carol", "dave")
BATCH = [b"event" for _ in range(100)]
ENOUGH = 100
ROOST = str(Path(sys.executable).with_name("roost"))


def play(folder: Path) -> Iterator[str]:
    """Write to real nodes, kill the writer, kill a node, and see what is there."""
    with ExitStack() as started:
        _, said = started.enter_context(
            running(["meta", "--data", str(folder), "--listen", "127.0.0.1:0"], "listening")
        )
        url = f"meta://{said['address']}"
        nodes = {name: node(folder, name, url, started) for name in NAMES}
        yield f"{len(nodes)} nodes at {url}; an entry goes to 3 of them, and 2 must have it"
        with roost.connect(url) as cluster:
            yield from a_writer_is_killed(cluster, url)
            yield from a_node_is_killed(cluster, nodes)


def a_writer_is_killed(cluster: Cluster, url: str) -> Iterator[str]:
    """Kill a process in the middle of its appends, and end its ledger for it."""
    command = [sys.executable, "-m", "demo.ledger", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ledger = int(process.stdout.readline())
        acknowledged = [int(process.stdout.readline()) for _ in range(ENOUGH)]
        process.kill()
        acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]
    yield f"a writer was killed; entries 0 to {acknowledged[-1]:,} of its ledger were acknowledged"
    began = time.perf_counter()
    document = cluster.recover(ledger)
    took_ms = 1e3 * (time.perf_counter() - began)
    there = sum(1 for _ in cluster.read(ledger))
    assert document.last is not None
    assert there == document.last + 1 > acknowledged[-1]
    yield f"its ledger was recovered in {took_ms:.0f} ms: entries 0 to {there - 1:,}, none is lost"


def a_node_is_killed(cluster: Cluster, nodes: dict[str, "subprocess.Popen[str]"]) -> Iterator[str]:
    """Kill a node while a ledger is written to it, and give what it had to another one."""
    with cluster.create() as writer:
        stalls = [appended_s(writer) for _ in range(20)]
        gone = writer.document.fragments[-1].nodes[0]
        nodes[gone].send_signal(signal.SIGKILL)
        stalls += [appended_s(writer) for _ in range(20)]
        others = writer.document.fragments[-1].nodes
    yield (
        f"{gone} was killed under a writer: it went on with {', '.join(others)}, and its slowest "
        f"{len(BATCH)} entries took {1e3 * max(stalls):.0f} ms"
    )
    whole = cluster.repair(writer.ledger, gone=[gone])
    copies = cluster.verify(writer.ledger)
    assert whole
    assert all(each.whole for each in copies)
    named = ", ".join(each.node for each in copies)
    yield f"the ledger was repaired: {copies[0].entries:,} entries are whole on {named}"


def appended_s(writer: Writer) -> float:
    """Append some entries, and tell how long they took."""
    began = time.perf_counter()
    writer.append_many(BATCH)
    return time.perf_counter() - began


def node(folder: Path, name: str, url: str, started: ExitStack) -> "subprocess.Popen[str]":
    """Format and start a node."""
    data = f"{folder}-{name}"
    made = [ROOST, "node", "format", "--data", data, "--cluster-id", "demo", "--node-id", name]
    subprocess.run(made, check=True, capture_output=True)
    options = ["node", "--data", data, "--listen", "127.0.0.1:0", "--http", "off"]
    return started.enter_context(running([*options, "--cluster", url], "registered"))[0]


@contextmanager
def running(
    arguments: Sequence[str], event: str
) -> Iterator[tuple["subprocess.Popen[str]", dict[str, str]]]:
    """Start a process of Roost, and wait until it says something; it is killed in the end."""
    command = [ROOST, *arguments, "--log-format", "json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            events = map(json.loads, process.stderr)
            yield process, next(each for each in events if each["event"] == event)
        finally:
            process.kill()


def write(url: str) -> None:
    """Append for ever, and say what was acknowledged."""
    with roost.connect(url) as cluster, cluster.create() as writer:
        print(writer.ledger, flush=True)
        while True:
            print(writer.append_many(BATCH)[-1], flush=True)


if __name__ == "__main__":
    write(sys.argv[1])
