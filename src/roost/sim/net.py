"""The simulated network: hosts, the ways between them, and the seam `Net` of each process.

Connections behave as TCP's do (`connection`), and what happens to them is drawn from the seed
(`medium`). Hosts are addressed by their names, as in `Address("node-1", 4000)`. A host that is
down answers nothing, which is not the same as a refusal.
"""

import asyncio
import errno
from collections.abc import Callable
from contextvars import copy_context

import msgspec

from roost.host.net import Address, Listener, ProtocolFactory
from roost.sim.connection import End
from roost.sim.handles import SimHandle
from roost.sim.loop import SimLoop
from roost.sim.medium import Medium, NetFaults, Station
from roost.sim.transport import SimTransport

# How long a caller waits before it calls again; each time twice as long, until it gives up.
CALL_AGAIN_S = 1.0
FREE_PORT_MIN = 32768
LOCAL_NAMES = ("127.0.0.1", "::1", "localhost")
ANY_NAMES = ("0.0.0.0", "::")  # noqa: S104 (nothing is bound here)


class Network:
    """All hosts of a world, and what lies between them."""

    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        self._hosts: dict[str, _Host] = {}

    def attach(self, host: str, loop: SimLoop) -> "SimNet":
        """Give a process that runs on `host` its network."""
        return SimNet(self, self._medium, self._host(host), loop)

    def power(self, host: str, *, up: bool) -> None:
        """Let a host answer, or not."""
        self._host(host).station.up = up

    def misbehave(self, faults: NetFaults) -> None:
        """Change how all ways misbehave, from now on."""
        self._medium.misbehave(faults)

    def block(self, source: str, target: str, *, both: bool = True) -> None:
        """Let nothing through from one host to another, and nothing back either if `both`."""
        self._medium.count("partition" if both else "one-way partition")
        self._medium.way(source, target).blocked = True
        if both:
            self._medium.way(target, source).blocked = True
        self._medium.look()

    def unblock(self, source: str, target: str) -> None:
        """Let everything through between two hosts."""
        self._medium.way(source, target).blocked = False
        self._medium.way(target, source).blocked = False
        self._medium.look()

    def clog(self, source: str, target: str, *, for_s: float) -> None:
        """Hold back what goes from one host to another, and let it arrive all at once."""
        self._medium.count("clog")
        until = self._medium.timeline.now + for_s
        self._medium.way(source, target).clogged_until = until
        self._medium.look()
        self._medium.post(until, self._medium.look)

    def narrow(self, source: str, target: str, *, bytes_per_s: float) -> None:
        """Limit what goes from one host to another; 0 lifts the limit."""
        self._medium.way(source, target).bytes_per_s = bytes_per_s
        self._medium.look()

    def heal(self) -> None:
        """Open all ways and misbehave no more."""
        self._medium.clear()
        calm = msgspec.structs.replace(
            self._medium.faults, delays_long=0.0, loses=0.0, splits=0.0, lingers=0.0
        )
        self._medium.misbehave(calm)

    def find(self, name: str, caller: "_Host") -> "_Host":
        """Find the host that somebody calls by a name."""
        if name in LOCAL_NAMES:
            return caller
        if name not in self._hosts:
            raise OSError(errno.EHOSTUNREACH, f"there is no host {name}")
        return self._hosts[name]

    def call(self, call: "_Call") -> None:
        """Let a call for a connection arrive, and what comes of it go back."""
        medium = self._medium
        here, there = call.net.host.station, call.target.station
        way, back = medium.way(here.name, there.name), medium.way(there.name, here.name)
        lost = medium.rng.random() < medium.faults.loses
        if lost or way.blocked or back.blocked or not there.up or call.net.dead:
            return
        now = medium.timeline.now
        answered = back.passage(0, now) + medium.delay()
        listener = call.target.listeners.get(call.address.port)
        if listener is None or (listener.local and here is not there):
            medium.timeline.at(answered, SimHandle(call.refuse, (), call.net.loop, call.context))
            return
        ours = Address(host=here.name, port=call.net.host.free_port())
        name = f"{ours} > {there.name}:{call.address.port}"
        medium.tell(f"{name} connects")
        client = SimTransport(
            End(medium, here, there, name=name),
            call.net.loop,
            call.context,
            ours=ours,
            theirs=call.address,
        )
        server = listener.make(End(medium, there, here, name=f"{name} (server)"), ours)
        client.end.join(server.end)
        call.net.adopt(client.end)
        accept = SimHandle(listener.accept, (server,), listener.net.loop, listener.context)
        medium.timeline.at(now, accept)
        answer = SimHandle(call.answer, (client,), call.net.loop, call.context)
        medium.timeline.at(answered, answer)

    def _host(self, name: str) -> "_Host":
        return self._hosts.setdefault(name, _Host(name))


