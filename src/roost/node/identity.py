"""Who a node is: made once in an empty folder, and checked each time the folder is opened.

`format_node` writes the file `identity`, whole or not at all, and takes no folder that anything
lies in: it is impossible to lose data by it. `take` is how a process makes a formatted folder
its own. A folder that is not a node's, that is damaged or that a newer Roost made is refused
before anything in it is touched. The bytes are in docs/formats/node.md.
"""

import errno
import re
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from roost.errors import Conflict, Corrupt, Invalid, NoRoom, NotFound, RoostError, Unavailable
from roost.host.disk import Disk, Held, Lock
from roost.host.random import Rng
from roost.node.layout import MAKING, write_whole
from roost.wire.checksum import crc32

IDENTITY_NAME: Final = "identity"
LOCK_NAME: Final = "lock"
VERSION: Final = 1
UUID_BYTES: Final = 16
IDENTITY_BYTES_MAX: Final = 4096
NAME_ALLOWED: Final = "1 to 64 of the letters a-z and A-Z, digits, '-', '_' and '.', first no sign"

_KIND: Final = "node"
# What an empty folder may hold: what formatting leaves if it is interrupted, and what a file
# system is born with.
_NOTHING: Final = frozenset((LOCK_NAME, IDENTITY_NAME + MAKING, "lost+found"))
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


