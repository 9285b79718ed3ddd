"""The two files of each ledger: their names, their headers, and how many are open at once.

Each worker has files of its own, so that nothing is shared between threads; how many of them it
keeps open is bounded, whatever the number of ledgers.
"""

from collections import OrderedDict
from pathlib import Path
from struct import Struct
from typing import Final

from roost.host.disk import Disk, File
from roost.types import LedgerId
from roost.wire.checksum import crc32

HEADER_BYTES: Final = 64
"""Both files begin with a header; it tells people and `verify` what they look at.

    offset  bytes
    0       8      magic: ROOSTLOG or ROOSTIDX
    8       4      CRC-32 of the 48 bytes behind this field, counted from offset 12
    12      4      version
    16      8      ledger
    24      36     zeros
    60      4      zeros
"""

LOG: Final = "log"
INDEX: Final = "index"
_MAGIC: Final = {LOG: b"ROOSTLOG", INDEX: b"ROOSTIDX"}
_HEADER: Final = Struct("<IQ36x")
_VERSION: Final = 1


def file_name(ledger: int, kind: str) -> str:
    """Name one of a ledger's files."""
    return f"{ledger}.{kind}"


def parse_file_name(name: str) -> tuple[LedgerId, str] | None:
    """Tell what a name in the folder of ledgers stands for; None if it is no file of ours."""
    number, _, kind = name.partition(".")
    if kind not in _MAGIC or not (number.isascii() and number.isdecimal()):
        return None
    ledger = LedgerId(int(number))
    return (ledger, kind) if file_name(ledger, kind) == name else None


def encode_header(ledger: int, kind: str) -> bytes:
    """Make the header of a file."""
    behind = _HEADER.pack(_VERSION, ledger)
    return (_MAGIC[kind] + crc32(behind).to_bytes(4, "little") + behind).ljust(HEADER_BYTES, b"\0")


def header_problem(header: bytes, ledger: int, kind: str) -> str:
    """Say what is wrong with a file's header; '' if nothing is."""
    return "" if header == encode_header(ledger, kind) else f"it does not begin as {kind} {ledger}"


class OpenFiles:
    """Files of ledgers that one worker has open, the least recently used ones closed first."""

    def __init__(self, disk: Disk, folder: Path, *, files_max: int, writable: bool) -> None:
        self._disk: Final = disk
        self._folder: Final = folder
        self._files_max: Final = files_max
        self._writable: Final = writable
        self._files: Final[OrderedDict[tuple[LedgerId, str], File]] = OrderedDict()

    def get(self, ledger: LedgerId, kind: str, *, create: bool = False) -> File:
        """Give a file, opened if need be."""
        key = (ledger, kind)
        file = self._files.get(key)
        if file is not None:
            self._files.move_to_end(key)
            return file
        if len(self._files) >= self._files_max:
            self._files.popitem(last=False)[1].close()
        path = self._folder / file_name(ledger, kind)
        file = self._disk.open(path, create=create, writable=self._writable)
        self._files[key] = file
        return file

    def drop(self, ledger: LedgerId) -> None:
        """Close the files of a ledger."""
        for kind in _MAGIC:
            file = self._files.pop((ledger, kind), None)
            if file is not None:
                file.close()

    def close(self) -> None:
        """Close all."""
        while self._files:
            self._files.popitem()[1].close()
