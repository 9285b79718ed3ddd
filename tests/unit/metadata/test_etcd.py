"""The etcd client, against a real etcd, and one of our own where it has to lie."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import grpc.aio
import pytest

from roost.cli.machine import seams
from roost.errors import Compacted, Denied, Invalid, Unavailable, Unknown
from roost.host.log import Silence
from roost.host.system import SystemClock
from roost.metadata.etcd import EtcdStore
from roost.metadata.opening import open_store
from roost.metadata.operations import Absent, Delete, Get, Put, Revision
from roost.metadata.protobuf import encode
from roost.metadata.store import MetadataStore
from roost.metadata.view import list_all
from tests.etcds import EtcdProgram, free_ports

LONG_S: Final = 60.0
Method = Callable[[bytes], Awaitable[bytes]]


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProgram]:
    program = EtcdProgram(tmp_path).start()
    yield program
    program.stop()


async def opened(url: str) -> MetadataStore:
    """Open a store as everybody does."""
    return await open_store(url, seams=seams(), log=Silence(), holder="test", timeout_s=LONG_S)


def test_prefixes_of_one_etcd_do_not_see_each_other(etcd: EtcdProgram) -> None:
    async def main() -> None:
        one, two = [await opened(f"etcd://{etcd.endpoint}/{name}") for name in ("one", "two")]

        await one.put("a", b"1")
        await two.put("a", b"2")
        put = await two.put("b", b"2")

        items, _ = await list_all(one, "")
        assert [(item.key, item.value) for item in items] == [("a", b"1")]
        async with two.watch("", Revision(put)) as watch:
            assert [event.key for event in (await anext(watch)).events] == ["b"]
        await one.close()
        await two.close()

    asyncio.run(main())


def test_an_endpoint_that_is_down_is_passed_over(etcd: EtcdProgram) -> None:
    async def main() -> None:
        down = f"127.0.0.1:{free_ports(1)[0]}"
        store = await opened(f"etcd://{down},{etcd.endpoint}")

        await store.put("a", b"1")
        assert await store.delete("a")
        lease = await store.grant(5)
        await lease.revoke()
        await store.close()

    asyncio.run(main())


def test_where_nobody_answers_it_says_so() -> None:
    async def main() -> None:
        down = f"127.0.0.1:{free_ports(1)[0]}"
        with pytest.raises(Unavailable, match=f"no etcd answers at {down}"):
            await EtcdStore.open([down], "p/", clock=SystemClock(), timeout_s=0.5)

    asyncio.run(main())


def test_pages_that_are_too_long_are_asked_for_in_smaller_ones(etcd: EtcdProgram) -> None:
    async def main() -> None:
        store = await EtcdStore.open(
            [etcd.endpoint],
            "p/",
            clock=SystemClock(),
            timeout_s=LONG_S,
            answer_bytes_max=1 << 20,
        )
        for number in range(20):
            await store.put(f"k{number:02}", bytes(300_000))

        items, _ = await list_all(store, "k")

        assert [item.key for item in items] == [f"k{number:02}" for number in range(20)]
        keys = [item.key for item in items]
        with pytest.raises(Invalid, match="read fewer keys at once"):
            await store.txn([], [Get(key) for key in keys])
        with pytest.raises(Unknown):
            await store.txn([], [*(Get(key) for key in keys[1:]), Delete(keys[0])])
        assert await store.get(keys[0]) is None
        await store.put("k00", bytes(1_200_000))
        with pytest.raises(Invalid, match="read fewer"):
            await store.range("k00")
        await store.close()

    asyncio.run(main())


def test_a_change_of_a_stopped_etcd_is_unknown_and_a_read_unavailable(etcd: EtcdProgram) -> None:
    async def main() -> None:
        store = await opened(f"etcd://{etcd.endpoint}")
        await store.put("a", b"")
        etcd.pause()

        with pytest.raises(Unknown, match="may or may not have been done"):
            await store.put("a", b"1", timeout_s=0.3)
        with pytest.raises(Unavailable, match="nothing was changed"):
            await store.get("a", timeout_s=0.3)

        etcd.resume()
        await store.close()

    asyncio.run(main())


# Ways that are cut


@asynccontextmanager
async def cut_after(endpoint: str, bytes_max: int, cuts: list[int]) -> AsyncIterator[str]:
    """Lead to an endpoint; each connection ends once it has carried so much back."""
    host, port = endpoint.split(":")
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        itself = asyncio.current_task()
        assert itself is not None
        connections.add(itself)
        with suppress(asyncio.CancelledError):  # the test is over
            there_reader, there_writer = await asyncio.open_connection(host, int(port))
            there = asyncio.ensure_future(carry(reader, there_writer, 1 << 40))
            try:
                await carry(there_reader, writer, bytes_max)
                cuts.append(1)
            finally:
                there.cancel()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int) -> None:
        try:
            while left > 0 and (piece := await reader.read(1000)):
                writer.write(piece)
                await writer.drain()
                left -= len(piece)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for connection in connections:
            connection.cancel()
        await asyncio.wait(connections)


@pytest.mark.slow
def test_a_watch_that_is_cut_while_it_catches_up_goes_on_behind_what_it_delivered(
    etcd: EtcdProgram,
) -> None:
    cuts: list[int] = []

    async def main() -> None:
        direct = await opened(f"etcd://{etcd.endpoint}/p")
        first = await direct.put("k", b"begin")
        # etcd tells the past in answers of a thousand revisions each.
        for begin in range(0, 4000, 100):
            puts = (direct.put(f"k{number}", bytes(100)) for number in range(begin, begin + 100))
            await asyncio.gather(*puts)
        last = await direct.put("k", b"end")
        seen: list[int] = []
        async with cut_after(etcd.endpoint, 200_000, cuts) as endpoint:
            store = await opened(f"etcd://{endpoint}/p")
            async with asyncio.timeout(LONG_S), store.watch("k", first) as watch:
                while not seen or seen[-1] < last:
                    batch = await anext(watch)
                    seen += [event.revision for event in batch.events]
            await store.close()
        await direct.close()
        assert seen == list(range(first, last + 1))

    asyncio.run(main())

    assert len(cuts) > 1


# Getting in


def certificates(folder: Path) -> None:
    """Make an authority, and certificates of a server and a client."""
    program = shutil.which("openssl")
    assert program, "this test makes certificates, for which it needs openssl on the path"

    def openssl(*arguments: str) -> None:
        subprocess.run(
            [program, *arguments], cwd=folder, check=True, capture_output=True, timeout=LONG_S
        )

    new = ("req", "-newkey", "rsa:2048", "-nodes", "-subj")
    openssl(*new, "/CN=ca", "-x509", "-days", "9999", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
    for name in ("server", "client"):
        openssl(*new, f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-days", "9999", "-extfile", "names", "-out", f"{name}.pem"),
        )


@pytest.mark.slow
def test_tls_is_spoken_with_a_certificate_of_the_client(tmp_path: Path) -> None:
    certificates(tmp_path)
    program = EtcdProgram(
        tmp_path,
        scheme="https",
        options=[
            *("--cert-file", f"{tmp_path}/server.pem", "--key-file", f"{tmp_path}/server.key"),
            *("--client-cert-auth", "--trusted-ca-file", f"{tmp_path}/ca.pem"),
        ],
    ).start()
    url = f"etcd://{program.endpoint}/p?ca={tmp_path}/ca.pem"
    mine = f"&cert={tmp_path}/client.pem&key={tmp_path}/client.key"

    async def main() -> None:
        store = await opened(url + mine)
        await store.put("a", b"1")
        await store.close()
        with pytest.raises(Unavailable, match="no etcd answers"):
            await open_store(url, seams=seams(), log=Silence(), holder="", timeout_s=1.0)
        with pytest.raises(Invalid, match=r"nothing\.pem cannot be read"):
            await opened(f"etcd://{program.endpoint}?ca={tmp_path}/nothing.pem")

    try:
        asyncio.run(main())
    finally:
        program.stop()


async def let_only_known_users_in(endpoint: str) -> None:
    """Make a user `root` and a user `roost`, who may do everything below `p/`."""
    steps: list[tuple[str, list[tuple[int, Any]]]] = [
        ("UserAdd", [(1, b"root"), (2, b"secret")]),
        ("UserGrantRole", [(1, b"root"), (2, b"root")]),
        ("RoleAdd", [(1, b"keys")]),
        ("RoleGrantPermission", [(1, b"keys"), (2, encode([(1, 2), (2, b"p/"), (3, b"p0")]))]),
        ("UserAdd", [(1, b"roost"), (2, b"eggs")]),
        ("UserGrantRole", [(1, b"roost"), (2, b"keys")]),
        ("AuthEnable", []),
    ]
    async with grpc.aio.insecure_channel(endpoint) as channel:
        for method, fields in steps:
            await channel.unary_unary(f"/etcdserverpb.Auth/{method}")(encode(fields))


@pytest.mark.slow
def test_a_user_logs_in_and_again_when_the_token_is_no_longer_known(
    etcd: EtcdProgram, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("eggs\n")
    (tmp_path / "wrong").write_text("ham\n")
    url = f"etcd://{etcd.endpoint}/p?user=roost&password-file={tmp_path}"

    async def main() -> None:
        await (await opened(f"etcd://{etcd.endpoint}")).close()
        await let_only_known_users_in(etcd.endpoint)
        store = await opened(f"{url}/password")
        put = await store.put("a", b"1")
        async with store.watch("a", put) as watch:
            await anext(watch)
            etcd.kill()  # it forgets its tokens
            etcd.start()
            again = await insisting(store)
            while (await anext(watch)).revision < again:
                pass
        with pytest.raises(Denied, match="user and the password"):
            await opened(f"{url}/wrong")
        elsewhere = await opened(f"{url}/password".replace("/p?", "/q?"))
        with pytest.raises(Denied, match="permission denied"):
            await elsewhere.put("a", b"")
        with pytest.raises(Denied):
            await anext(elsewhere.watch("a", Revision(1)))
        await elsewhere.close()
        await store.close()

    asyncio.run(main())


async def insisting(store: MetadataStore) -> Revision:
    """Put until there is an answer."""
    while True:
        try:
            return await store.put("a", b"2")
        except (Unavailable, Unknown):
            await asyncio.sleep(0.01)


# One that lies


@asynccontextmanager
async def lying(answers: dict[str, bytes]) -> AsyncIterator[str]:
    """Serve answers that a right etcd would not give."""

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]  # it ships no types
        def service(self, details: Any) -> Any:
            name = details.method.rpartition("/")[2]
            if name in ("Watch", "LeaseKeepAlive"):

                async def stream(requests: Any, context: Any) -> None:
                    await anext(aiter(requests))
                    await context.write(answers[name])
                    if name == "Watch":
                        await asyncio.get_running_loop().create_future()

                return grpc.stream_stream_rpc_method_handler(stream)

            async def unary(_request: bytes, _context: Any) -> bytes:
                return answers[name]

            return grpc.unary_unary_rpc_method_handler(unary)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


VERSION: Final = {"Status": encode([(2, b"3.5.21")])}


def with_liar(answers: dict[str, bytes], story: Callable[[EtcdStore], Awaitable[None]]) -> None:
    """Play with an etcd that gives these answers."""

    async def main() -> None:
        async with lying(VERSION | answers) as endpoint:
            store = await EtcdStore.open([endpoint], "p/", clock=SystemClock())
            try:
                async with asyncio.timeout(LONG_S):
                    await story(store)
            finally:
                await store.close()

    asyncio.run(main())


def header(*, cluster: int = 7, revision: int = 5) -> tuple[int, bytes]:
    return 1, encode([(1, cluster), (3, revision)])


def test_an_etcd_that_is_too_old_is_refused() -> None:
    async def story(_: EtcdStore) -> None:
        raise AssertionError("it was let in")

    with pytest.raises(Invalid, match=r"runs etcd 3\.5\.2, which may lose committed changes"):
        with_liar({"Status": encode([(2, b"3.5.2")])}, story)


def test_a_renewal_that_is_answered_without_time_means_that_the_lease_is_gone() -> None:
    async def story(store: EtcdStore) -> None:
        lease = await store.grant(2)
        await lease.wait_lost()
        assert lease.lost

    with_liar(
        {
            "LeaseGrant": encode([header(), (2, 9), (3, 2)]),
            "LeaseKeepAlive": encode([header(), (2, 9)]),
            "LeaseRevoke": encode([header()]),
        },
        story,
    )


def test_another_cluster_that_answers_is_refused() -> None:
    async def story(store: EtcdStore) -> None:
        await store.range("a")
        with pytest.raises(Denied, match=r"another etcd cluster \(8\) answers than before \(7\)"):
            await store.txn([Absent("a")], [Put("a", b"")])

    with_liar({"Range": encode([header()]), "Txn": encode([header(cluster=8)])}, story)


@pytest.mark.parametrize(
    "answer", [b"\x0b", b"\x08\x01", encode([header(), (3, b"\x08")]), encode([header(), (2, 1)])]
)
def test_an_answer_that_is_none_is_refused(answer: bytes) -> None:
    async def story(store: EtcdStore) -> None:
        with pytest.raises(Unknown, match="that can be read"):
            await store.txn([Absent("a")], [Put("a", b"")])

    with_liar({"Txn": answer}, story)


def event(revision: int) -> bytes:
    return encode([(2, encode([(1, b"p/a"), (2, revision), (3, revision), (4, 1), (5, b"v")]))])


def test_a_watch_that_is_told_of_forgotten_history_says_so() -> None:
    async def story(store: EtcdStore) -> None:
        with pytest.raises(Compacted, match="as is all up to 40") as caught:
            await anext(store.watch("a", Revision(3)))
        assert caught.value.upto == 40

    with_liar({"Watch": encode([header(), (4, 1), (5, 40)])}, story)


def test_a_watch_delivers_nothing_of_the_past_and_no_part_of_a_revision() -> None:
    for answer in (
        encode([header(), (11, event(2))]),
        encode([header(), (7, 1), (11, event(9))]),
        encode([header(), (4, 1), (6, b"whatever")]),
        b"\x0b",
    ):

        async def story(store: EtcdStore) -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await anext(store.watch("a", Revision(3)))

        with_liar({"Watch": answer}, story)