class SimNet:
    """The network of one simulated process."""

    def __init__(self, network: Network, medium: Medium, host: "_Host", loop: SimLoop) -> None:
        self.host = host
        self.loop = loop
        self.dead = False
        self._network = network
        self._medium = medium
        self._ends: list[End] = []
        self._listeners: list[_SimListener] = []

    async def connect(
        self, protocol_factory: ProtocolFactory, address: Address
    ) -> asyncio.Transport:
        """Connect to a simulated host."""
        assert asyncio.get_running_loop() is self.loop, "a process uses its own network"
        target = self._network.find(address.host, self.host)
        left_s = self._medium.faults.give_up_s
        patience_s = CALL_AGAIN_S
        while left_s > 0:
            call = _Call(self, target, address, protocol_factory)
            way = self._medium.way(self.host.station.name, target.station.name)
            arrival = way.passage(0, self.loop.time()) + self._medium.delay()
            self._medium.post(arrival, self._network.call, call)
            try:
                async with asyncio.timeout(min(patience_s, left_s)):
                    return await call.answered
            except TimeoutError:
                left_s -= patience_s
                patience_s *= 2
        raise TimeoutError(errno.ETIMEDOUT, f"{address} does not answer")

    async def listen(self, protocol_factory: ProtocolFactory, address: Address) -> Listener:
        """Listen on this simulated host."""
        name = self.host.station.name
        if address.host not in (name, *LOCAL_NAMES, *ANY_NAMES):
            raise OSError(errno.EADDRNOTAVAIL, f"{address.host} is not {name}, where this runs")
        port = address.port or self.host.free_port()
        if port in self.host.listeners:
            raise OSError(errno.EADDRINUSE, f"somebody listens on port {port} of {name}")
        bound = Address(host=address.host, port=port)
        listener = _SimListener(self, bound, protocol_factory)
        self.host.listeners[port] = listener
        self._listeners.append(listener)
        return listener

    def adopt(self, end: End) -> None:
        """Note a connection of this process."""
        self._ends = [end for end in self._ends if not end.gone]
        self._ends.append(end)

    def kill(self) -> None:
        """Let go of everything, as the kernel does for a process that has died."""
        self._die(End.close)

    def vanish(self) -> None:
        """Disappear with the machine."""
        self._die(End.vanish)

    def _die(self, fate: Callable[[End], None]) -> None:
        self.dead = True
        for listener in self._listeners:
            listener.close()
        for end in self._ends:
            fate(end)


class _Host:
    """One machine in the network."""

    def __init__(self, name: str) -> None:
        self.station = Station(name)
        self.listeners: dict[int, _SimListener] = {}
        self._port = FREE_PORT_MIN - 1

    def free_port(self) -> int:
        """Take the next port that nobody has."""
        self._port += 1
        while self._port in self.listeners:
            self._port += 1
        return self._port


class _Call:
    """One call for a connection; an unanswered one is repeated as another."""

    def __init__(
        self, net: SimNet, target: _Host, address: Address, protocol_factory: ProtocolFactory
    ) -> None:
        self.net = net
        self.target = target
        self.address = address
        self.context = copy_context()
        self.answered: asyncio.Future[asyncio.Transport] = net.loop.create_future()
        self._protocol_factory = protocol_factory

    def answer(self, transport: SimTransport) -> None:
        """Begin the connection, if it is still wanted."""
        if self.answered.done():
            transport.abort()
        else:
            transport.begin(self._protocol_factory())
            self.answered.set_result(transport)

    def refuse(self) -> None:
        """Hear that nobody listens there."""
        if not self.answered.done():
            self.answered.set_exception(
                ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {self.address}")
            )


class _SimListener:
    """A port that somebody listens on."""

    def __init__(self, net: SimNet, address: Address, protocol_factory: ProtocolFactory) -> None:
        self.net = net
        self.context = copy_context()
        self.local = address.host in LOCAL_NAMES
        self._address = address
        self._protocol_factory = protocol_factory

    @property
    def address(self) -> Address:
        return self._address

    def close(self) -> None:
        if self.net.host.listeners.get(self._address.port) is self:
            del self.net.host.listeners[self._address.port]

    def make(self, end: End, theirs: Address) -> SimTransport:
        """Make this side of a new connection."""
        self.net.adopt(end)
        return SimTransport(end, self.net.loop, self.context, ours=self._address, theirs=theirs)

    def accept(self, transport: SimTransport) -> None:
        """Hand a new connection to a protocol of its own."""
        transport.begin(self._protocol_factory())