class Identity(msgspec.Struct, frozen=True):
    """Who a node is, for as long as its folder lives."""

    cluster: str
    node: str
    uuid: bytes
    """16 bytes, drawn when the folder was made: a second one of this name is another node."""

    @property
    def uuid_text(self) -> str:
        """Write the uuid as people do."""
        digits = self.uuid.hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of the file."""

    roost: str
    version: int
    cluster: str
    node: str
    uuid: str
    made_at: float


class _Check(msgspec.Struct, frozen=True):
    """The second line of the file, about the first."""

    crc32: str


def encode_identity(identity: Identity, *, made_at: float) -> bytes:
    """Write the text of the file."""
    stored = _Stored(
        roost=_KIND,
        version=VERSION,
        cluster=identity.cluster,
        node=identity.node,
        uuid=identity.uuid.hex(),
        made_at=made_at,
    )
    line = msgspec.json.encode(stored) + b"\n"
    return line + msgspec.json.encode(_Check(crc32=f"{crc32(line):08x}")) + b"\n"


def decode_identity(text: bytes, file: str) -> Identity:
    """Read the text of the file, and check it from its first to its last byte."""
    if len(text) > IDENTITY_BYTES_MAX:
        raise _damaged(file, f"it is longer than {IDENTITY_BYTES_MAX} bytes")
    line = text[: text.find(b"\n") + 1]
    try:
        check = msgspec.json.decode(text[len(line) :], type=_Check)
        kind: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise _damaged(file, "it is not two lines of JSON") from None
    if check.crc32 != f"{crc32(line):08x}":
        raise _damaged(file, "its checksum does not hold")
    version = kind.get("version")
    if kind.get("roost") != _KIND:
        raise Invalid(
            f"{file} says that this is the folder of a {kind.get('roost')!r}, not of a node"
        )
    if isinstance(version, int) and version > VERSION:
        raise Invalid(
            f"{file} has version {version}, made by a newer Roost; this one reads up to version "
            f"{VERSION}. Run the newer one: nothing was changed."
        )
    try:
        stored = msgspec.json.decode(line, type=_Stored)
        check_name("cluster", stored.cluster)
        check_name("node", stored.node)
        identity = Identity(stored.cluster, stored.node, bytes.fromhex(stored.uuid))
    except (ValueError, Invalid) as error:
        raise _damaged(file, f"{error}") from error
    if stored.version != VERSION or len(identity.uuid) != UUID_BYTES:
        raise _damaged(file, f"version {version}, a uuid of {len(identity.uuid)} bytes")
    return identity


def format_node(
    disk: Disk, folder: Path, *, cluster: str, node: str, rng: Rng, wall: float, force: bool = False
) -> Identity:
    """Make a node's folder of a new or empty one; `wall` is the time now, for people.

    With `force`, a folder that was formatted and holds nothing else gets a new identity. One
    that holds anything is refused in any case.
    """
    check_name("cluster-id", cluster)
    check_name("node-id", node)
    try:
        disk.make_folder(folder)
        _refuse_used(disk, folder, force=force)
        # Nobody else formats it meanwhile, and with `force` nobody runs on it.
        lock = _lock(disk, folder, "roost node format")
        try:
            _refuse_used(disk, folder, force=force)
            identity = Identity(cluster, node, _uuid(rng))
            write_whole(disk, folder / IDENTITY_NAME, [encode_identity(identity, made_at=wall)])
        finally:
            lock.release()
    except OSError as error:
        raise _cannot("formatted", folder, error) from error
    return identity


def load_identity(disk: Disk, folder: Path) -> Identity:
    """Read who a folder belongs to; nothing is changed, and no lock is taken."""
    path = folder / IDENTITY_NAME
    try:
        names = set(disk.names(folder))
        if IDENTITY_NAME not in names:
            _refuse_unformatted(folder, names - _NOTHING)
        file = disk.open(path, writable=False)
        try:
            text = file.read_at(0, IDENTITY_BYTES_MAX + 1)
        finally:
            file.close()
    except FileNotFoundError as error:
        raise NotFound(f"there is no folder {folder}. {_format_it(folder)}") from error
    except OSError as error:
        raise _cannot("read", path, error) from error
    return decode_identity(text, str(path))


def take(disk: Disk, folder: Path, *, holder: str) -> tuple[Identity, Lock]:
    """Make a formatted folder this process's own, until the lock is released.

    `holder` says who we are, for whoever finds it taken: they get `Unavailable`, which names us.
    """
    load_identity(disk, folder)  # what is not a node's stays untouched, even by a lock
    try:
        lock = _lock(disk, folder, holder)
        try:
            # Whoever formatted it may have been killed before the name was durable.
            disk.sync_folder(folder)
            return load_identity(disk, folder), lock
        except BaseException:
            lock.release()
            raise
    except OSError as error:
        raise _cannot("opened", folder, error) from error


def check_name(field: str, name: str) -> None:
    """Refuse what cannot name a cluster or a node: it stands in files, addresses and metrics."""
    if not _NAME.fullmatch(name):
        raise Invalid(f"{field} {name!r}: give {NAME_ALLOWED}")


def _lock(disk: Disk, folder: Path, holder: str) -> Lock:
    try:
        return disk.lock(folder / LOCK_NAME, holder=holder)
    except Held as error:
        raise Unavailable(
            f"the folder {folder} is in use by {error.holder or 'another program'}; one "
            "process has it open at a time. Stop that one, or give this one a folder of its own."
        ) from error


def _uuid(rng: Rng) -> bytes:
    """Draw a uuid that other programs recognize as one (RFC 9562, version 4)."""
    drawn = bytearray(rng.randbytes(UUID_BYTES))
    drawn[6] = drawn[6] & 0x0F | 0x40
    drawn[8] = drawn[8] & 0x3F | 0x80
    return bytes(drawn)


def _refuse_used(disk: Disk, folder: Path, *, force: bool) -> None:
    names = set(disk.names(folder)) - _NOTHING
    if others := sorted(names - {IDENTITY_NAME}):
        shown = ", ".join(others[:3]) + (", ..." if len(others) > len(others[:3]) else "")
        if IDENTITY_NAME in names:
            raise Conflict(
                f"{folder} is a node's folder and holds its data ({shown}). It is never "
                "formatted again; to begin anew, give another folder."
            )
        raise Conflict(
            f"{folder} is not empty ({shown}). A node needs a folder of its own; give a new or "
            "an empty one."
        )
    if names and not force:
        raise Conflict(
            f"{folder} is formatted already: {_whose(disk, folder)}. Nothing else lies in it, so "
            "that --force may give it a new identity."
        )


def _whose(disk: Disk, folder: Path) -> str:
    try:
        identity = load_identity(disk, folder)
    except RoostError as error:
        return f"{error}"
    return f"node {identity.node} of cluster {identity.cluster}"


def _refuse_unformatted(folder: Path, others: set[str]) -> NoReturn:
    if not others:
        raise NotFound(f"{folder} was never formatted for a node. {_format_it(folder)}")
    shown = min(others)
    raise Invalid(
        f"{folder} is no node's folder: it holds files ({shown}), but no file {IDENTITY_NAME}. "
        "Look whether --data is right and whether its disk is mounted there; if the file was lost, "
        "bring it back from a copy."
    )


def _format_it(folder: Path) -> str:
    return f"Make it with `roost node format --data {folder} --cluster-id ... --node-id ...`."


def _damaged(file: str, why: str) -> Corrupt:
    return Corrupt(
        f"{file} is damaged: {why}. Bring it back from a copy; the node's data was not touched.",
        file=file,
        offset=0,
    )


def _cannot(what: str, path: Path, error: OSError) -> RoostError:
    if isinstance(error, NotADirectoryError | FileExistsError):
        return Invalid(f"{path} is not a folder; a node needs one of its own")
    if isinstance(error, FileNotFoundError):
        return NotFound(f"{path} cannot be {what}: {error.filename or path} is gone")
    if error.errno in _FULL:
        return NoRoom(f"{path} cannot be {what}, since there is no room: {error}")
    return Unavailable(f"{path} cannot be {what}: {error}")
