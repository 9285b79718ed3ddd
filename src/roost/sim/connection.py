"""One end of a simulated connection, as the kernel of its host keeps it.

Bytes go through three places: the transport's buffer (lost with the process), the sending kernel
(`stalled`: what the way did not let through is sent again; lost with the machine), and the way
(`arriving` at the other end, each piece with its instant; it was sent, and is never lost). Their
order never changes and nothing in the middle is ever missing: what happens to one piece delays
all that was sent after it, until the connection is given up.

An end comes to its end in one of three ways, and its peer learns of it as in reality:

- *Closed*, by its process or by the death of it: the kernel sends what it has, then the end of the
  stream. Bytes that come in later are answered with a reset.
- *Vanished* with its machine: nothing is sent. The connection is half-open: what the peer writes
  disappears, until the peer gives up or the machine is back and answers with a reset.
- *Failed*: the process is told why.
"""

import errno
from collections import deque
from collections.abc import Callable
from heapq import heappush
from math import log

from roost.sim.handles import SimHandle
from roost.sim.medium import Medium, Station

# How long the kernel waits before it sends again what was not answered: at first, and at most.
RESEND_S = 0.2
RESEND_S_MAX = 3.2
# What is lost is lost again with this chance, and after so many times it never arrives.
LOST_AGAIN = 0.5
LOST_TIMES_MAX = 6
LONG_FACTOR = 100
LINGER_S_MAX = 10.0

END = b""
"""The end of the stream, as a piece."""


