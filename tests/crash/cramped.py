"""What a channel does on a small file system: run by `test_full_disk`, inside of one.

    python cramped.py SCENARIO FOLDER WRITE_PATH DURABILITY

The folder lies on a file system of a mebibyte, or every file is limited in size. What does not
hold ends the process with a traceback.
"""

import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from roost import FileChannel, NoRoom
from roost.host.posix import PosixDisk
from roost.types import Durability

SIZE = 1000
WAIT_S = 30.0


class Cramped:
    """A channel, and what was sent into it."""

    def __init__(
        self,
        folder: Path,
        path: str,
        mode: Durability,
        *,
        method: str = "off",
        segment_bytes: int = 100_000,
    ) -> None:
        self.folder = folder
        self.path = path
        self.mode = mode
        self.method = method
        self.segment_bytes = segment_bytes
        self.sent: list[bytes] = []
        self.channel = self.opened()

    def opened(self) -> FileChannel[bytes]:
        """Open the channel, small segments and all."""
        return FileChannel(
            self.folder,
            durability=self.mode,
            segment_bytes=self.segment_bytes,
            disk=PosixDisk(guarded=self.path == "mapped"),
            compression=self.method,
        )

    def fill(self) -> None:
        """Send until there is no room."""
        tx = self.channel.tx()
        for n in range(5000):
            message = b"%d " % n + bytes(SIZE - 5)
            try:
                tx.send(message)
            except NoRoom:
                return
            self.sent.append(message)
        raise AssertionError("this is no small file system")

    def check_content(self, channel: FileChannel[bytes]) -> None:
        """See that what was sent is there, and nothing else."""
        look = channel.rx("look", auto_ack=False)
        assert look.peek_many(10_000) == self.sent
        look.close()


def refused(send: Callable[[], object]) -> None:
    """See that there is no room, and that the error says so."""
    with pytest.raises(NoRoom, match=r"no room for .* Nothing was sent; it works again when"):
        send()


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline


def sends_again(cramped: Cramped) -> bool:
    """Try to send."""
    try:
        cramped.channel.tx().send(b"again")
    except NoRoom:
        return False
    cramped.sent.append(b"again")
    return True


def stays_usable(folder: Path, path: str, mode: Durability) -> None:
    """Receive, acknowledge and look while there is no room, then go on when there is."""
    ballast = folder.parent / "ballast"
    ballast.write_bytes(bytes(200_000))
    cramped = Cramped(folder, path, mode)
    channel = cramped.channel
    auto, hand = channel.rx("auto"), channel.rx("hand", auto_ack=False)
    channel.rx("look").close()
    cramped.fill()
    assert (path == "mapped") == (channel.stat().write_path == "mapped")
    for _ in range(3):
        refused(lambda: channel.tx().send(bytes([1]) * 100_000))
        refused(lambda: channel.tx().send_many([bytes([1]) * SIZE] * 100))
        assert channel.stat().failure == ""
        cramped.check_content(channel)
    assert [auto.recv(0) for _ in range(20)] == cramped.sent[:20]
    assert hand.recv_many(20) == cramped.sent[:20]
    hand.ack(10)

    ballast.unlink()

    assert sends_again(cramped)
    channel.tx().send_many([b"more"] * 100)
    cramped.sent += [b"more"] * 100
    channel.close()
    with cramped.opened() as again:
        assert again.stat().findings == []
        cramped.check_content(again)
        assert again.rx("auto").recv(0) == cramped.sent[20]
        assert again.rx("hand", auto_ack=False).recv(0) == cramped.sent[10]


def makes_room_itself(folder: Path, path: str, mode: Durability) -> None:
    """Fill it, receive everything, and go on in the room of what was collected."""
    cramped = Cramped(folder, path, mode)
    rx = cramped.channel.rx("only")
    received = 0
    while received < 3_000:
        cramped.fill()
        if cramped.sent:
            assert rx.recv_many(10_000, 0) == cramped.sent
        received += len(cramped.sent)
        cramped.sent.clear()
        until(lambda: sends_again(cramped))
    cramped.channel.close()


def opens_without_room(folder: Path, path: str, mode: Durability) -> None:
    """Open, receive and close a channel on a disk without a free byte."""
    ballast = folder.parent / "ballast"
    ballast.write_bytes(bytes(300_000))
    cramped = Cramped(folder, path, mode)
    cramped.channel.rx("r").close()
    cramped.channel.rx("look").close()
    cramped.fill()
    cramped.channel.close()
    with (folder.parent / "rest").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(512)):
            pass

    for n in range(3):
        with cramped.opened() as channel:
            cramped.check_content(channel)
            assert channel.rx("r").recv(0) == cramped.sent[n]
    with pytest.raises(NoRoom, match="no room to open"):
        FileChannel(folder.parent / "new", durability=mode)
    ballast.unlink()
    with FileChannel(folder.parent / "new", durability=mode) as channel:
        channel.tx().send(b"works")


def leaves_what_it_cannot_compress(folder: Path, path: str, mode: Durability) -> None:
    """Have no room for a compressed form: the plain one stays, and no half of the other."""
    ballast = folder.parent / "ballast"
    ballast.write_bytes(bytes(800_000))
    cramped = Cramped(folder, path, mode, method="gzip")
    cramped.channel.rx("look").close()
    cramped.fill()
    cramped.channel.sync()
    cramped.check_content(cramped.channel)
    cramped.channel.close()
    assert not list(folder.glob("*.ing"))

    ballast.unlink()
    with cramped.opened() as channel:
        until((folder / "segment.0.z").exists)
        cramped.check_content(channel)


def meets_a_limit(folder: Path, path: str, mode: Durability) -> None:
    """Be allowed no larger files, and then be allowed them again."""
    cramped = Cramped(folder, path, mode, segment_bytes=1 << 30)
    cramped.channel.rx("look").close()
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, unlimited[1]))
    cramped.fill()
    refused(lambda: cramped.channel.tx().send(b"x" * 5000))
    cramped.check_content(cramped.channel)
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert sends_again(cramped)
    cramped.channel.close()
    with cramped.opened() as again:
        cramped.check_content(again)


if __name__ == "__main__":
    scenario = {
        work.__name__: work
        for work in (
            stays_usable,
            makes_room_itself,
            opens_without_room,
            leaves_what_it_cannot_compress,
            meets_a_limit,
        )
    }[sys.argv[1]]
    scenario(Path(sys.argv[2]), sys.argv[3], sys.argv[4])  # type: ignore[arg-type]  # from a test
