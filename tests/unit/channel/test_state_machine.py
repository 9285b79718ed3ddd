"""Any history of a channel, compared with a list of messages and a few numbers.

Hypothesis plays senders, receivers, restarts, crashes and a disk that fails, in any order, on a
simulated disk and with workers that do one step at a time. After each step the channel must say
what the model says; after each crash it must hold what the model allows.

`make test` plays the same few histories each time. To look for new ones, for half an hour:
`pytest tests/unit/channel/test_state_machine.py --hypothesis-profile=long --timeout=0`.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from roost import Closed, Corrupt, FileChannel, Invalid, NoRoom, Unavailable, Unknown
from roost.channel.receiver import Receiver
from roost.segments.kernel import frame
from roost.segments.windows import Windows
from roost.sim.disk import SimDisk
from roost.sim.drive import PowerLoss
from roost.sim.faults import DiskFaults, Keep
from roost.types import Durability
from tests.unit.channel.model import Message, Model, Reader
from tests.unit.channel.stepped import SteppedClock, SteppedTasks

FOLDER = Path("/queue")
FLUSH = "roost-flush"
WINDOWS = Windows(bytes_min=4096, bytes_max=16384)
COUNT_ALL = 10_000
NAMES = ("a", "b", "c")
AUDIT = "audit"

T = TypeVar("T")
Ending = Literal["close", "kill", "crash"]


class Options(msgspec.Struct, frozen=True):
    """How the channel is opened the next time."""

    durability: Durability
    compressed: bool | None
    segment_bytes: int
    mapped: bool


OPTIONS = st.builds(
    Options,
    durability=st.sampled_from(("fsync", "interval", "os")),
    compressed=st.sampled_from((True, None, False)),
    segment_bytes=st.sampled_from((1, 300, 2000, 9000)),
    mapped=st.sampled_from((True, True, False)),
)
# With and without room for it in the window; what fills it looks like nothing, noise, or frames.
SIZES = st.sampled_from((1, 8, 30, 120, 600, 3000, 5000))
FILLERS = st.sampled_from((b"\0", b"roost", frame(b"inner")))
ENDINGS = st.sampled_from(("close", "kill", "crash"))
KEEPS = st.sampled_from((None, None, "all", "none", "some"))
PICK = st.integers(0, 7)
COUNTS = st.sampled_from((1, 2, 5, 20, 100))
FAULTS = st.sampled_from(
    (
        {"sync_fails": 1.0},
        {"sync_fails": 0.3},
        {"sync_fails": 0.3, "evicts": 0.5},
        {"write_fails": 0.5},
        {"read_fails": 0.3},
        {"capacity_bytes": 0},
    )
)


Act = tuple[str, int]
"""Something that may be cut short, and a number that says more about it."""

ACTS = st.tuples(
    st.sampled_from(
        (
            "send",
            "send_many",
            "work",
            "wait",
            "sync",
            "reopen",
            "open_receiver",
            "remove_receiver",
            "recv",
            "recv_many",
            "ack",
        )
    ),
    st.integers(0, 20),
)
LUCK = st.integers(0, 2**16)


class History(RuleBasedStateMachine):
    """One channel through its lives."""

    channel: FileChannel[bytes]
    closed: bool

    @initialize(
        method=st.sampled_from(("snappy", "gzip", "zstd")),
        options=OPTIONS,
    )
    def begin(self, method: str, options: Options) -> None:
        self.rng = random.Random(0)
        self.disk = SimDisk(self.rng)
        self.clock = SteppedClock()
        self.tasks = SteppedTasks(self.clock)
        self.method = method
        self.model = Model()
        self.handles: list[tuple[Reader, Receiver[bytes]]] = []
        self.sent = 0
        self.troubled = False
        self._open(options)

    # What programs do

    @rule(size=SIZES, filler=FILLERS)
    def send(self, size: int, filler: bytes) -> None:
        (payload,) = self._payloads([size], filler)
        self.model.sending([payload])
        begin = self._settled(partial(self.channel.tx().send, payload))
        assert begin == self.model.in_flight[0].begin
        self.model.sent()

    @rule(sizes=st.lists(SIZES, min_size=1, max_size=6), filler=FILLERS)
    def send_many(self, sizes: list[int], filler: bytes) -> None:
        payloads = self._payloads(sizes, filler)
        self.model.sending(payloads)
        begin = self._settled(partial(self.channel.tx().send_many, payloads))
        assert begin == self.model.in_flight[0].begin
        self.model.sent()

    @rule(name=st.sampled_from(NAMES), start=st.integers(-2, 7), auto_ack=st.booleans())
    def open_receiver(self, name: str, start: int, auto_ack: bool) -> None:
        known = self.model.readers.get(name)
        if known is not None and known.handles and known.auto_ack != auto_ack:
            with pytest.raises(Invalid, match="auto_ack"):
                self.channel.rx(name, auto_ack=auto_ack)
            return
        if known is None:
            self.model.in_doubt = name
            self._add(name, self._place(start), auto_ack=auto_ack)
            self.model.in_doubt = ""
        else:
            receiver = self.channel.rx(name, start="head", auto_ack=auto_ack)
            self.handles.append((known, receiver))
            known.auto_ack = auto_ack
            known.handles += 1

    def _add(self, name: str, place: int | str, *, auto_ack: bool) -> None:
        receiver = self.channel.rx(name, start=place, auto_ack=auto_ack)
        words = {"head": self.channel.stat().head, "tail": self.model.end}
        at = words[place] if isinstance(place, str) else place
        reader = Reader(name=name, id=receiver.id, cursor=at, floor=at, auto_ack=auto_ack)
        assert reader.id not in {other.id for other in self.model.readers.values()}
        reader.handles = 1
        self.model.positions_durable()
        self.model.readers[name] = reader
        self.handles.append((reader, receiver))

    def _place(self, start: int) -> int | str:
        """Choose where a new receiver begins: an end, or the begin of some message."""
        if start < 0:
            return "head" if start == -1 else "tail"
        head = self.channel.stat().head
        begins = [message.begin for message in self.model.next_for(head)]
        return begins[start % len(begins)] if begins else head

    @precondition(lambda self: self.handles)
    @rule(pick=PICK)
    def close_handle(self, pick: int) -> None:
        reader, receiver = self.handles.pop(pick % len(self.handles))
        receiver.close()
        receiver.close()
        self.model.let_go(reader)
        with pytest.raises(Closed):
            receiver.recv(0)

    @precondition(lambda self: self.model.readers)
    @rule(pick=PICK)
    def remove_receiver(self, pick: int) -> None:
        reader = sorted(self.model.readers.values(), key=lambda one: one.name)[
            pick % len(self.model.readers)
        ]
        if reader.handles:
            with pytest.raises(Invalid, match="in use"):
                self.channel.remove_receiver(reader.name)
            return
        self.model.in_doubt = reader.name
        self.channel.remove_receiver(reader.name)
        self.model.in_doubt = ""
        del self.model.readers[reader.name]
        self.model.positions_durable()

    @precondition(lambda self: self.handles)
    @rule(pick=PICK, waits=st.booleans())
    def recv(self, pick: int, waits: bool) -> None:
        reader, receiver = self.handles[pick % len(self.handles)]
        expected = self.model.next_for(reader.cursor)[:1]
        reader.moving = True
        if waits and not expected:
            with pytest.raises(TimeoutError):
                receiver.recv(0)
        else:
            receive = partial(receiver.recv, 0) if waits else partial(receiver.try_recv, None)
            payload = self._settled(receive)
            assert payload == (expected[0].payload if expected else None)
        self.model.took(reader, 1)

    @precondition(lambda self: self.handles)
    @rule(pick=PICK, count_max=COUNTS, bytes_max=st.sampled_from((1, 1000, 100_000)))
    def recv_many(self, pick: int, count_max: int, bytes_max: int) -> None:
        reader, receiver = self.handles[pick % len(self.handles)]
        expected = [message.payload for message in self.model.next_for(reader.cursor)]
        reader.moving = True
        if not expected:
            with pytest.raises(TimeoutError):
                receiver.recv_many(count_max, 0)
            self.model.took(reader, 0)
            return
        payloads = self._settled(partial(receiver.recv_many, count_max, 0, bytes_max=bytes_max))
        assert 1 <= len(payloads) <= count_max
        assert payloads == expected[: len(payloads)]
        assert sum(map(len, payloads[:-1])) < bytes_max
        self.model.took(reader, len(payloads))

    @precondition(lambda self: self.handles)
    @rule(pick=PICK, count_max=COUNTS, luck=LUCK)
    def recv_many_while_reads_fail(self, pick: int, count_max: int, luck: int) -> None:
        self.rng.seed(luck)
        self.disk.faults = msgspec.structs.replace(self.disk.faults, read_fails=0.3)
        try:
            self.recv_many(pick, count_max, 100_000)
        except Unavailable:
            self.model.refused()
        self._calm()

    @precondition(lambda self: self.handles)
    @rule(pick=PICK, count_max=COUNTS)
    def peek(self, pick: int, count_max: int) -> None:
        reader, receiver = self.handles[pick % len(self.handles)]
        expected = [message.payload for message in self.model.next_for(reader.cursor)]
        assert receiver.peek_many(count_max) == expected[:count_max]
        assert receiver.peek() == (expected[0] if expected else None)

    @precondition(lambda self: self.handles)
    @rule(pick=PICK, count=st.integers(-1, 6))
    def ack(self, pick: int, count: int) -> None:
        reader, receiver = self.handles[pick % len(self.handles)]
        if reader.auto_ack or not 0 <= count <= len(reader.out):
            with pytest.raises(Invalid):
                receiver.ack(count)
            return
        reader.moving = True
        self._settled(partial(receiver.ack, count))
        del reader.out[:count]
        self.model.kept(reader)

    @precondition(lambda self: self.handles)
    @rule(pick=PICK)
    def skip_corrupt_where_nothing_is(self, pick: int) -> None:
        _, receiver = self.handles[pick % len(self.handles)]
        assert receiver.skip_corrupt() == 0

    @rule()
    def sync(self) -> None:
        self.tasks.finish(FLUSH)
        self.channel.sync()
        self.model.all_durable()

    # What happens beside them

    @rule(pick=PICK, steps=st.sampled_from((1, 2, 3, 5, 30)))
    def work(self, pick: int, steps: int) -> None:
        names = self.tasks.names()
        for _ in range(steps):
            self.tasks.step(names[pick % len(names)])

    @rule(steps=st.integers(0, 5), seconds=st.sampled_from((0.01, 0.06, 0.3)))
    def wait(self, steps: int, seconds: float) -> None:
        self.clock.advance(seconds)
        for _ in range(steps):
            self.tasks.step(FLUSH)

    @rule(options=OPTIONS)
    def reopen(self, options: Options) -> None:
        self._close()
        self._open(options)

    @rule(options=OPTIONS)
    def kill(self, options: Options) -> None:
        self.model.stayed_on()
        self._end("kill")
        self._open(options)

    @rule(options=OPTIONS, keep=KEEPS, luck=LUCK)
    def crash(self, options: Options, keep: Keep | None, luck: int) -> None:
        self.rng.seed(luck)
        self.model.lost_power()
        self._end("crash", keep)
        self._open(options)

    @rule(
        act=ACTS,
        after=st.integers(1, 30),
        ending=st.sampled_from(("kill", "crash")),
        keep=KEEPS,
        options=OPTIONS,
        luck=LUCK,
    )
    def end_in_the_middle(
        self,
        *,
        act: Act,
        after: int,
        ending: Ending,
        keep: Keep | None,
        options: Options,
        luck: int,
    ) -> None:
        self.rng.seed(luck)
        self.disk.lose_power_after(after)
        with suppress(PowerLoss):
            self._do(act, options)
        if ending == "kill":
            self.model.stayed_on()
        else:
            self.model.lost_power()
        self._end(ending, keep)
        self._open(options)

    @rule(act=ACTS, faults=FAULTS, ending=ENDINGS, options=OPTIONS, luck=LUCK)
    def fail(
        self, act: Act, faults: dict[str, float], ending: Ending, options: Options, luck: int
    ) -> None:
        self.rng.seed(luck)
        self.disk.faults = msgspec.structs.replace(self.disk.faults, **faults)
        self.troubled = True
        try:
            self._do(act, options)
        except (NoRoom, Unavailable):
            self.model.refused()
        except Unknown:
            self._calm()
            assert self.closed or self.channel.stat().failure
        except Corrupt:
            # A segment that cannot be read keeps a channel from being opened.
            assert self.closed
            assert "read_fails" in faults
        self._calm()
        if self.closed or self.channel.stat().failure:
            self._recover_from_failure(ending, options)
        else:
            self._look_who_is_there()

    def _recover_from_failure(self, ending: Ending, options: Options) -> None:
        if not self.closed:
            with pytest.raises(Unavailable):
                self.channel.tx().send(b"refused")
        self.model.lost_power()
        if ending != "close":
            self._end(ending)
        elif not self.closed:
            self.closed = True
            self.channel.close()
        self._open(options)

    def _look_who_is_there(self) -> None:
        """See whether the receiver that was to be made or removed is there."""
        for stat in self.channel.receivers():
            if stat.name == self.model.in_doubt and stat.name not in self.model.readers:
                reader = Reader(
                    name=stat.name, id=stat.id, cursor=stat.position, floor=stat.position
                )
                self.model.readers[stat.name] = reader
        self.model.in_doubt = ""

    def _do(self, act: Act, options: Options) -> None:
        """Do something that may be cut short."""
        name, number = act
        match name:
            case "send":
                self.send((30, 600, 5000)[number % 3], b"roost")
            case "send_many":
                self.send_many([(30, 600)[number >> n & 1] for n in range(4)], b"\0")
            case "work":
                self.work(number, 5 + number)
            case "wait":
                self.wait(number, 0.3)
            case "sync":
                self.sync()
            case "reopen":
                self.reopen(options)
            case "open_receiver":
                self.open_receiver(NAMES[number % 3], number % 9 - 2, bool(number % 2))
            case _:
                self._do_with_receiver(act)

    def _do_with_receiver(self, act: Act) -> None:
        """Do something that may be cut short, if there is a receiver to do it with."""
        name, number = act
        match name:
            case "remove_receiver" if self.model.readers:
                self.remove_receiver(number)
            case "recv" if self.handles:
                self.recv(number, waits=False)
            case "recv_many" if self.handles:
                self.recv_many(number, 1 + number, 100_000)
            case "ack" if self.handles:
                self.ack(number, 1 + number % 3)
            case _:
                self.work(0, number)

    # The steps that all of this is made of

    def _payloads(self, sizes: list[int], filler: bytes) -> list[bytes]:
        payloads = []
        for size in sizes:
            self.sent += 1
            head = b"%d:" % self.sent if size >= 8 else b""
            payloads.append((head + filler * size)[: size - 1] + b"%d" % (self.sent % 10))
        return payloads

    def _settled(self, call: Callable[[], T]) -> T:
        """Make a call that may wait for a sync: nobody else may be in the middle of one."""
        if self.model.durability == "fsync":
            self.tasks.finish(FLUSH)
        return call()

    def _open(self, options: Options) -> None:
        reason = "" if options.mapped else "it is not wanted"
        self.disk.faults = msgspec.structs.replace(self.disk.faults, mapping=reason)
        self.handles = []
        self.tasks = SteppedTasks(self.clock)
        compressions = {True: self.method, False: "off", None: None}
        self.channel = FileChannel(
            FOLDER,
            durability=options.durability,
            segment_bytes=options.segment_bytes,
            compression=compressions[options.compressed],
            disk=self.disk,
            tasks=self.tasks,
            clock=self.clock,
            windows=WINDOWS,
        )
        self.closed = False
        self._calm()
        self._take_over(options.durability)

    def _take_over(self, durability: Durability) -> None:
        """Compare what is there with what may be there, through a receiver that sees it all."""
        if AUDIT in {receiver.name for receiver in self.channel.receivers()}:
            self.channel.remove_receiver(AUDIT)
        stat = self.channel.stat()
        with self.channel.rx(AUDIT) as receiver:
            content: list[Message] = []
            for payload in receiver.peek_many(COUNT_ALL):
                content.append(Message(content[-1].end if content else stat.head, payload))
        self.channel.remove_receiver(AUDIT)
        self.model.recovered(stat, content)
        self.model.durability = durability
        self.model.in_doubt = ""
        self.troubled = False

    def _calm(self) -> None:
        """Let the disk do as it should."""
        self.disk.faults = DiskFaults(mapping=self.disk.faults.mapping)

    def _close(self) -> None:
        self.closed = True
        self.channel.close()
        self.model.all_durable()
        with pytest.raises(Closed):
            self.channel.tx().send(b"late")

    def _end(self, ending: Ending, keep: Keep | None = None) -> None:
        """End the program as it stands."""
        self.closed = True
        self.disk.halt()
        self.tasks.abandon()
        if ending == "kill":
            self.disk.kill()
        else:
            self.disk.crash(keep)

    @invariant()
    def it_says_what_the_model_says(self) -> None:
        stat = self.channel.stat()
        assert self.troubled or not stat.trouble
        self.model.check(stat)
        for reader, receiver in self.handles:
            assert receiver.unack_count == len(reader.out)
            assert receiver.position == reader.position

    def teardown(self) -> None:
        self.disk.halt()
        self.tasks.abandon()


TestHistory = History.TestCase
if settings.get_current_profile_name() == "steady":
    TestHistory.settings = settings(max_examples=350)
