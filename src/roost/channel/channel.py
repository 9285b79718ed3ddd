"""`FileChannel`: a crash-safe queue in a folder, for any Python program.

It opens the folder under its lock, puts right what a crash left, and hands out senders and
receivers. Everything that happens afterwards is in `machine`.
"""

import errno
from pathlib import Path
from typing import (
    Any,
    Final,
    Generic,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_args,
    overload,
)

from roost.channel.async_receiver import AsyncReceiver
from roost.channel.handle import Handle
from roost.channel.machine import Machine
from roost.channel.receiver import Receiver
from roost.channel.recover import Recovered, Recovery
from roost.channel.sender import AsyncSender, Sender
from roost.channel.settings import Settings
from roost.channel.stat import ChannelStat, ReceiverStat, channel_stat, receiver_stats
from roost.errors import Invalid, NoRoom, NotFound, RoostError, Unavailable
from roost.host.clock import Clock
from roost.host.disk import Disk, Held, Lock
from roost.host.metrics import ChannelMetrics, Sample, collect
from roost.host.posix import PosixDisk
from roost.host.system import SystemClock, ThreadTasks, this_process
from roost.host.tasks import Tasks
from roost.segments.compress import Method
from roost.segments.format import parse_name
from roost.segments.kernel import GUARDED
from roost.segments.windows import Windows
from roost.types import Durability
from roost.wire.codec import Codec, CodecName, codec_named

T = TypeVar("T")

LOCK_NAME: Final = "lock"
SEGMENT_BYTES: Final = 64 * 1024 * 1024
MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
MESSAGE_BYTES_LIMIT: Final = 1024 * 1024 * 1024
INTERVAL_S_MAX: Final = 3600
COMPRESSIONS: Final = ("off", *get_args(Method))


class _Options(TypedDict, total=False):
    durability: Durability
    segment_bytes: int
    message_bytes_max: int
    compression: str | None
    interval_s: float
    create: bool
    disk: Disk | None
    tasks: Tasks | None
    clock: Clock | None
    windows: Windows | None
    holder: str | None


