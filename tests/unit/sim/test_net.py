"""The simulated network fails as TCP does: by stalls, resets and silence, never by a hole.

Two hosts, and a client that sends numbered lines to a server that keeps what it gets, one list for
each connection. Whatever befalls them, each list is a prefix of what was written on it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from roost.host.net import Address
from roost.host.seams import Seams
from roost.sim.medium import NetFaults
from roost.sim.world import Host, Process, World

SERVER = Address("server", 7)
SEEDS = range(10)
NO_ANSWER_S = 15.0


class End(asyncio.Protocol):
    """One end of a connection, and what became of it."""

    def __init__(self) -> None:
        self.text = b""
        self.lost_at = -1.0
        self.error: Exception | None = None
        self.paused = False
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.text += data

    def pause_writing(self) -> None:
        self.paused = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.lost_at = asyncio.get_running_loop().time()
        self.lost.set()


class HalfOpen(End):
    """Goes on after its peer has ended."""

    def eof_received(self) -> bool:
        return True


class Stage:
    """A server that keeps all it gets, and a client that does nothing by itself."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.accepted: list[End] = []
        self.client_host: Host = world.host("client")
        self.server_host: Host = world.host("server")
        self.server: Process = self.server_host.start("server", self._serve)
        self.client: Process = self.client_host.start("client", self._idle)
        self._seams: Seams

    async def connect(self, end: End | None = None) -> End:
        """Let the client's process connect."""
        made = end or End()
        loop = self._loop

        async def dial() -> None:
            await self._seams.net.connect(lambda: made, SERVER)

        # The process does it; the story only waits for it.
        self._dialling = loop.create_task(dial())
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._dialling.add_done_callback(lambda done: settle(done, outcome))
        await outcome
        return made

    def give_up(self) -> None:
        """Let the client no longer wait for its connection."""
        self._dialling.cancel()

    async def _serve(self, seams: Seams) -> None:
        def accept() -> End:
            self.accepted.append(End())
            return self.accepted[-1]

        await seams.net.listen(accept, SERVER)
        await asyncio.get_running_loop().create_future()

    async def _idle(self, seams: Seams) -> None:
        self._seams = seams
        self._loop = asyncio.get_running_loop()
        await self._loop.create_future()


def settle(done: asyncio.Task[None], outcome: asyncio.Future[None]) -> None:
    """Hand what became of a process's task to the story."""
    if done.cancelled():
        outcome.cancel()
    elif error := done.exception():
        outcome.set_exception(error)
    else:
        outcome.set_result(None)


def play(
    story: Callable[[Stage], Coroutine[Any, Any, None]],
    seed: int = 0,
    faults: NetFaults | None = None,
) -> dict[str, int]:
    """Tell a story on a new stage, and answer what was done to it."""
    with World(seed) as world:
        if faults is not None:
            world.network.misbehave(faults)
        stage = Stage(world)

        async def told() -> None:
            await asyncio.sleep(1)
            await story(stage)

        world.run(told)
        return world.faults


def line(number: int) -> bytes:
    return b"line %d\n" % number


def lines(before: int) -> bytes:
    return b"".join(map(line, range(before)))


def test_a_piece_takes_about_the_mean_delay() -> None:
    times: list[float] = []

    class Timing(End):
        def data_received(self, _data: bytes) -> None:
            times.append(asyncio.get_running_loop().time())

    async def story(stage: Stage) -> None:
        end = await stage.connect(Timing())
        begin = stage.world.now
        for number in range(200):
            stage.accepted[0].transport.write(b"x")
            await asyncio.sleep(1)
            times[-1] -= begin + number
        assert end.error is None

    play(story, faults=NetFaults(delay_mean_s=0.01))
    assert len(times) == 200
    assert min(times) > 0
    assert 0.007 < sum(times) / 200 < 0.013


def test_losses_and_delays_stall_but_never_leave_a_hole() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        for number in range(100):
            end.transport.write(line(number))
            await asyncio.sleep(0.1)
        await asyncio.sleep(60)
        text = stage.accepted[0].text
        assert text == lines(100)[: len(text)]
        assert text == lines(100) or isinstance(end.error, TimeoutError)

    rough = NetFaults(loses=0.1, delays_long=0.05, splits=0.3)
    faults = [play(story, seed, rough) for seed in SEEDS]

    assert all(done["loss"] > 0 for done in faults)
    assert any(done.get("connection given up") for done in faults)


