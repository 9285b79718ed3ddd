"""A process is killed in the middle of its sends: what was acknowledged is there."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from roost import FileChannel

ENOUGH = 3_000

CHILD = """
import sys
from roost import FileChannel
tx = FileChannel(sys.argv[1]).tx()
for number in range(10**9):
    tx.send(b"event-%d" % number)
    print(number, flush=True)
"""


def play(folder: Path) -> Iterator[str]:
    """Start a sender, kill it with SIGKILL, and read the folder."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        acknowledged = -1
        for line in child.stdout:
            if line.endswith("\n"):
                acknowledged = int(line)
            if acknowledged == ENOUGH:
                child.send_signal(signal.SIGKILL)
    yield f"the sender was killed; its last acknowledged message was number {acknowledged:,}"
    with FileChannel(folder, create=False) as channel:
        rx = channel.rx("reader")
        there = 0
        while (message := rx.try_recv()) is not None:
            assert message == b"event-%d" % there
            there += 1
        for finding in channel.stat().findings:
            yield f"recovery: {finding.text} ({finding.size} bytes)"
    assert there > acknowledged
    yield f"after reopening, all messages from 0 to {there - 1:,} are there, in order, once"
