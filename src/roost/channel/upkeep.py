"""Keeps a channel's folder small: compresses what is sealed, removes what nobody needs.

Both are parts of one job in steps, so a segment is never compressed and removed at once; senders
and receivers may do anything between two steps. The order of names and syncs is that
of `docs/protocols/channel.md`: a crash between any two leaves one whole form of each segment.
"""

import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final

from roost.channel.catalogue import Catalogue
from roost.channel.positions import Positions
from roost.channel.standing import Standing
from roost.host.disk import Disk, File
from roost.host.tasks import Worker
from roost.segments.compress import BadStream, Method, compressor, method_byte
from roost.segments.file import Segment, decompressed, pieces
from roost.segments.format import HEADER_BYTES, MAKING, Header, encode_header, packed_name
from roost.segments.kernel import scan


class Upkeep:
    """The two jobs of one channel."""

    def __init__(
        self,
        disk: Disk,
        standing: Standing,
        catalogue: Catalogue,
        positions: Positions,
        *,
        worker: Worker,
        method: Method | None,
        durable: Callable[[], int],
        needed: Callable[[], int | None],
    ) -> None:
        self._disk: Final = disk
        self._folder: Final = standing.folder
        self._catalogue: Final = catalogue
        self._positions: Final = positions
        self._lock: Final = standing.lock
        self._worker: Final = worker
        self._method: Final = method
        self._durable: Final = durable
        self._needed: Final = needed
        self._failed: Final = standing.fail
        self._metrics: Final = standing.metrics
        self.trouble = ""
        self._asked = False
        self._stopped = False
        self._unpackable: Final[set[int]] = set()

    def look(self) -> None:
        """Have the worker see what there is to do. Called with the lock held."""
        if not self._asked and not self._stopped:
            self._asked = True
            self._worker.start(self._run())

    def stop(self) -> None:
        """Let the work at hand end, and begin no more."""
        with self._lock:
            self._stopped = True
        self._worker.stop()

    def look_if_collectable(self) -> None:
        """Have the worker look if a position has come to where it lets a segment go."""
        if self._needless() is not None:
            self.look()

    def _run(self) -> Iterator[None]:
        with self._lock:
            self._asked = False
        try:
            yield from self._collect()
            yield from self._compress()
        except OSError as error:
            # Nothing is lost by it: what was to be removed or replaced is still there.
            # Names that may not be durable are not to be built upon; the next open looks again.
            self.trouble = f"{error}"
            with self._lock:
                self._stopped = True

    # Collection

    def _collect(self) -> Iterator[None]:
        while True:
            with self._lock:
                wanted = None if self._stopped else self._needless()
            if wanted is None:
                return
            # What lets the segment go must outlive a crash that the removal outlives.
            try:
                self._positions.sync()
            except OSError as error:
                self._failed(error)
                return
            yield
            with self._lock:
                if self._needless() != wanted:
                    continue
                self._catalogue.drop_first()
            self._disk.unlink(self._folder / wanted.name)
            yield
            # Each removal before the next one: a gap in the middle would be damage.
            self._disk.sync_folder(self._folder)
            self._metrics.collected_segments += 1
            yield

    def _needless(self) -> Segment | None:
        first = self._catalogue.segments[0]
        if first.end is None or first.end > self._durable():
            return None  # so the head is never above the durable bound
        lowest = self._needed()
        return None if lowest is None or lowest < first.end else first

    # Compression

    def _compress(self) -> Iterator[None]:
        if self._method is None:
            return
        while True:
            with self._lock:
                wanted = None if self._stopped else self._plain()
            if wanted is None:
                return
            making = self._folder / (packed_name(wanted.number) + MAKING)
            if (yield from self._pack(wanted, making, self._method)):
                yield from self._replace(wanted, making, self._method)

    def _plain(self) -> Segment | None:
        """Find a sealed and durable segment that is still plain."""
        durable = self._durable()
        for segment in self._catalogue.segments:
            if segment.end is None or segment.end > durable:
                return None
            if segment.method is None and segment.number not in self._unpackable:
                return segment
        return None

    def _pack(self, segment: Segment, making: Path, method: Method) -> Generator[None, None, bool]:
        """Write the compressed form and verify it; the answer is whether it can be used."""
        assert segment.end is not None
        header = Header(
            segment=segment.number,
            begin=segment.begin,
            end=segment.end,
            method=method_byte(method),
        )
        plain = self._catalogue.open(segment)
        target = self._disk.open(making, create=True)
        whole = False
        try:
            target.truncate(0)
            target.write_at(0, encode_header(header))
            at, stop = HEADER_BYTES, HEADER_BYTES + segment.end - segment.begin
            stream, digest, begun = compressor(method), 0, b""
            for piece in pieces(plain, HEADER_BYTES, stop):
                digest = zlib.crc32(piece, digest)
                begun = _behind_frames(begun + piece)
                packed = stream.add(piece)
                target.write_at(at, packed)
                at += len(packed)
                yield
            target.write_at(at, stream.finish())
            target.sync()
            yield
            check = yield from self._digest(target, _packed(segment, method))
            whole = check == digest and not begun  # damage is left as it is
        except BadStream:
            whole = False
        except OSError as error:  # no room for it, say: the plain form is as good
            self.trouble = f"{segment.name} stays as it is: {error}"
        finally:
            plain.close()
            target.close()
            if not whole:
                self._unpackable.add(segment.number)
        if not whole:
            self._disk.unlink(making)
        return whole

    def _digest(self, file: File, segment: Segment) -> Generator[None, None, int]:
        digest = 0
        for chunk in decompressed(file, segment):
            digest = zlib.crc32(chunk, digest)
            yield
        return digest

    def _replace(self, segment: Segment, making: Path, method: Method) -> Iterator[None]:
        """Put the compressed form in the plain one's place."""
        self._disk.rename(making, self._folder / packed_name(segment.number))
        yield
        self._disk.sync_folder(self._folder)
        yield
        with self._lock:
            self._catalogue.replace(_packed(segment, method))
        self._disk.unlink(self._folder / segment.name)
        yield
        self._disk.sync_folder(self._folder)
        self._metrics.compressed_segments += 1


def _behind_frames(content: bytes) -> bytes:
    """Give what is left behind the good frames: one that goes on, or damage."""
    return content[scan(content, 0, len(content))[0] :]


def _packed(segment: Segment, method: Method) -> Segment:
    return Segment(number=segment.number, begin=segment.begin, end=segment.end, method=method)
