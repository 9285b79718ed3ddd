"""Checks everything that a folder holds, beside its owner or without one, and changes nothing.

The promise: every message that may be read was read and its checksum computed, in every form in
which it is stored, or there is a finding about it. What an owner or the next open puts right by
itself is only noted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from roost.channel.channel import MESSAGE_BYTES_LIMIT
from roost.channel.cursors import SLOT_BYTES
from roost.channel.positions import OFFSET_NAME
from roost.channel.recover import SALVAGE_NAME, Finding
from roost.channel.view import BATCH_COUNT, View
from roost.errors import Corrupt, Trimmed
from roost.host.disk import Disk
from roost.segments.file import Segment, good_stop, pieces
from roost.segments.format import HEADER_BYTES, parse_name, plain_name

NOTE: Final = "note"
"""The kind of a finding that is no problem."""


class Verified(msgspec.Struct, frozen=True):
    """What was read, from which position to which, and what was found."""

    messages: int
    payload_bytes: int
    segments: int
    begin: int
    end: int
    findings: list[Finding]

    @property
    def problems(self) -> list[Finding]:
        """The findings that nobody puts right."""
        return [finding for finding in self.findings if finding.kind != NOTE]


class Verification:
    """One reading of one folder; `progress` hears of the bytes done, and of all."""

    def __init__(self, disk: Disk, view: View, *, progress: Callable[[int, int], None]) -> None:
        self._disk: Final = disk
        self._view: Final = view
        self._progress: Final = progress
        self._findings: Final[list[Finding]] = []
        self._messages = 0
        self._payload_bytes = 0

    def run(self) -> Verified:
        """Read everything once."""
        view = self._view
        begin = view.go("head")
        self._findings.extend(view.findings)
        self._read_messages(begin)
        for step in (self._check_second_forms, self._check_end, self._check_offset):
            with self._unhindered():
                step()
        self._note_leftovers()
        return Verified(
            messages=self._messages,
            payload_bytes=self._payload_bytes,
            segments=len(view.segments),
            begin=begin,
            end=view.position,
            findings=self._findings,
        )

    def _find(self, kind: str, name: str, offset: int, size: int, text: str) -> None:
        file = str(self._view.path / name)
        self._findings.append(Finding(kind=kind, file=file, offset=offset, size=size, text=text))

    @contextmanager
    def _unhindered(self) -> Iterator[None]:
        """Note what cannot be read, and go on behind this."""
        try:
            yield
        except OSError as error:
            self._note_unreadable(error)

    def _note_unreadable(self, error: OSError) -> None:
        file = error.filename or str(self._view.path)
        found = Finding("unreadable", file, 0, 0, f"it cannot be read ({error.strerror})")
        if found not in self._findings:
            self._findings.append(found)

    def _read_messages(self, begin: int) -> None:
        view = self._view
        while True:
            try:
                messages = view.take(BATCH_COUNT)
            except (Corrupt, Trimmed, OSError) as error:
                if not self._pass_over(error):
                    return
                continue
            if not messages:
                return
            self._messages += len(messages)
            self._payload_bytes += sum(len(message.payload) for message in messages)
            self._progress(view.position - begin, view.visible - begin)

    def _pass_over(self, error: Corrupt | Trimmed | OSError) -> bool:
        """Note what is in the way, and go on behind it; False if there is nothing behind it."""
        position = self._view.position
        if isinstance(error, OSError):
            self._note_unreadable(error)
            return self._pass_over_segment(position)
        passed = self._view.pass_over()
        if isinstance(error, Corrupt):
            cause = "" if error.__cause__ is None else f" ({error.__cause__})"
            text = f"no good message at position {position}{cause}"
            self._findings.append(Finding("corrupt", error.file, error.offset, passed, text))
        else:
            self._find(NOTE, "", 0, passed, "removed while it was read: all receivers have it")
        return passed > 0

    def _pass_over_segment(self, position: int) -> bool:
        rest = [segment for segment in self._view.segments if segment.begin > position]
        if rest:
            self._view.go(rest[0].begin)
        return bool(rest)

    def _check_second_forms(self) -> None:
        """Check plain segments beside their compressed form, as a crash may leave them."""
        names = set(self._disk.names(self._view.path))
        for segment in self._view.segments:
            name = plain_name(segment.number)
            if segment.method is None or segment.end is None or name not in names:
                continue
            try:
                file = self._disk.open(self._view.path / name, writable=False)
            except FileNotFoundError:
                continue  # the owner was just about to remove it
            wanted = HEADER_BYTES + segment.end - segment.begin
            try:
                stop = good_stop(file, HEADER_BYTES, message_bytes_max=wanted)
            finally:
                file.close()
            state = "whole" if stop >= wanted else f"damaged at offset {stop}"
            text = f"the compressed form is there, too; this one is {state}"
            self._find(NOTE, name, min(stop, wanted), 0, text)

    def _check_end(self) -> None:
        """Say what stands behind the last message that may be read."""
        view = self._view
        written = view.written()
        if written > view.visible:
            text = "good messages that are not durable yet: receivers do not see them"
            here = [segment for segment in view.segments if segment.begin <= view.visible][-1]
            self._find(NOTE, here.name, _offset(here, view.visible), written - view.visible, text)
        view.again(lambda: self._note_torn(written))

    def _note_torn(self, written: int) -> None:
        """Note bytes at the growing end that are no message, or not yet."""
        last = self._view.segments[-1]
        if last.end is not None:
            return
        file = self._disk.open(self._view.path / last.name, writable=False)
        try:
            start = good_stop(file, _offset(last, written), message_bytes_max=MESSAGE_BYTES_LIMIT)
            torn = sum(len(piece.strip(b"\0")) for piece in pieces(file, start))
        finally:
            file.close()
        if torn:
            text = f"half a message; with no owner at work, an open moves it to {SALVAGE_NAME}/"
            self._find(NOTE, last.name, start, torn, text)

    def _check_offset(self) -> None:
        """Check that the file `offset` can be read and fits to the messages."""
        view = self._view
        head = view.head
        marks, damaged = view.marks()
        view.refresh()  # so that nobody stands behind an end that moved meanwhile
        for slot in damaged:
            self._find("corrupt", OFFSET_NAME, SLOT_BYTES * slot, SLOT_BYTES, "no copy is whole")
        for slot, mark in marks.items():
            wrong = ""
            with self._unhindered():
                wrong = "" if slot == 0 else self._misplaced(head, mark.position)
            if wrong:
                text = f"receiver {mark.name!r} stands at {mark.position}, {wrong}"
                self._find("misplaced", OFFSET_NAME, SLOT_BYTES * slot, SLOT_BYTES, text)

    def _misplaced(self, head: int, position: int) -> str:
        if position < head:
            return f"before the head {head}"
        if position > self._view.visible:
            return f"behind the end {self._view.visible}"
        if self._view.boundary(position) != position:
            return "which is not where a message begins"
        return ""

    def _note_leftovers(self) -> None:
        for name in self._disk.names(self._view.path):
            parsed = parse_name(name)
            if parsed is not None and parsed.making:
                self._find(NOTE, name, 0, 0, "not finished; without an owner, removed on open")


def _offset(segment: Segment, position: int) -> int:
    return HEADER_BYTES + position - segment.begin