def test_pieces_are_split_and_joined() -> None:
    sizes: list[int] = []

    class Sizing(End):
        def data_received(self, data: bytes) -> None:
            sizes.append(len(data))

    async def story(stage: Stage) -> None:
        await stage.connect(Sizing())
        for _ in range(200):
            stage.accepted[0].transport.write(b"12345678")
            await asyncio.sleep(0.0003)
        await asyncio.sleep(1)

    play(story, faults=NetFaults(splits=0.3))

    assert sum(sizes) == 1600
    assert min(sizes) < 8 < max(sizes)


def test_a_short_partition_delays_what_was_written() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        stage.world.network.block("client", "server")
        end.transport.write(lines(5))
        await asyncio.sleep(5)
        assert stage.accepted[0].text == b""

        stage.world.network.unblock("client", "server")
        await asyncio.sleep(5)
        assert stage.accepted[0].text == lines(5)
        assert end.error is None

    for seed in SEEDS:
        play(story, seed)


def test_what_was_under_way_when_a_partition_began_is_sent_again() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        for number in range(20):
            end.transport.write(line(number))
            if number == 9:
                stage.world.network.block("client", "server")
        await asyncio.sleep(5)
        assert stage.accepted[0].text == b""

        stage.world.network.unblock("client", "server")
        await asyncio.sleep(5)
        assert stage.accepted[0].text == lines(20)

    for seed in SEEDS:
        play(story, seed)


def test_nothing_overtakes_what_is_lost_for_good() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        stage.world.network.block("client", "server")
        for number in range(50):
            end.transport.write(line(number))
        stage.world.network.unblock("client", "server")
        await asyncio.sleep(60)
        text = stage.accepted[0].text
        assert text == lines(50)[: len(text)]

    for seed in range(30):
        play(story, seed, NetFaults(loses=0.5))


def test_closing_with_unread_bytes_is_a_reset_for_the_peer() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        stage.accepted[0].transport.pause_reading()
        end.transport.write(b"read me")
        await asyncio.sleep(1)
        stage.accepted[0].transport.close()
        await asyncio.sleep(1)
        assert isinstance(end.error, ConnectionResetError)

    play(story)


def test_a_reset_does_not_come_through_a_partition() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        stage.accepted[0].transport.pause_reading()
        end.transport.write(b"read me")
        await asyncio.sleep(1)
        stage.world.network.block("client", "server")
        stage.accepted[0].transport.close()
        await asyncio.sleep(1)
        assert end.lost_at < 0

    play(story)


def test_what_is_under_way_to_a_closed_peer_is_answered_with_a_reset() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect(HalfOpen())
        stage.world.network.clog("client", "server", for_s=5)
        end.transport.write(b"too late")
        stage.accepted[0].transport.close()
        await asyncio.sleep(4)
        assert end.lost_at < 0
        await asyncio.sleep(2)
        assert isinstance(end.error, ConnectionResetError)

    play(story)


def test_a_connection_that_nobody_waits_for_any_more_is_ended() -> None:
    async def story(stage: Stage) -> None:
        stage.world.network.clog("server", "client", for_s=5)
        connecting = asyncio.create_task(stage.connect())
        await asyncio.sleep(0.5)
        assert len(stage.accepted) == 1
        stage.give_up()
        await asyncio.sleep(10)
        assert stage.accepted[0].lost_at > 0
        assert connecting.done()
        with pytest.raises(asyncio.CancelledError):
            connecting.result()

    play(story)


def test_a_long_partition_ends_a_connection_for_who_writes() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        stage.world.network.block("client", "server")
        end.transport.write(b"is anybody there?")
        begin = stage.world.now
        await asyncio.sleep(2 * NO_ANSWER_S)
        assert isinstance(end.error, TimeoutError)
        assert NO_ANSWER_S <= end.lost_at - begin < 1.5 * NO_ANSWER_S
        # Who only listens, learns nothing.
        assert stage.accepted[0].lost_at < 0

        stage.world.network.unblock("client", "server")
        stage.accepted[0].transport.write(b"and you?")
        await asyncio.sleep(1)
        assert isinstance(stage.accepted[0].error, ConnectionResetError)

    for seed in SEEDS:
        play(story, seed)


