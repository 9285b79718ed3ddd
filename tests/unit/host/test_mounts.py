"""Files are mapped only where a store can neither find the disk full nor the file cut."""

from roost.host.mounts import Mount, parse_mounts, why_unsafe

TABLE = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 27 0:26 / /mnt/with\040space\134and\011tab rw - xfs /dev/vdb rw
31 27 0:27 / /mnt/nas rw,nosuid shared:2 master:3 propagate_from:4 - nfs4 host:/export rw,vers=4.2
32 31 0:28 /sub /mnt/nas/scratch rw - tmpfs tmpfs rw
33 27 0:29 / /mnt/pool rw - btrfs /dev/vdc rw
34 27 0:30 / /mnt/served rw - fuse.sshfs host: rw
35 27 0:31 / /mnt/new rw - futurefs none rw
this line is not of the table
""".strip()

MOUNTS = parse_mounts(TABLE)


def test_every_line_of_the_table_is_read_with_and_without_optional_fields() -> None:
    assert [mount.point for mount in MOUNTS] == [
        "/proc",
        "/",
        "/mnt/with space\\and\ttab",
        "/mnt/nas",
        "/mnt/nas/scratch",
        "/mnt/pool",
        "/mnt/served",
        "/mnt/new",
    ]
    assert MOUNTS[3] == Mount(point="/mnt/nas", device="0:27", kind="nfs4")


def test_a_local_disk_that_writes_in_place_is_safe() -> None:
    assert why_unsafe(MOUNTS, "/var/queue", "254:0") == ""
    assert why_unsafe(MOUNTS, "/mnt/with space\\and\ttab/queue", "0:26") == ""


def test_the_deepest_mount_around_a_folder_counts() -> None:
    assert "nfs4" in why_unsafe(MOUNTS, "/mnt/nas/queue", "0:27")
    assert why_unsafe(MOUNTS, "/mnt/nas/scratch", "0:28") == ""
    assert why_unsafe(MOUNTS, "/mnt/nasty", "254:0") == ""


def test_each_unsafe_kind_says_what_would_go_wrong() -> None:
    assert "shared with other machines" in why_unsafe(MOUNTS, "/mnt/nas", "0:27")
    assert "copies on write" in why_unsafe(MOUNTS, "/mnt/pool/queue", "0:29")
    assert "served by a program" in why_unsafe(MOUNTS, "/mnt/served", "0:30")
    assert "futurefs is not known" in why_unsafe(MOUNTS, "/mnt/new", "0:31")


def test_the_device_decides_where_a_later_mount_hides_an_earlier_one() -> None:
    hidden = [*MOUNTS, Mount(point="/mnt", device="0:40", kind="tmpfs")]

    assert why_unsafe(hidden, "/mnt/nas/queue", "0:40") == ""


def test_of_two_mounts_at_one_point_the_later_lies_on_top() -> None:
    over = [*MOUNTS, Mount(point="/mnt/nas", device="0:27", kind="ext4")]

    assert why_unsafe(over, "/mnt/nas/queue", "0:27") == ""


def test_a_kind_that_hides_its_device_is_still_recognised() -> None:
    assert "btrfs copies on write" in why_unsafe(MOUNTS, "/mnt/pool/volume", "0:99")


def test_what_the_table_does_not_show_is_not_safe() -> None:
    assert "9:9" in why_unsafe(MOUNTS, "/var/queue", "9:9")
    assert "9:9" in why_unsafe(MOUNTS, "/mnt/pools", "9:9")
    assert "/var" in why_unsafe([], "/var", "254:0")
