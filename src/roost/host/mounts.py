"""Which file system holds a folder, and whether files on it may be mapped and stored into.

Storing into a mapped window is safe where two things hold: space that was reserved stays
reserved, so that a store never finds the disk full, and nobody else can cut the file under us.
Local file systems that write in place promise both. This reads the table of mounts that Linux
shows in `/proc/self/mountinfo` and is careful: what it does not know is not safe.
"""

import re

import msgspec

_SAFE = frozenset({"ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs"})
_COPY_ON_WRITE = frozenset({"bcachefs", "btrfs", "nilfs2", "zfs"})
_SHARED = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"),
        *("ocfs2", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs"),
    }
)
# The kernel writes what would end a field or a line as a backslash and three octal digits.
_ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(msgspec.Struct, frozen=True):
    """One line of the table: where a file system is mounted, on which device, of which kind."""

    point: str
    device: str
    kind: str


def parse_mounts(table: str) -> list[Mount]:
    """Read the text of `/proc/self/mountinfo`; later mounts come later.

    A line holds mount id, parent id, major:minor, root, mount point, options, any number of
    optional fields, a lone `-`, kind, source and the file system's own options.
    """
    mounts = []
    for line in table.splitlines():
        fields = line.split(" ")
        if "-" not in fields[6:]:
            continue
        kind = fields[fields.index("-", 6) + 1]
        mounts.append(Mount(point=_unescape(fields[4]), device=fields[2], kind=kind))
    return mounts


def nearest_mount(mounts: list[Mount], folder: str, device: str) -> Mount | None:
    """Find the file system that holds `folder`, which is absolute and without links.

    `device` is the major:minor that `stat` shows for it. It decides between mounts of which a
    later one hides an earlier, deeper one.
    """
    around = [mount for mount in mounts if _holds(mount.point, folder)]
    # Of equal length the last one counts: it lies over the others.
    return max(
        reversed(around),
        key=lambda mount: (mount.device == device, len(mount.point)),
        default=None,
    )


def why_unsafe(mounts: list[Mount], folder: str, device: str) -> str:
    """Say why files in `folder` must not be mapped, or '' if they may be."""
    nearest = nearest_mount(mounts, folder, device)
    if nearest is None:
        return f"the table of mounts does not say which file system holds {folder}"
    if nearest.kind in _COPY_ON_WRITE:
        return f"{nearest.kind} copies on write: a store into reserved space may find no room"
    if nearest.kind in _SHARED:
        return f"{nearest.kind} is shared with other machines, which may cut a mapped file"
    if nearest.kind.startswith("fuse"):
        return f"{nearest.kind} is served by a program, which may fail or cut a mapped file"
    if nearest.kind not in _SAFE:
        return f"{nearest.kind} is not known to be safe for mapped files"
    if nearest.device != device:
        return f"{folder} is on device {device}, which the table of mounts does not show"
    return ""


def _unescape(field: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), field)


def _holds(point: str, folder: str) -> bool:
    return folder == point or folder.startswith(point if point == "/" else point + "/")