def test_a_way_may_be_blocked_in_one_direction() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        stage.world.network.block("server", "client", both=False)
        end.transport.write(b"question")
        stage.accepted[0].transport.write(b"lost answer")
        await asyncio.sleep(1)
        assert stage.accepted[0].text == b"question"
        assert end.text == b""

        # The question arrived, but its sender cannot know.
        await asyncio.sleep(2 * NO_ANSWER_S)
        assert isinstance(end.error, TimeoutError)
        assert isinstance(stage.accepted[0].error, TimeoutError)

    play(story)


def test_a_clogged_way_lets_everything_through_at_once() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        end.transport.write(b"before ")
        stage.world.network.clog("client", "server", for_s=3)
        end.transport.write(b"behind")
        await asyncio.sleep(2.9)
        assert stage.accepted[0].text == b""
        await asyncio.sleep(0.2)
        assert stage.accepted[0].text == b"before behind"

    for seed in SEEDS:
        play(story, seed)


def test_a_narrow_way_takes_its_time() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        stage.world.network.narrow("client", "server", bytes_per_s=1000)
        for _ in range(10):
            end.transport.write(bytes(500))
        await asyncio.sleep(2)
        assert 1500 <= len(stage.accepted[0].text) <= 2000
        await asyncio.sleep(4)
        assert len(stage.accepted[0].text) == 5000

    play(story)


def test_a_killed_process_is_missed_at_once_and_what_it_wrote_arrives() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        end.transport.write(lines(50))
        stage.client.kill()
        await asyncio.sleep(1)
        assert stage.accepted[0].text == lines(50)
        assert stage.accepted[0].lost_at > 0

    for seed in SEEDS:
        play(story, seed)


def test_the_buffer_of_a_killed_process_is_lost_with_it() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        stage.accepted[0].transport.pause_reading()
        end.transport.write(bytes(100_000))
        assert end.transport.get_write_buffer_size() == 100_000 - 4096
        stage.client.kill()
        await asyncio.sleep(1)
        stage.accepted[0].transport.resume_reading()
        await asyncio.sleep(1)
        assert len(stage.accepted[0].text) == 4096

    play(story, faults=NetFaults(window_bytes=4096))


def test_a_crashed_host_leaves_its_peers_half_open() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        stage.server_host.crash()
        await asyncio.sleep(1000)
        assert end.lost_at < 0, "nothing tells"

        end.transport.write(b"is anybody there?")
        begin = stage.world.now
        await asyncio.sleep(2 * NO_ANSWER_S)
        assert isinstance(end.error, TimeoutError)
        assert end.lost_at >= begin + NO_ANSWER_S

    for seed in SEEDS:
        play(story, seed)


def test_what_a_crashed_machine_had_still_to_send_is_gone() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        end.transport.write(b"under way")
        stage.world.network.block("client", "server")
        end.transport.write(b"waiting")
        stage.client_host.crash()
        stage.world.network.unblock("client", "server")
        await asyncio.sleep(2 * NO_ANSWER_S)
        assert stage.accepted[0].text in (b"under way", b"")
        assert stage.accepted[0].lost_at < 0

        # What the way holds back is not sent again by a machine that forgot it.
        stage.world.network.block("client", "server")
        stage.client.restart()
        await asyncio.sleep(2 * NO_ANSWER_S)
        assert stage.accepted[0].lost_at < 0

    for seed in SEEDS:
        play(story, seed)


def test_what_a_partition_took_from_a_machine_that_crashed_is_gone() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        end.transport.write(b"under way")
        stage.world.network.block("client", "server")
        stage.client_host.crash()
        await asyncio.sleep(1)
        stage.world.network.unblock("client", "server")
        await asyncio.sleep(2 * NO_ANSWER_S)
        assert stage.accepted[0].text == b""
        assert stage.accepted[0].lost_at < 0

    play(story)


def test_writes_to_a_half_open_connection_vanish_and_soon_pause_the_writer() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        stage.server_host.crash()
        for _ in range(100):
            end.transport.write(bytes(10_000))
        assert end.paused

    play(story)