class End:
    """One end of a connection."""

    def __init__(self, medium: Medium, here: Station, there: Station, *, name: str) -> None:
        self.name = name
        self.peer = self
        self.window = medium.faults.window_bytes
        self.outstanding = 0
        """How much was sent that the peer's process has not read."""
        self.wants_room = False
        """Whether the process is to be told when more can be sent."""
        self._medium = medium
        self._station = here
        self._out = medium.way(here.name, there.name)
        self._in = medium.way(there.name, here.name)
        self._arriving: deque[tuple[float, bytes]] = deque()
        self._stalled: deque[bytes] = deque()
        self._latest = 0.0
        self._held_until = 0.0
        self._unanswered_since = -1.0
        self._resend_s = 0.0
        self._ended = False
        self._closed = False
        self._silent = False
        self._doomed = False
        # Guards of the two hot paths: whether more than delay happens to what this end sends, and
        # to what it receives.
        self._send_hindered = False
        self._receive_hindered = False

    @property
    def gone(self) -> bool:
        """Whether nothing will come of it any more."""
        return self._closed and not self._stalled

    def attach(
        self,
        *,
        readable: SimHandle,
        writable: SimHandle,
        failed: Callable[[OSError], None],
    ) -> None:
        """Say what to call when something arrives, when there is room, when all is lost."""
        self._readable = readable
        self._writable = writable
        self._failed = failed

    def join(self, peer: "End") -> None:
        """Make a connection of two ends."""
        self.peer = peer
        peer.peer = self

    def send(self, piece: bytes) -> None:
        """Send a piece for which there is room."""
        self.outstanding += len(piece)
        if self._send_hindered or self._medium.hindered:
            self._send_against_odds(piece)
        else:
            self._launch(piece)

    def end(self) -> None:
        """Send the end of the stream, once."""
        if not self._ended:
            self._ended = True
            self.send(END)

    def receive(self, size: int) -> bytes | None:
        """Take up to `size` bytes of what has arrived; None if there is nothing to take."""
        medium = self._medium
        now = medium.timeline.now
        if (self._receive_hindered or medium.hindered) and not self._may_receive(now):
            return None
        arriving = self._arriving
        if not arriving or arriving[0][0] > now:
            return None
        piece = arriving.popleft()[1]
        if arriving or len(piece) > size:
            piece = self._cut(piece, size, now)
        if piece:
            peer = self.peer
            peer.outstanding -= len(piece)
            if peer.wants_room:
                peer.wants_room = False
                medium.timeline.at(now + medium.delay(), peer._writable)
            medium.record(piece)
        return piece

    def close(self) -> None:
        """Let go of it, as the process does at its own end at the latest."""
        if self._closed:
            return
        self._medium.tell(f"{self.name} closes")
        self.end()
        unread = any(when <= self._medium.timeline.now and piece for when, piece in self._arriving)
        self._shut()
        if unread:
            self._reset_peer()

    def vanish(self) -> None:
        """Disappear with the machine, without a word."""
        self._silent = True
        self._stalled.clear()
        self._arriving.clear()
        if not self._closed:
            self._shut()

    def fail(self, error: OSError) -> None:
        """Give up; the process is told why, if it still wants to know."""
        self._silent = True
        self._stalled.clear()
        if not self._closed:
            self._medium.tell(f"{self.name} fails: {error}")
            self._shut()
            self._failed(error)

    def _shut(self) -> None:
        medium = self._medium
        self._closed = self._receive_hindered = True
        self.peer._send_hindered = True
        if self.peer._arriving and medium.rng.random() < medium.faults.lingers:
            medium.count("bytes linger")
            self.peer._held_until = medium.timeline.now + medium.rng.uniform(0.0, LINGER_S_MAX)
            self.peer._receive_hindered = True

    def _launch(self, piece: bytes) -> None:
        medium = self._medium
        random = medium.rng.random
        when = medium.timeline.now - log(1.0 - random()) * medium.delay_mean_s
        if random() < medium.mishaps:
            self._launch_badly(when, piece)
        else:
            self._arrive(when, piece)

    def _arrive(self, when: float, piece: bytes) -> None:
        arriving = self.peer._arriving
        if when > self._latest:
            self._latest = when
        elif arriving:
            # It comes together with the piece before it, whose event is still to come.
            arriving.append((self._latest, piece))
            return
        arriving.append((self._latest, piece))
        timeline = self._medium.timeline
        heappush(timeline.due, (self._latest, -1.0, timeline.rng.random(), self.peer._readable))

    def _launch_badly(self, when: float, piece: bytes) -> None:
        medium = self._medium
        rng, faults, now = medium.rng, medium.faults, medium.timeline.now
        kind = rng.random() * medium.mishaps
        if kind < faults.delays_long:
            medium.count("long delay")
            self._arrive(now + LONG_FACTOR * (when - now), piece)
        elif kind < faults.delays_long + faults.loses:
            medium.count("loss")
            times = 1
            while times < LOST_TIMES_MAX and rng.random() < LOST_AGAIN:
                times += 1
            if times == LOST_TIMES_MAX:
                self._doomed = True
                self._stall(piece)
            else:
                self._arrive(when + RESEND_S * (2**times - 1), piece)
        else:
            cut = rng.randrange(len(piece) + 1)
            if 0 < cut < len(piece):
                self._arrive(when, piece[:cut])
                piece = piece[cut:]
            self._arrive(when + medium.delay(), piece)

    def _send_against_odds(self, piece: bytes) -> None:
        now = self._medium.timeline.now
        if self._stalled or self._doomed or self._out.blocked or self.peer._closed:
            self._stall(piece)
            return
        if self._in.blocked:
            self._await_answer()
        through = self._out.passage(len(piece), now)
        if through > now:
            self._arrive(through, piece)
        else:
            self._launch(piece)

    def _stall(self, piece: bytes) -> None:
        self._send_hindered = True
        self._stalled.append(piece)
        self._await_answer()

    def _await_answer(self) -> None:
        if self._unanswered_since < 0:
            now = self._medium.timeline.now
            self._unanswered_since = now
            self._resend_s = RESEND_S
            # A host that is there answers at once that it knows of no such connection.
            answer_s = self._medium.delay() * 2 if self.peer._closed else RESEND_S
            self._medium.post(now + answer_s, self._resend)

    def _resend(self) -> None:
        if self._silent:
            return
        now = self._medium.timeline.now
        reaches = self.peer._station.up and not self._out.blocked and not self._doomed
        if reaches and not self.peer._closed:
            stalled, self._stalled = self._stalled, deque()
            self._send_hindered = False
            for piece in stalled:
                if self._doomed:
                    self._stalled.append(piece)
                else:
                    self._launch(piece)
        if reaches and not self._in.blocked and not self._doomed:
            self._unanswered_since = -1.0
            if self.peer._closed:
                self.fail(
                    ConnectionResetError(errno.ECONNRESET, "the peer knows no such connection")
                )
        elif now - self._unanswered_since >= self._medium.faults.give_up_s:
            self._medium.count("connection given up")
            self.fail(TimeoutError(errno.ETIMEDOUT, "the peer answers no more"))
        else:
            self._resend_s = min(self._resend_s * 2, RESEND_S_MAX)
            self._medium.post(now + self._resend_s, self._resend)

    def _may_receive(self, now: float) -> bool:
        if self._closed:
            if any(piece for _, piece in self._arriving) and not self._silent:
                self._reset_peer()
            self._arriving.clear()
            return False
        if self._in.blocked:
            self.peer._take_back(self._arriving)
            return False
        later = max(self._in.clogged_until, self._held_until)
        if later > now:
            self._medium.timeline.at(later, self._readable)
            return False
        return True

    def _take_back(self, pieces: deque[tuple[float, bytes]]) -> None:
        """Send again what did not get through, before all that waits already."""
        if pieces and not self._silent:
            self._send_hindered = True
            self._stalled.extendleft(piece for _, piece in reversed(pieces))
            self._await_answer()
        pieces.clear()

    def _cut(self, piece: bytes, size: int, now: float) -> bytes:
        """Join what has arrived together with `piece`, and leave what is more than `size`."""
        arriving = self._arriving
        pieces = [piece]
        length = len(piece)
        while piece and length < size and arriving and arriving[0][0] <= now and arriving[0][1]:
            pieces.append(arriving.popleft()[1])
            length += len(pieces[-1])
        whole = b"".join(pieces)
        if length > size:
            arriving.appendleft((now, whole[size:]))
        if arriving and arriving[0][0] <= now:
            self._medium.timeline.at(now, self._readable)
        return whole[:size]

    def _reset_peer(self) -> None:
        if not self._out.blocked:
            error = ConnectionResetError(errno.ECONNRESET, "the peer reset the connection")
            self._medium.post(
                self._medium.timeline.now + self._medium.delay(), self.peer.fail, error
            )