class FileChannel(Generic[T]):
    """An ordered, durable queue in a folder; one process has it open at a time.

    `durability` says when a send returns: after an fsync that many senders share (`fsync`), or as
    soon as the operating system has the message, with an fsync every `interval_s` (`interval`) or
    none (`os`); the last two survive the death of the process, not that of the system.

    `codec` turns messages into bytes: 'bytes' (default), 'str', 'json', 'msgpack', or a `Codec`.
    `compression` of sealed segments: 'off', 'snappy', 'gzip', or 'zstd' (which other programs of
    this format cannot read); left out, a folder keeps what it has. A segment is sealed when it
    holds `segment_bytes`. `holder` is what others are told of who has it open.
    """

    @overload
    def __init__(
        self: "FileChannel[bytes]", path: str | Path, **options: Unpack[_Options]
    ) -> None: ...

    @overload
    def __init__(
        self: "FileChannel[Any]",
        path: str | Path,
        *,
        codec: CodecName,
        **options: Unpack[_Options],
    ) -> None: ...

    @overload
    def __init__(
        self, path: str | Path, *, codec: Codec[T], **options: Unpack[_Options]
    ) -> None: ...

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Durability = "fsync",
        codec: Codec[T] | CodecName = "bytes",
        segment_bytes: int = SEGMENT_BYTES,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        compression: str | None = None,
        interval_s: float = 0.05,
        create: bool = True,
        disk: Disk | None = None,
        tasks: Tasks | None = None,
        clock: Clock | None = None,
        windows: Windows | None = None,
        holder: str | None = None,
    ) -> None:
        self._path: Final = Path(path)
        self._codec: Final[Codec[T]] = codec if isinstance(codec, Codec) else codec_named(codec)
        self._disk: Final = disk if disk is not None else PosixDisk(guarded=GUARDED)
        _check(
            durability=durability,
            compression=compression,
            segment_bytes=segment_bytes,
            message_bytes_max=message_bytes_max,
            interval_s=interval_s,
        )
        self._lock: Final = self._take_lock(holder or this_process(), create=create)
        try:
            recovered = self._recover(message_bytes_max, durability)
            self._machine: Final = Machine(
                self._disk,
                self._path,
                recovered,
                settings=Settings(
                    durability=durability,
                    segment_bytes=segment_bytes,
                    message_bytes_max=message_bytes_max,
                    interval_s=interval_s,
                    method=_method(compression, recovered, self._path),
                    windows=windows if windows is not None else Windows(),
                    unmapped_because=self._disk.mapping(self._path),
                ),
                tasks=tasks if tasks is not None else ThreadTasks(),
                clock=clock if clock is not None else SystemClock(),
                metrics=ChannelMetrics(salvaged_bytes=_salvaged(recovered)),
            )
        except BaseException:
            self._lock.release()
            raise

    def _take_lock(self, holder: str, *, create: bool) -> Lock:
        try:
            if create:
                self._disk.make_folder(self._path)
            elif not any(map(parse_name, self._disk.names(self._path))):
                raise NotFound(f"there is no channel in {self._path}")
            return self._disk.lock(self._path / LOCK_NAME, holder=holder)
        except FileNotFoundError as error:
            raise NotFound(f"there is no channel in {self._path}") from error
        except OSError as error:
            raise self._cannot_open(error) from error
        except Held as error:
            other = error.holder or "another program"
            raise Unavailable(
                f"the channel {self._path} is in use by {other}; one process has it open at a "
                "time. Reading commands (stat, tail, verify, dump) work beside it."
            ) from error

    def _recover(self, message_bytes_max: int, durability: str) -> Recovered:
        try:
            return Recovery(
                self._disk, self._path, message_bytes_max=message_bytes_max, durability=durability
            ).run()
        except OSError as error:
            raise self._cannot_open(error) from error

    def _cannot_open(self, error: OSError) -> RoostError:
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT:
                return NoRoom(f"there is no room to open {self._path}: {error}")
            case errno.ENOTDIR | errno.EEXIST if error.filename == str(self._path):
                return Invalid(f"{self._path} is not a folder; a channel needs one of its own")
            case _:
                return Unavailable(f"{self._path} cannot be opened: {error}")

    @property
    def path(self) -> Path:
        """The channel's folder."""
        return self._path

    def tx(self) -> Sender[T]:
        """Make a sender for threads."""
        return Sender(self._machine, self._codec)

    def async_tx(self) -> AsyncSender[T]:
        """Make a sender for asyncio tasks."""
        return AsyncSender(self._machine, self._codec)

    def rx(
        self, name: str = "default", *, start: int | str = "head", auto_ack: bool = True
    ) -> Receiver[T]:
        """Open a receiver: a name with a durable position of its own.

        Every receiver sees every message; handles of the same name share its position and
        compete. A new one begins at `start`: 'head', 'tail', or a message's position. With
        `auto_ack` a message is acknowledged by being received; otherwise call `ack`.
        """
        return Receiver(self._handle(name, start=start, auto_ack=auto_ack))

    def async_rx(
        self, name: str = "default", *, start: int | str = "head", auto_ack: bool = True
    ) -> AsyncReceiver[T]:
        """Open a receiver for asyncio tasks, as `rx` does for threads."""
        return AsyncReceiver(self._handle(name, start=start, auto_ack=auto_ack))

    def _handle(self, name: str, *, start: int | str, auto_ack: bool) -> Handle[T]:
        reading = self._machine.readings.open(
            name, start=start, auto_ack=auto_ack, decoded=self._codec.decode is not None
        )
        return Handle(self._machine, reading, self._codec)

    def receivers(self) -> list[ReceiverStat]:
        """List the receivers, whether open or not."""
        return receiver_stats(self._machine)

    def remove_receiver(self, name: str) -> None:
        """Forget a receiver and its position; segments are no longer kept for it."""
        self._machine.readings.remove(name)

    def stat(self) -> ChannelStat:
        """Tell how the channel stands."""
        return channel_stat(self._machine)

    def metrics(self) -> list[Sample]:
        """Read the counters since opening; `render_prometheus` in `roost.host.metrics` writes them.

        What is sent and received is not counted by messages: that would cost more than sending.
        """
        return list(collect(self._machine.metrics(), channel=str(self._path)))

    def sync(self) -> None:
        """Make everything sent and every position so far durable, whatever the mode."""
        self._machine.sync()

    def close(self) -> None:
        """Make everything durable and let go of the folder. Closing twice does nothing.

        Whoever waits in a receive gets `Closed`; what was sent and not received stays.
        """
        try:
            self._machine.close()
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        """Use the channel for a while."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _check(
    *,
    durability: str,
    compression: str | None,
    segment_bytes: int,
    message_bytes_max: int,
    interval_s: float,
) -> None:
    if durability not in get_args(Durability):
        raise Invalid(f"durability={durability!r}: one of {', '.join(get_args(Durability))}")
    if compression is not None and compression not in COMPRESSIONS:
        raise Invalid(f"compression={compression!r}: one of {', '.join(COMPRESSIONS)}")
    if not isinstance(segment_bytes, int) or segment_bytes < 1:
        raise Invalid(f"segment_bytes={segment_bytes!r}: a whole number, at least 1")
    if not isinstance(message_bytes_max, int) or not 1 <= message_bytes_max <= MESSAGE_BYTES_LIMIT:
        raise Invalid(
            f"message_bytes_max={message_bytes_max!r}: a whole number from 1 to "
            f"{MESSAGE_BYTES_LIMIT}"
        )
    if not isinstance(interval_s, int | float) or not 0 < interval_s <= INTERVAL_S_MAX:
        raise Invalid(f"interval_s={interval_s!r}: more than 0 and at most {INTERVAL_S_MAX}")


def _salvaged(recovered: Recovered) -> int:
    return sum(finding.size for finding in recovered.findings if finding.kind == "torn")


def _method(compression: str | None, recovered: Recovered, path: Path) -> Method | None:
    """Choose how to compress: a folder keeps the method that it has."""
    found = next((s.method for s in reversed(recovered.segments) if s.method is not None), None)
    if compression is None:
        return found
    if compression == "off":
        return None
    if found is not None and found != compression:
        raise Invalid(
            f"compression={compression!r}: the segments of {path} are compressed with {found}, "
            "and a folder keeps its method. Leave the argument out, or begin another folder."
        )
    return cast("Method", compression)
