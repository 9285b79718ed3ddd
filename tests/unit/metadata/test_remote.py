"""A served store, when its server goes away, comes back, is another one, or misbehaves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from roost.cli.machine import seams
from roost.errors import Denied, Invalid, Unavailable, Unknown
from roost.host.log import Memory, Silence
from roost.host.net import Address, AsyncioNet
from roost.host.system import SystemClock
from roost.metadata.keeper import Keeper
from roost.metadata.operations import Get, Put, Revision
from roost.metadata.protocol import Grant, Txn, pack
from roost.metadata.remote import RemoteStore
from roost.metadata.server import MetaSettings, run_meta
from roost.rpc.client import Connection
from roost.rpc.limits import Limits
from roost.rpc.server import Server
from roost.rpc.session import Handler, Session
from roost.wire import messages
from roost.wire.frame import Frame
from roost.wire.messages import PROTOCOL_VERSION, Hello, Welcome
from tests.etcds import free_ports

LONG_S = 60.0
LIMITS = Limits()


@asynccontextmanager
async def served(folder: Path, address: Address, log: Memory | None = None) -> AsyncIterator[None]:
    """Serve a folder."""
    begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()

    def serving(keeper: Keeper, where: Address) -> None:
        assert keeper.uuid
        assert where == address
        begun.set_result(None)

    running = asyncio.ensure_future(
        run_meta(
            MetaSettings(data=folder, listen=address),
            seams=seams(),
            log=log or Silence(),
            holder="test",
            stop=stop,
            serving=serving,
        )
    )
    await asyncio.wait([begun, running], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield
    finally:
        stop.set()
        await running


def play(story: Callable[[RemoteStore, Address], Awaitable[None]]) -> None:
    """Play with a store object for a server that the story starts."""

    async def main() -> None:
        address = Address("127.0.0.1", free_ports(1)[0])
        store = RemoteStore(AsyncioNet(), address, clock=SystemClock())
        try:
            async with asyncio.timeout(LONG_S):
                await story(store, address)
        finally:
            await store.close()

    asyncio.run(main())


def test_a_watch_and_a_lease_outlive_a_restart_in_good_order(tmp_path: Path) -> None:
    log = Memory()

    async def story(store: RemoteStore, address: Address) -> None:
        async with served(tmp_path, address, log):
            lease = await store.grant(10)
            first = await store.put("a", b"1", lease=lease.id)
            watch = store.watch("a", first)
            assert (await anext(watch)).revision == first
            waiting = asyncio.ensure_future(anext(watch))
            await store.get("a")
        with pytest.raises(Unavailable, match="cannot be reached"):
            await store.get("a")
        async with served(tmp_path, address):
            second = await store.put("a", b"2", lease=lease.id)

            assert (await waiting).revision == second
            assert not lease.lost

    play(story)

    assert log.names[-1] == "stopped"


def test_another_store_at_the_same_place_is_refused(tmp_path: Path) -> None:
    async def story(store: RemoteStore, address: Address) -> None:
        async with served(tmp_path / "one", address):
            await store.put("a", b"")
        async with served(tmp_path / "two", address):
            with pytest.raises(Denied, match="is another one than before: its folder was replaced"):
                await store.put("a", b"")

    play(story)


def test_a_place_that_is_taken_is_refused(tmp_path: Path) -> None:
    async def story(_: RemoteStore, address: Address) -> None:
        async with served(tmp_path / "one", address):
            with pytest.raises(Unavailable, match="cannot listen on"):
                async with served(tmp_path / "two", address):
                    pass

    play(story)


def test_an_answer_that_no_frame_holds_is_refused_and_a_change_is_done(tmp_path: Path) -> None:
    async def story(store: RemoteStore, address: Address) -> None:
        async with served(tmp_path, address):
            keys = [f"k{number}" for number in range(13)]
            for key in keys:
                await store.put(key, bytes(1_400_000))

            with pytest.raises(Invalid, match="read fewer keys in one"):
                await store.txn([], [Get(key) for key in keys])
            with pytest.raises(Unknown, match="what it changed is changed"):
                await store.txn([], [Put("done", b""), *(Get(key) for key in keys)])
            assert await store.get("done") is not None

    play(story)


def test_who_takes_it_for_a_node_is_told(tmp_path: Path) -> None:
    async def story(_: RemoteStore, address: Address) -> None:
        async with served(tmp_path, address):
            hello = Hello(PROTOCOL_VERSION, "prod", "client", "lost")
            with pytest.raises(Denied, match="serves metadata, and is no node of any cluster"):
                await Connection.open(AsyncioNet(), address, hello, timeout_s=LONG_S)

    play(story)


def test_what_a_client_would_not_send_is_refused(tmp_path: Path) -> None:
    async def story(_: RemoteStore, address: Address) -> None:
        async with served(tmp_path, address):
            hello = Hello(PROTOCOL_VERSION, "", "client", "liar")
            connection = await Connection.open(AsyncioNet(), address, hello, timeout_s=LONG_S)
            body, blob = pack(Grant(1))
            for kind, sent, why in (
                (messages.GRANT, (body, [blob]), "from 2 to 86400"),
                (messages.GRANT, (b"", [blob]), "checksum of a Grant"),
                (messages.TXN, _sent(Txn([], [Put("", b"")], [])), "not empty"),
                (messages.TXN, _sent(Txn([], [Get("a")] * 129, [])), "at most 128"),
                (messages.ADD, (b"", []), "are not answered here"),
            ):
                with pytest.raises(Invalid, match=why):
                    await connection.call(kind, *sent)
            await connection.close()

    play(story)


def _sent(message: Txn) -> tuple[bytes, list[bytes]]:
    body, blob = pack(message)
    return body, [blob]


def test_a_connection_that_ends_before_an_answer_leaves_a_change_unknown() -> None:
    async def story(store: RemoteStore, address: Address) -> None:
        def end(session: Session, frame: Frame) -> None:
            assert frame.kind in handlers
            session.abort()

        handlers: dict[int, Handler] = {messages.TXN: end, messages.GRANT: end}
        server = await _serving(address, handlers)

        with pytest.raises(Unknown, match="may or may not have been done"):
            await store.put("a", b"")
        with pytest.raises(Unavailable, match="nothing was changed"):
            await store.get("a")
        with pytest.raises(Unavailable):
            await store.grant(10)
        await server.stop(1.0)

    play(story)


def test_an_answer_that_was_changed_on_its_way_is_not_believed() -> None:
    async def story(store: RemoteStore, address: Address) -> None:
        def lie(session: Session, frame: Frame) -> None:
            session.reply(frame.request, messages.DONE, b"\0\0\0\0", [b"\x91\x09"])

        kinds = (messages.TXN, messages.RANGE, messages.GRANT, messages.WATCH)
        server = await _serving(address, dict.fromkeys(kinds, lie))

        with pytest.raises(Unknown, match="checksum"):
            await store.put("a", b"")
        for ask in (store.get("a"), store.range("a"), store.grant(5)):
            with pytest.raises(Unavailable, match="checksum"):
                await ask
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await anext(store.watch("a", Revision(1)))
        await server.stop(1.0)

    play(story)


async def _serving(address: Address, handlers: dict[int, Handler]) -> Server:
    server = Server(
        AsyncioNet(),
        welcome=Welcome(PROTOCOL_VERSION, "", "liar", bytes(16), LIMITS.frame_bytes_max),
        handlers=handlers,
        authorize=lambda *_: None,
        log=Silence(),
        limits=LIMITS,
    )
    await server.start(address)
    return server
