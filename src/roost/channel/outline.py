"""What a folder tells about its channel, seen without its lock.

`ChannelStat` is what an open channel says about itself; this is for everybody else. The figures
are read one after the other, so beside an owner that is busy they may be of different moments.
"""

from typing import Final

import msgspec

from roost.channel.recover import SALVAGE_NAME, Finding
from roost.channel.view import View
from roost.host.disk import Disk

UNKNOWN: Final = "unknown"


class ReceiverLine(msgspec.Struct, frozen=True):
    """One receiver: where it stands, and how many bytes of frames it has before it."""

    name: str
    id: int
    position: int
    behind_bytes: int


class SegmentLine(msgspec.Struct, frozen=True):
    """One segment: its form is 'growing', 'plain', or the method of its compression."""

    number: int
    form: str
    begin: int
    end: int
    file: str
    file_bytes: int


class SalvageLine(msgspec.Struct, frozen=True):
    """One file of bytes that recovery cut from the tail."""

    file: str
    bytes: int


class Outline(msgspec.Struct, frozen=True):
    """A channel as its folder shows it. `visible` is how far receivers may read."""

    path: str
    durability: str
    write_path: str
    owner: str
    head: int
    durable: int
    visible: int
    written: int
    incarnation: int
    disk_bytes: int
    receivers: list[ReceiverLine]
    segments: list[SegmentLine]
    salvage: list[SalvageLine]
    findings: list[Finding]


def outline(disk: Disk, view: View, *, write_path: str, owner: str) -> Outline:
    """Describe a channel."""
    marks = view.receivers()
    view.refresh()  # so that nobody stands behind an end that moved meanwhile
    written = view.written()
    segments = view.again(lambda: _segments(disk, view, written))
    return Outline(
        path=str(view.path),
        durability=view.durability or UNKNOWN,
        write_path=write_path,
        owner=owner,
        head=view.head,
        durable=view.bound,
        visible=view.visible,
        written=written,
        incarnation=view.incarnation,
        disk_bytes=sum(line.file_bytes for line in segments),
        receivers=[
            ReceiverLine(
                name=mark.name,
                id=mark.id,
                position=mark.position,
                behind_bytes=max(0, view.visible - mark.position),
            )
            for mark in marks
        ],
        segments=segments,
        salvage=_salvage(disk, view),
        findings=view.findings,
    )


def _segments(disk: Disk, view: View, written: int) -> list[SegmentLine]:
    return [
        SegmentLine(
            number=segment.number,
            form=segment.method or ("growing" if segment.end is None else "plain"),
            begin=segment.begin,
            end=written if segment.end is None else segment.end,
            file=segment.name,
            file_bytes=_size(disk, view, segment.name),
        )
        for segment in view.segments
    ]


def _size(disk: Disk, view: View, name: str) -> int:
    file = disk.open(view.path / name, writable=False)
    try:
        return file.size()
    finally:
        file.close()


def _salvage(disk: Disk, view: View) -> list[SalvageLine]:
    try:
        names = disk.names(view.path / SALVAGE_NAME)
    except FileNotFoundError:
        return []
    return [
        SalvageLine(file=name, bytes=_size(disk, view, f"{SALVAGE_NAME}/{name}")) for name in names
    ]
