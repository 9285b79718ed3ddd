"""What one side of a connection puts up with."""

import msgspec

from roost.wire.frame import FRAME_BYTES_MAX


class Limits(msgspec.Struct, frozen=True):
    """Bounds for time and memory; a test or a small machine may want lower ones."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    """The longest frame that is taken once the handshake is done."""

    hello_s: float = 5.0
    """How long a new connection may take to say hello."""

    connections_max: int = 1000
    """How many connections a server has at once; more are told to come back later."""

    held_bytes_max: int = 32 << 20
    """How many bytes of requests are under way on one connection before it is not read from."""

    tasks_max: int = 1000
    """How many requests that run as tasks one connection may have under way."""

    output_bytes_max: int = 256 << 10
    """How much may wait to be sent before `drained` waits, and a server reads no more."""

    stream_bytes_max: int = 64 << 20
    """How much of a stream's answer may wait for its reader; no honest peer sends as much."""
