"""A folder becomes a node's once and for ever, and what is not one stays untouched."""

import errno
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from roost.errors import Conflict, Corrupt, Invalid, NoRoom, NotFound, RoostError, Unavailable
from roost.host.disk import Disk
from roost.host.posix import PosixDisk
from roost.node.identity import (
    IDENTITY_BYTES_MAX,
    Identity,
    decode_identity,
    encode_identity,
    format_node,
    load_identity,
    take,
)
from roost.sim.disk import SimDisk
from roost.sim.drive import PowerLoss
from roost.wire.checksum import crc32
from tests.unit.sim.disks import content

DATA = Path("/srv/node")
GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "node" / "identity"
ALICE = Identity("prod", "alice", bytes.fromhex("6513270e269e4d37b2a74de452e6b438"))


def made(disk: Disk, folder: Path = DATA, *, seed: int = 0, force: bool = False) -> Identity:
    return format_node(
        disk, folder, cluster="prod", node="alice", rng=Random(seed), wall=1.5, force=force
    )


def put(disk: Disk, path: Path, text: bytes = b"") -> None:
    disk.make_folder(path.parent)
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write_at(0, text)
    file.close()


def signed(line: bytes) -> bytes:
    """Put the second line under a first one."""
    return line + b'{"crc32":"%08x"}\n' % crc32(line)


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1))


def test_a_new_folder_becomes_a_nodes(disk: SimDisk) -> None:
    identity = made(disk)

    assert (identity.cluster, identity.node, len(identity.uuid)) == ("prod", "alice", 16)
    assert load_identity(disk, DATA) == identity
    assert disk.names(DATA) == ["identity", "lock"]


def test_a_format_that_was_reported_survives_a_loss_of_power(disk: SimDisk) -> None:
    identity = made(disk)

    disk.crash("none")

    assert load_identity(disk, DATA) == identity


def test_the_text_of_the_file_is_what_it_was_from_the_beginning() -> None:
    text = encode_identity(ALICE, made_at=1800000000.25)

    assert text == GOLDEN.read_bytes()
    assert decode_identity(text, "identity") == ALICE
    assert ALICE.uuid_text == "6513270e-269e-4d37-b2a7-4de452e6b438"


def test_each_folder_gets_a_uuid_of_its_own(disk: SimDisk) -> None:
    identities = [made(disk, DATA / str(seed), seed=seed) for seed in range(50)]

    assert len({identity.uuid for identity in identities}) == 50
    assert {identity.uuid_text[14] for identity in identities} == {"4"}
    assert {identity.uuid_text[19] for identity in identities} == set("89ab")


def test_a_folder_is_formatted_whole_or_not_at_all_whenever_the_power_fails() -> None:
    outcomes = set()
    for operation in range(1, 20):
        for seed in range(10):
            disk = SimDisk(Random(seed))
            disk.lose_power_after(operation)
            with suppress(PowerLoss):
                made(disk)
            disk.crash()
            try:
                outcomes.add(load_identity(disk, DATA).node)
            except NotFound:
                outcomes.add("none")
                made(disk)
            assert take(disk, DATA, holder="me")[0].node == "alice"

    assert outcomes == {"alice", "none"}


def test_what_was_taken_is_durable_though_its_format_was_killed() -> None:
    for seed in range(20):
        disk = SimDisk(Random(seed))
        made(disk)
        disk.fail_next("sync_folder", "/node", errno.EIO)
        with pytest.raises(Unavailable):
            made(disk, force=True, seed=7)
        disk.kill()

        identity, _ = take(disk, DATA, holder="me")
        disk.crash("none")

        assert load_identity(disk, DATA) == identity


@pytest.mark.parametrize("name", ["lost+found", "lock", "identity.making"])
def test_what_a_file_system_or_an_interrupted_format_leaves_is_no_hindrance(
    disk: SimDisk, name: str
) -> None:
    put(disk, DATA / name, b"x" * 500)

    identity = made(disk)

    assert load_identity(disk, DATA) == identity


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_holds_anything_is_never_formatted(disk: SimDisk, *, force: bool) -> None:
    put(disk, DATA / "photo.jpg", b"dear")

    with pytest.raises(Conflict, match=r"/srv/node is not empty \(photo.jpg\)"):
        made(disk, force=force)

    assert disk.names(DATA) == ["photo.jpg"]
    assert content(disk, DATA / "photo.jpg") == b"dear"


@pytest.mark.parametrize("force", [False, True])
def test_a_nodes_data_is_never_formatted_over(disk: SimDisk, *, force: bool) -> None:
    identity = made(disk)
    disk.make_folder(DATA / "journal")

    with pytest.raises(Conflict, match=r"holds its data \(journal\)"):
        made(disk, force=force, seed=1)

    assert load_identity(disk, DATA) == identity


def test_a_folder_that_was_formatted_and_never_used_may_be_formatted_anew_if_one_insists(
    disk: SimDisk,
) -> None:
    before = made(disk)

    with pytest.raises(Conflict, match=r"formatted already: node alice of cluster prod.*--force"):
        made(disk, seed=1)
    after = made(disk, seed=1, force=True)

    assert after != before
    assert load_identity(disk, DATA) == after


def test_nobody_formats_what_a_process_runs_on(disk: SimDisk) -> None:
    identity = made(disk)
    take(disk, DATA, holder="process 7 on here")

    with pytest.raises(Unavailable, match="in use by process 7 on here"):
        made(disk, force=True, seed=1)

    assert load_identity(disk, DATA) == identity


