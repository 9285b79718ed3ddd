"""What a node is measured against: the plainest write that is durable, the plainest way to send.

They do what nobody could leave out and nothing else: no checksum, no order to keep, no second
client.
"""

import os
import socket
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from bench.node.programs import Beside

_WAIT_S = 60.0
_NEVER = 1 << 62


class RawFile:
    """A preallocated file that is written from its first byte on, each write synced."""

    def __init__(self, path: Path, size: int) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._path = path
        self._size = size
        self._end = 0

    def close(self) -> None:
        """Let go of the file and remove it."""
        os.close(self._fd)
        self._path.unlink()

    def median_us(self, payload: bytes, turn_s: float) -> float:
        """Write for so long, and tell how long one write takes, in microseconds."""
        return statistics.median(self._writes(payload, turn_s, _NEVER)) * 1e6

    def bytes_s(self, payload: bytes, times: int) -> float:
        """Write so often, and tell how many bytes a second became durable."""
        return len(payload) * times / sum(self._writes(payload, _NEVER, times))

    def _writes(self, payload: bytes, turn_s: float, times: int) -> list[float]:
        """Write and sync the same bytes again and again; how long each took, in seconds."""
        clock, pwrite, fdatasync, fd = time.perf_counter, os.pwrite, os.fdatasync, self._fd
        taken_s: list[float] = []
        self._allocate()
        end = clock() + turn_s
        while len(taken_s) < times and (began := clock()) < end:
            if self._end + len(payload) > self._size:
                self._allocate()
                began = clock()
            pwrite(fd, payload, self._end)
            fdatasync(fd)
            taken_s.append(clock() - began)
            self._end += len(payload)
        return taken_s

    def _allocate(self) -> None:
        # Always fresh blocks, as those of a segment are that a journal goes on in.
        os.truncate(self._fd, 0)
        os.posix_fallocate(self._fd, 0, self._size)
        os.fsync(self._fd)
        self._end = 0


def socket_bytes_s(files: Sequence[Path], chunk_bytes: int, sending: Beside) -> float:
    """Send files from another process to this one over loopback; bytes a second, until the last."""
    size = sum(path.stat().st_size for path in files)
    buffer = bytearray(chunk_bytes)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(_WAIT_S)
        sent = sending.begin(_send, files, listening.getsockname()[1], chunk_bytes)
        with listening.accept()[0] as peer:
            began = time.perf_counter()
            peer.sendall(b"!")
            missing = size
            while missing:
                if not (taken := peer.recv_into(buffer)):
                    raise ConnectionError(f"{missing} of {size} bytes did not come")
                missing -= taken
            took_s = time.perf_counter() - began
        sent.result(_WAIT_S)
    return size / took_s


def _send(files: Sequence[Path], port: int, chunk_bytes: int) -> None:
    """Read files and send what is read, once the other side asks for it."""
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.recv(1)
        for path in files:
            fd = os.open(path, os.O_RDONLY)
            try:
                while chunk := os.read(fd, chunk_bytes):
                    peer.sendall(chunk)
            finally:
                os.close(fd)