def test_a_host_that_came_back_resets_the_connections_of_its_former_life() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        stage.server_host.crash()
        await asyncio.sleep(1)
        stage.server.restart()
        await asyncio.sleep(1)
        end.transport.write(b"do you remember me?")
        await asyncio.sleep(1)
        assert isinstance(end.error, ConnectionResetError)
        assert [server.text for server in stage.accepted] == [b""]

    for seed in SEEDS:
        play(story, seed)


def test_bytes_of_an_old_connection_may_come_after_those_of_a_new_one() -> None:
    def order(seed: int) -> str:
        arrived: list[str] = []

        async def story(stage: Stage) -> None:
            old = await stage.connect()
            old.transport.write(b"old")
            old.transport.abort()
            new = await stage.connect()
            new.transport.write(b"new")
            for _ in range(2000):
                await asyncio.sleep(0.01)
                for end in stage.accepted:
                    if end.text and end.text.decode() not in arrived:
                        arrived.append(end.text.decode())

        play(story, seed, NetFaults(lingers=0.5))
        return " ".join(arrived)

    assert {order(seed) for seed in SEEDS} == {"old new", "new old"}


def test_nobody_listens_is_not_nobody_answers() -> None:
    async def story(stage: Stage) -> None:
        stage.server.kill()
        begin = stage.world.now
        with pytest.raises(ConnectionRefusedError, match="server:7"):
            await stage.connect()
        assert stage.world.now - begin < 0.1

        stage.server_host.crash()
        begin = stage.world.now
        with pytest.raises(TimeoutError, match="server:7"):
            await stage.connect()
        assert stage.world.now - begin == pytest.approx(NO_ANSWER_S, abs=0.1)

    play(story)


def test_calls_that_are_lost_are_given_up_in_the_end() -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(TimeoutError):
            await stage.connect()

    play(story, faults=NetFaults(loses=1.0))


def test_a_call_is_repeated_until_it_comes_through() -> None:
    async def story(stage: Stage) -> None:
        stage.world.network.block("client", "server")
        unblock = stage.world.network.unblock
        asyncio.get_running_loop().call_later(2, unblock, "client", "server")
        await stage.connect()
        assert len(stage.accepted) == 1

    play(story)


def test_a_stopped_process_is_connected_to_by_its_kernel() -> None:
    async def story(stage: Stage) -> None:
        stage.server.pause()
        end = await stage.connect()
        end.transport.write(b"take your time")
        await asyncio.sleep(100)
        assert stage.accepted == []

        stage.server.resume()
        await asyncio.sleep(1)
        assert stage.accepted[0].text == b"take your time"

    play(story)


def test_loopback_listeners_are_for_their_own_host() -> None:
    async def story(stage: Stage) -> None:
        async def listen(seams: Seams) -> None:
            await seams.net.listen(End, Address("127.0.0.1", 8))
            await seams.net.connect(End, Address("localhost", 8))
            await asyncio.get_running_loop().create_future()

        async def call(seams: Seams) -> None:
            with pytest.raises(ConnectionRefusedError):
                await seams.net.connect(End, Address("server", 8))

        stage.server_host.start("local", listen)
        await asyncio.sleep(1)
        caller = stage.client_host.start("caller", call)
        await caller.ended.wait()

    play(story)


def test_unknown_and_foreign_hosts_are_errors() -> None:
    async def story(stage: Stage) -> None:
        async def program(seams: Seams) -> None:
            with pytest.raises(OSError, match="no host nowhere"):
                await seams.net.connect(End, Address("nowhere", 8))
            with pytest.raises(OSError, match="server is not client"):
                await seams.net.listen(End, Address("server", 8))

        await stage.client_host.start("program", program).ended.wait()

    play(story)


def test_healing_opens_all_ways() -> None:
    async def story(stage: Stage) -> None:
        end = await stage.connect()
        stage.world.network.block("client", "server")
        stage.world.network.clog("server", "client", for_s=1000)
        stage.world.network.narrow("client", "server", bytes_per_s=1)
        end.transport.write(lines(10))
        stage.world.network.heal()
        await asyncio.sleep(5)
        assert stage.accepted[0].text == lines(10)
        for one, other in ((end, stage.accepted[0]), (stage.accepted[0], end)):
            one.transport.write(b"well")
            await asyncio.sleep(0.1)
            assert other.text.endswith(b"well")

    play(story, faults=NetFaults(splits=1.0, loses=0.0))
