"""SIGKILL in a storm of sends: what was acknowledged is there, in order, and nothing is doubled.

A real process sends from three threads and receives in two, and is killed at a random moment, again
and again over the same folder. What it was told comes through a pipe that is drained all the time,
so that it never stops at a full one. Between two rounds the folder is opened here and compared with
everything that was ever said about it.
"""

import os
import random
import select
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import pytest

from roost import FileChannel
from roost.types import Durability
from tests.crash.storm import Round, message

ROUNDS: Final = 100
ROUNDS_PER_FOLDER: Final = 10
WAIT_S: Final = 30.0
STORM: Final = Path(__file__).with_name("storm.py")


class Killer:
    """Starts rounds in the victim, kills them, and gives what they said."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(STORM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._rest = b""

    def run(self, this: Round, *, lines: int, after_s: float) -> list[list[str]]:
        """Let a round say so many lines, wait a little longer, kill it, and read to its end."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(this) + b"\n")
        said: list[list[str]] = []
        self._read(said, lambda: len(said) > lines)
        assert said[0][0] == "pid"
        kill_at = time.monotonic() + after_s
        self._read(said, lambda: time.monotonic() >= kill_at)
        os.kill(int(said[0][1]), signal.SIGKILL)
        self._read(said, lambda: said[-1] == ["end"])
        return said[1:-1]

    def _read(self, said: list[list[str]], done: Callable[[], bool]) -> None:
        assert self._process.stdout is not None
        deadline = time.monotonic() + WAIT_S
        while not done():
            assert time.monotonic() < deadline, "the victim says nothing any more"
            ready, _, _ = select.select([self._process.stdout], [], [], 0.001)
            if ready:
                got = os.read(self._process.stdout.fileno(), 1 << 20)
                assert got, "the victim's server is gone"
                *whole, self._rest = (self._rest + got).split(b"\n")
                said += [line.decode().split() for line in whole]

    def end(self) -> None:
        """Let the server go."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        self._process.stdout.close()


def name(payload: bytes) -> str:
    """Tell which message it is: round, sender and number."""
    return payload.split()[0].decode()


class Account:
    """One folder, and all that is known about what must be in it."""

    def __init__(self, folder: Path, mode: Durability, *, witnessed: bool) -> None:
        self.folder: Final = folder
        self.mode: Final = mode
        self.witnessed: Final = witnessed
        self.begins: list[int] = []
        self.messages: list[bytes] = []
        self.next: dict[str, int] = {"auto": 0, "hand": 0}
        with FileChannel(folder, durability=mode) as channel:
            for receiver in ["auto", "hand", *(["witness"] if witnessed else [])]:
                channel.rx(receiver)

    def settle(self, this: Round, said: list[list[str]]) -> None:
        """Open the folder after a round, and compare it with what was said."""
        with FileChannel(self.folder, durability=self.mode) as channel:
            stat = channel.stat()
            assert {finding.kind for finding in stat.findings} <= {"torn"}
            assert stat.incarnation == 0
            positions = {rx.name: rx.position for rx in stat.receivers}
            look = channel.rx("look", auto_ack=False)
            found = look.peek_many(100_000_000)
            look.close()
            channel.remove_receiver("look")
        kept = bisect_left(self.begins, stat.head)
        known = self.messages[kept:]
        assert found[: len(known)] == known, "what was there before is not there any more"
        fresh = found[len(known) :]
        taken = {r: [w[2] for w in said if w[:2] == ["took", r]] for r in ("auto", "hand")}
        self._check_senders(this, said, fresh, {*taken["hand"]})
        self.messages = self.messages[:kept] + found if self.witnessed else found
        first = stat.head if not self.witnessed else 0
        self.begins = [first]
        for payload in self.messages:
            self.begins.append(self.begins[-1] + 8 + len(payload))
        assert self.begins[-1] == stat.tail
        for receiver in ("auto", "hand"):
            self._check_receiver(receiver, taken[receiver], said, positions[receiver])

    def _check_senders(
        self, this: Round, said: list[list[str]], fresh: list[bytes], taken: set[str]
    ) -> None:
        """Each sender's messages are there, whole, in order, once, up to the last acknowledged."""
        acknowledged = {int(words[1]): int(words[2]) for words in said if words[0] == "sent"}
        for sender in range(3):
            own = [p for p in fresh if name(p).startswith(f"{this.number}.{sender}.")]
            numbers = [int(name(payload).split(".")[2]) for payload in own]
            assert own == [message(this, sender, number) for number in numbers]
            assert all(after == before + 1 for before, after in pairwise(numbers))
            before = range(numbers[0] if numbers else acknowledged.get(sender, -1) + 1)
            assert {f"{this.number}.{sender}.{number}" for number in before} <= taken
            last = numbers[-1] if numbers else len(before) - 1
            acked = acknowledged.get(sender, -1)
            assert acked <= last <= acked + (1 if sender < 2 else 29), "acknowledged and lost"
        assert {name(payload).split(".")[0] for payload in fresh} <= {str(this.number)}

    def _check_receiver(
        self, receiver: str, taken: list[str], said: list[list[str]], position: int
    ) -> None:
        """Each receiver got every message once, in order, and stands no further than it was led."""
        assert len({*taken}) == len(taken), "a message was given twice"
        at = bisect_left(self.begins, position)
        assert self.begins[at] == position, "a position within a message"
        names = [name(payload) for payload in self.messages]
        done, perhaps = len(taken), len(taken) + 1
        if receiver == "hand":
            acks = {kind: [w[1] for w in said if w[0] == kind] for kind in ("acked", "acking")}
            done, perhaps = (
                taken.index(acks[kind][-1]) + 1 if acks[kind] else 0 for kind in ("acked", "acking")
            )
        if self.witnessed:
            start = self.next[receiver]
            assert names[start : start + len(taken)] == taken
            assert start + done <= at <= start + perhaps
        else:
            rests = [taken[index:] for index in {done, min(perhaps, len(taken))}]
            assert any(names[at : at + len(rest)] == rest for rest in rests)
        self.next[receiver] = at


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    """One interpreter that forks all victims."""
    killer = Killer()
    yield killer
    killer.end()


@pytest.mark.parametrize("mode", ["fsync", "interval", "os"])
def test_a_killed_process_loses_nothing_that_it_acknowledged(
    tmp_path: Path, killer: Killer, mode: Durability
) -> None:
    rng = random.Random(f"sigkill {mode}")
    acknowledged = 0
    for folder_number in range(ROUNDS // ROUNDS_PER_FOLDER):
        account = Account(tmp_path / f"{folder_number}", mode, witnessed=folder_number % 2 == 0)
        compression = rng.choice([None, "snappy", "gzip", "zstd"])
        for number in range(ROUNDS_PER_FOLDER):
            this = Round(
                folder=str(account.folder),
                mode=mode,
                number=number,
                segment_bytes=rng.choice([1, 500, 5000, 50_000, 1 << 20]),
                compression=compression,
                mapped=rng.random() < 0.8,
                size=rng.choice([1, 30, 300, 5000]),
            )
            said = killer.run(this, lines=rng.randrange(1, 60), after_s=rng.random() ** 2 * 0.03)
            account.settle(this, said)
            acknowledged += sum(words[0] == "sent" for words in said)
    assert acknowledged > 10 * ROUNDS, "that was no storm"