def test_one_process_at_a_time_takes_a_folder(disk: SimDisk) -> None:
    identity = made(disk)

    taken, lock = take(disk, DATA, holder="process 7 on here")
    with pytest.raises(Unavailable, match="/srv/node is in use by process 7 on here"):
        take(disk, DATA, holder="process 8 on here")
    lock.release()
    again, _ = take(disk, DATA, holder="process 8 on here")

    assert taken == again == identity


@pytest.mark.parametrize(
    ("names", "error", "why"),
    [
        ([], NotFound, "never formatted.*`roost node format --data /srv/node"),
        (["lock", "lost+found"], NotFound, "never formatted"),
        (["photo.jpg"], Invalid, "no node's folder.*photo.jpg.*mounted"),
        (["checkpoint", "lock"], Invalid, "checkpoint.*from a copy"),
    ],
)
def test_what_was_not_formatted_is_refused_and_left_as_it_is(
    disk: SimDisk, names: list[str], error: type[RoostError], why: str
) -> None:
    disk.make_folder(DATA)
    for name in names:
        put(disk, DATA / name)

    with pytest.raises(error, match=why):
        take(disk, DATA, holder="me")

    assert disk.names(DATA) == sorted(names)


def test_a_folder_that_is_not_there_is_not_made_by_looking(disk: SimDisk) -> None:
    disk.make_folder(DATA.parent)

    with pytest.raises(NotFound, match="there is no folder /srv/node"):
        take(disk, DATA, holder="me")

    assert disk.names(DATA.parent) == []


def test_every_flipped_bit_is_found_and_nothing_is_changed(disk: SimDisk) -> None:
    made(disk)
    text = content(disk, DATA / "identity")
    served = []

    for at in range(8 * len(text)):
        harmed = bytearray(text)
        harmed[at // 8] ^= 1 << at % 8
        with suppress(Corrupt):
            served.append(decode_identity(bytes(harmed), "identity"))

    # Nothing is lost where white space changes.
    assert set(served) <= {load_identity(disk, DATA)}
    assert len(served) < 8


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"[" * 3000,
        b"x" * (IDENTITY_BYTES_MAX + 1),
        b"\xff\n\xff\n",
        signed(b"[]\n"),
        signed(b'{"roost":"node"}\n')[:-8],
        signed(GOLDEN.read_bytes().partition(b"\n")[0].replace(b'"alice"', b"7") + b"\n"),
        signed(GOLDEN.read_bytes().partition(b"\n")[0].replace(b"6513", b"651") + b"\n"),
        signed(GOLDEN.read_bytes().partition(b"\n")[0].replace(b"6513", b"65") + b"\n"),
        signed(GOLDEN.read_bytes().partition(b"\n")[0].replace(b":1,", b":0,") + b"\n"),
        signed(GOLDEN.read_bytes().partition(b"\n")[0].replace(b"alice", b"al/ce") + b"\n"),
    ],
)
def test_a_text_that_no_roost_wrote_is_corrupt(disk: SimDisk, text: bytes) -> None:
    put(disk, DATA / "identity", text)

    with pytest.raises(Corrupt, match="/srv/node/identity is damaged") as caught:
        take(disk, DATA, holder="me")

    assert caught.value.file == "/srv/node/identity"
    assert disk.names(DATA) == ["identity"]


def test_what_a_newer_roost_made_is_refused_and_named(disk: SimDisk) -> None:
    put(disk, DATA / "identity", signed(b'{"roost":"node","version":2,"new":[]}\n'))

    with pytest.raises(Invalid, match=r"version 2.*up to version 1"):
        take(disk, DATA, holder="me")


def test_the_folder_of_something_else_is_refused_and_named(disk: SimDisk) -> None:
    put(disk, DATA / "identity", signed(b'{"roost":"meta","version":1}\n'))

    with pytest.raises(Invalid, match="the folder of a 'meta', not of a node"):
        take(disk, DATA, holder="me")


@pytest.mark.parametrize("name", ["", "-a", ".", "..", "a b", "a/b", "a" * 65, "é", "a\n"])
def test_a_name_that_would_break_a_file_or_an_address_is_refused(disk: SimDisk, name: str) -> None:
    with pytest.raises(Invalid, match="node-id"):
        format_node(disk, DATA, cluster="prod", node=name, rng=Random(0), wall=0.0)
    with pytest.raises(Invalid, match="cluster-id"):
        format_node(disk, DATA, cluster=name, node="alice", rng=Random(0), wall=0.0)


def test_what_the_disk_says_becomes_an_error_of_ours(disk: SimDisk) -> None:
    disk.fail_next("write", "/identity.making", errno.ENOSPC)
    with pytest.raises(NoRoom, match="no room"):
        made(disk)
    disk.fail_next("sync", "/identity.making", errno.EIO)
    with pytest.raises(Unavailable, match="EIO"):
        made(disk)
    made(disk)
    disk.fail_next("read", "/identity", errno.EIO)
    with pytest.raises(Unavailable, match="EIO"):
        load_identity(disk, DATA)
    disk.fail_next("lock", "/lock", errno.EACCES)
    with pytest.raises(Unavailable, match="EACCES"):
        take(disk, DATA, holder="me")


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    disk = PosixDisk(guarded=False)
    (tmp_path / "file").write_text("text")

    with pytest.raises(Invalid, match="is not a folder"):
        made(disk, tmp_path / "file")
    with pytest.raises(Invalid, match="is not a folder"):
        load_identity(disk, tmp_path / "file")


def test_a_real_folder_is_formatted_and_taken(tmp_path: Path) -> None:
    disk = PosixDisk(guarded=False)

    identity = made(disk, tmp_path / "node")
    taken, lock = take(disk, tmp_path / "node", holder="me")
    lock.release()

    assert taken == identity
