"""Bugs to plant in the file channel; see `tests.power.bugs`."""

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest

from roost.channel import recover, sender, tail
from roost.channel.acks import Deliveries
from roost.channel.flush import Flusher
from roost.channel.handle import Handle
from roost.channel.recover import Recovery
from roost.channel.tail import Tail
from roost.channel.upkeep import Upkeep
from roost.host.disk import Disk, File
from roost.segments import scan
from roost.segments.compress import Method
from roost.segments.file import Segment
from roost.segments.format import MAKING, Header, encode_header, packed_name, plain_name
from roost.segments.scan import Survey
from tests.power.bugs import Bug


def offset_file_trusted_over_data(patch: pytest.MonkeyPatch) -> None:
    """The end of the channel is taken from the offset file, not from what is in the segments."""

    def survey(_view: memoryview, *, stop: int, bound: int, **_: Any) -> Survey:
        end = min(max(bound, 64), stop)
        return Survey(end=end, damages=(), torn_stop=end)

    patch.setattr(recover, "survey", survey)


def rename_without_folder_sync(patch: pytest.MonkeyPatch) -> None:
    """A new segment's name is not made durable before messages in it are acknowledged."""

    def create_segment(disk: Disk, folder: Path, *, number: int, begin: int) -> File:
        target = folder / plain_name(number)
        making = target.with_name(target.name + MAKING)
        file = disk.open(making, create=True)
        file.write_at(0, encode_header(Header(segment=number, begin=begin)))
        file.sync()
        disk.rename(making, target)
        return file

    patch.setattr(tail, "create_segment", create_segment)


def compression_unlinks_first(patch: pytest.MonkeyPatch) -> None:
    """The plain form goes before the compressed one has its name."""

    def replace(self: Any, segment: Segment, making: Path, method: Method) -> Iterator[None]:
        self._disk.unlink(self._folder / segment.name)
        yield
        self._disk.rename(making, self._folder / packed_name(segment.number))
        yield
        self._disk.sync_folder(self._folder)
        with self._lock:
            self._catalogue.replace(msgspec.structs.replace(segment, method=method))

    patch.setattr(Upkeep, "_replace", replace)


def ack_before_fsync(patch: pytest.MonkeyPatch) -> None:
    """A send returns without waiting for the sync."""

    async def durable(*_: object) -> None:
        return

    patch.setattr(sender, "_durable", durable)


def collection_one_segment_too_far(patch: pytest.MonkeyPatch) -> None:
    """A segment goes when the slowest receiver has come into it, not when it has left it."""

    def needless(self: Any) -> Segment | None:
        first, needed = self._catalogue.segments[0], self._needed()
        if first.end is None or needed is None or needed <= first.begin:
            return None
        return cast("Segment", first)

    patch.setattr(Upkeep, "_needless", needless)


def durable_mark_taken_after_the_sync(patch: pytest.MonkeyPatch) -> None:
    """What is written while a sync runs is called durable by it."""

    def round_(self: Any) -> Iterator[None]:
        try:
            for file in self._target.pending()[1]:
                yield
                file.sync()
                yield
        except OSError as error:
            with self._lock:
                self.group.fail()
            self._failed(error)
            return
        with self._lock:
            self.group.begin(max(self._target.pending()[0], self.group.durable))
            self._target.settled(self.group.done())
        self._wake()

    patch.setattr(Flusher, "_round", round_)


def failed_sync_tried_again(patch: pytest.MonkeyPatch) -> None:
    """A sync that failed is done again, and believed."""

    def round_(self: Any) -> Iterator[None]:
        with self._lock:
            written, files = self._target.pending()
            self.group.begin(max(written, self.group.durable))
        for file in files:
            yield
            for _ in range(20):
                try:
                    file.sync()
                except OSError:
                    continue
                break
            yield
        with self._lock:
            self._target.settled(self.group.done())
        self._wake()

    patch.setattr(Flusher, "_round", round_)


