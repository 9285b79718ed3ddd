"""What a node tells over HTTP, on every loop that it runs on, and to strangers of every kind."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import msgspec
import pytest
import uvloop

from roost.host.log import Memory
from roost.host.net import Address, AsyncioNet, Net
from roost.host.seams import Seams
from roost.node.http import REQUEST_BYTES_MAX, HttpServer, Told
from roost.sim.world import World
from tests.unit.node.asking import Asker, asked, get

Program = Callable[[Net], Coroutine[Any, Any, None]]
Run = Callable[[Program], None]

ANY_PORT: Final = Address("127.0.0.1", 0)
LONG_S: Final = 30.0
FACTS: Final = {"node": "alice", "cluster": "<b>prod</b>"}


def on_asyncio(program: Program) -> None:
    async def main() -> None:
        async with asyncio.timeout(LONG_S):
            await program(AsyncioNet())

    asyncio.run(main())


def on_uvloop(program: Program) -> None:
    async def main() -> None:
        async with asyncio.timeout(LONG_S):
            await program(AsyncioNet())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def simulated(program: Program) -> None:
    with World(1) as world:

        async def main(seams: Seams) -> None:
            await program(seams.net)

        async def story() -> None:
            async with asyncio.timeout(3600):
                await world.host("here").start("program", main).ended.wait()

        world.run(story)


each_loop = pytest.mark.parametrize("run", [on_asyncio, on_uvloop, simulated])


def told(
    *, metrics: Callable[[], str] = lambda: "roost_x_total 1\n", ills: Sequence[str] = ()
) -> Told:
    return Told(metrics=metrics, ills=lambda: ills, facts=lambda: FACTS)


@each_loop
def test_metrics_are_told_as_prometheus_reads_them(run: Run) -> None:
    async def program(net: Net) -> None:
        server = HttpServer(net, told(), log=Memory())
        address = await server.start(ANY_PORT)
        answer = await asked(net, address, get("/metrics?x=1"))
        server.stop()

        assert answer.status == "HTTP/1.1 200 OK"
        assert answer.fields["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert answer.body == "roost_x_total 1\n"

    run(program)


@each_loop
@pytest.mark.parametrize(("ills", "code"), [([], 200), (["journal: sync failed", "full"], 503)])
def test_health_is_a_code_with_the_reasons(run: Run, ills: list[str], code: int) -> None:
    async def program(net: Net) -> None:
        server = HttpServer(net, told(ills=ills), log=Memory())
        answer = await asked(net, await server.start(ANY_PORT), get("/health"))
        server.stop()

        assert int(answer.status.split()[1]) == code
        assert answer.fields["Content-Type"] == "application/json"
        assert msgspec.json.decode(answer.body) == {"healthy": not ills, "reasons": ills, **FACTS}

    run(program)


@each_loop
def test_the_page_says_what_the_node_is_and_where_to_look(run: Run) -> None:
    async def program(net: Net) -> None:
        server = HttpServer(net, told(), log=Memory())
        answer = await asked(net, await server.start(ANY_PORT), get("/"))
        server.stop()

        assert answer.fields["Content-Type"] == "text/html; charset=utf-8"
        assert "alice" in answer.body
        assert "&lt;b&gt;prod" in answer.body
        assert 'href="/metrics"' in answer.body

    run(program)


@each_loop
@pytest.mark.parametrize(
    ("request_line", "code"),
    [
        (b"GET /other HTTP/1.1", 404),
        (b"GET /metrics/ HTTP/1.0", 404),
        (b"POST /metrics HTTP/1.1", 405),
        (b"HEAD / HTTP/1.1", 405),
        (b"get / HTTP/1.1", 405),
        (b"GET / HTTP/2.0", 505),
        (b"GET http://x/ HTTP/1.1", 400),
        (b"GET /", 400),
        (b"\x16\x03\x01\x02\xff\x00", 400),
        (b"", 400),
    ],
)
def test_what_is_not_there_or_not_understood_is_answered_too(
    run: Run, request_line: bytes, code: int
) -> None:
    async def program(net: Net) -> None:
        server = HttpServer(net, told(), log=Memory())
        answer = await asked(net, await server.start(ANY_PORT), request_line + b"\r\n\r\n")
        server.stop()

        assert int(answer.status.split()[1]) == code
        assert (answer.fields.get("Allow") == "GET") == (code == 405)

    run(program)


@each_loop
def test_a_request_may_come_in_pieces_and_with_more_behind_it(run: Run) -> None:
    async def program(net: Net) -> None:
        server = HttpServer(net, told(), log=Memory())
        address = await server.start(ANY_PORT)
        pieces = [bytes((byte,)) for byte in get("/metrics")]
        split = await asked(net, address, *pieces)
        more = await asked(net, address, get("/metrics"), get("/"), b"x" * 100_000)
        ended = await asked(net, address, get("/metrics"), ends=True)
        server.stop()

        assert split.body == more.body == ended.body == "roost_x_total 1\n"

    run(program)


@each_loop
def test_a_request_has_a_limit(run: Run) -> None:
    async def program(net: Net) -> None:
        server = HttpServer(net, told(), log=Memory())
        address = await server.start(ANY_PORT)
        head = b"GET /metrics HTTP/1.1\r\nX: "
        fits = head + b"x" * (REQUEST_BYTES_MAX - len(head)) + b"\r\n\r\n"
        answers = [
            await asked(net, address, fits),
            await asked(net, address, fits.replace(b"xx", b"xxx", 1)),
            await asked(net, address, b"x" * (REQUEST_BYTES_MAX + 1)),
            await asked(net, address, b"GET / HT", ends=True),
        ]
        server.stop()

        codes = [int(answer.status.split()[1]) for answer in answers]
        assert codes == [200, 431, 431, 400]

    run(program)


@each_loop
def test_who_says_nothing_is_cut_off_in_time(run: Run) -> None:
    async def program(net: Net) -> None:
        server = HttpServer(net, told(), log=Memory(), deadline_s=0.05)
        address = await server.start(ANY_PORT)
        silent, slow = Asker(), Asker(b"GET / ")
        await net.connect(lambda: silent, address)
        await net.connect(lambda: slow, address)

        await silent.lost.wait()
        await slow.lost.wait()
        server.stop()

        assert silent.received == slow.received == b""

    run(program)


@each_loop
def test_only_so_many_are_listened_to_at_once(run: Run) -> None:
    async def program(net: Net) -> None:
        server = HttpServer(net, told(), log=Memory(), connections_max=2)
        address = await server.start(ANY_PORT)
        silent = [Asker(), Asker()]
        transports = [await net.connect(lambda asker=asker: asker, address) for asker in silent]  # type: ignore[misc]
        refused = await asked(net, address, get("/"))
        for transport in transports:
            transport.close()
        for asker in silent:
            await asker.lost.wait()
        while (again := await asked(net, address, get("/"))).status != "HTTP/1.1 200 OK":
            assert again.status == refused.status  # the server hears later that they went
        server.stop()

        assert refused.status == "HTTP/1.1 503 Service Unavailable"

    run(program)


@each_loop
def test_a_defect_behind_an_answer_is_logged_and_goes_no_further(run: Run) -> None:
    async def program(net: Net) -> None:
        log = Memory()
        server = HttpServer(net, told(metrics=lambda: str(1 // 0)), log=log)
        address = await server.start(ANY_PORT)
        failed = await asked(net, address, get("/metrics"))
        well = await asked(net, address, get("/health"))
        server.stop()

        assert (failed.status, well.status) == (
            "HTTP/1.1 500 Internal Server Error",
            "HTTP/1.1 200 OK",
        )
        assert log.names == ["http_failed"]

    run(program)


@each_loop
def test_stopping_ends_what_is_going_on(run: Run) -> None:
    async def program(net: Net) -> None:
        server = HttpServer(net, told(), log=Memory())
        address = await server.start(ANY_PORT)
        await asked(net, address, get("/"))
        waiting = Asker(b"GET")
        await net.connect(lambda: waiting, address)

        server.stop()
        server.stop()
        await waiting.lost.wait()

        with pytest.raises(OSError, match=r".*"):
            await net.connect(Asker, address)

    run(program)


def test_a_server_that_never_started_may_be_stopped() -> None:
    HttpServer(AsyncioNet(), told(), log=Memory()).stop()