def recovery_only_syncs(patch: pytest.MonkeyPatch) -> None:
    """Recovery syncs what a failed sync may have left clean but lost, and does not rewrite it."""

    def sync_only(self: Any, segment: Segment, bound: int) -> None:
        assert bound >= 0
        file = self._disk.open(self._folder / segment.name)
        file.sync()
        file.close()

    patch.setattr(Recovery, "_write_again", sync_only)


def truncation_at_any_bad_frame(patch: pytest.MonkeyPatch) -> None:
    """Whatever fails its checksum is taken for a torn tail, also below the durable bound."""

    def survey(view: memoryview, *, bound: int, **rest: Any) -> Survey:
        return scan.survey(view, bound=min(bound, 0), **rest)

    patch.setattr(recover, "survey", survey)


def collection_before_positions_are_durable(patch: pytest.MonkeyPatch) -> None:
    """A segment goes while the positions that let it go are only in the page cache."""

    def collect(self: Any) -> Iterator[None]:
        while (wanted := self._needless()) is not None:
            self._catalogue.drop_first()
            self._disk.unlink(self._folder / wanted.name)
            yield
            self._disk.sync_folder(self._folder)
            yield

    patch.setattr(Upkeep, "_collect", collect)


def readers_see_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    """In mode fsync messages are visible as soon as they are written."""
    real = Tail.__init__

    def init(self: Tail, *args: Any, **options: Any) -> None:
        real(self, *args, **{**options, "publish": True})

    patch.setattr(Tail, "__init__", init)


def position_passes_the_unacknowledged(patch: pytest.MonkeyPatch) -> None:
    """The position follows what was handed out, not what was acknowledged."""
    patch.setattr(Deliveries, "position", lambda _self, cursor: cursor)


def cancelled_receive_not_given_back(patch: pytest.MonkeyPatch) -> None:
    """What a cancelled receive had taken is forgotten."""
    patch.setattr(Handle, "give_back", lambda _self, _taken: 0)


def sealed_segments_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A sync forgets the segment that was rolled away from since the last one."""

    def pending(self: Any) -> tuple[int, Sequence[File]]:
        return self._ends.written, [self._file]

    patch.setattr(Tail, "pending", pending)


def compressed_form_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The compressed form takes the plain one's place while it is only in the page cache."""
    real = Upkeep._pack

    def pack(self: Any, *args: Any) -> Generator[None, None, bool]:
        disk = self._disk
        self._disk = _Unsynced(disk)
        try:
            return (yield from real(self, *args))
        finally:
            self._disk = disk

    patch.setattr(Upkeep, "_pack", pack)


class _Unsynced:
    """A disk whose files are not synced."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> Any:
        file: Any = self._disk.open(path, create=create, writable=writable)
        file.sync = lambda: None
        return file

    def unlink(self, path: Path) -> None:
        self._disk.unlink(path)


BUGS: Final = [
    Bug("offset file trusted over data", offset_file_trusted_over_data, 100),
    Bug("rename without folder sync", rename_without_folder_sync, 300),
    Bug("compression unlinks first", compression_unlinks_first, 400),
    Bug("ack before fsync", ack_before_fsync, 100),
    Bug("collection one segment too far", collection_one_segment_too_far, 100),
    Bug("durable mark taken after the sync", durable_mark_taken_after_the_sync, 600),
    Bug("failed sync tried again", failed_sync_tried_again, 300),
    Bug("recovery only syncs", recovery_only_syncs, 1500),
    Bug("truncation at any bad frame", truncation_at_any_bad_frame, 600),
    Bug("collection before positions", collection_before_positions_are_durable, 100),
    Bug("readers see what is not durable", readers_see_what_is_not_durable, 100),
    Bug("position passes the unacked", position_passes_the_unacknowledged, 100),
    Bug("cancelled receive not given back", cancelled_receive_not_given_back, 100),
    Bug("sealed segments not synced", sealed_segments_not_synced, 200),
    Bug("compressed form not synced", compressed_form_not_synced, 100),
]
