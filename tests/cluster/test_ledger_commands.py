"""`roost ledger` on a real cluster: every command as it is typed."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.ledgers import RealCluster, a_cluster, run
from tests.cluster.nodes import ROOST, WAIT_S


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealCluster]:
    with a_cluster(tmp_path, 4) as cluster:
        run(cluster.up)
        yield cluster


def said(
    real: RealCluster, command: str, *options: str, given: bytes = b"", code: int = 0
) -> bytes:
    """Run `roost ledger`, and give its output; or what it says on stderr if it fails."""
    done = subprocess.run(
        [str(ROOST), "ledger", command, "--cluster", real.url, *options],
        input=given,
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_lines_are_appended_listed_read_tailed_and_deleted(real: RealCluster) -> None:
    first = said(real, "append", given=b"one\ntwo\n\nthree\n").strip().decode()
    second = said(real, "create", "--ensemble", "2", "--write", "2").strip().decode()

    assert said(real, "read", first) == b"one\ntwo\n\nthree\n"
    assert said(real, "read", first, "--from", "3", "--format", "json").count(b"three") == 1
    assert said(real, "tail", first, "--count", "1", "--follow") == b"three\n"
    assert said(real, "read", second) == b""
    rows = [line.split()[:3] for line in said(real, "list").decode().splitlines()]
    assert rows[1:] == [[first, "closed", "4"], [second, "open", rows[2][2]]]
    documents = [json.loads(line) for line in said(real, "list", "--json").splitlines()]
    assert [each["phase"] for each in documents] == ["closed", "open"]
    assert said(real, "delete", first, "--yes") == b""
    assert b"was deleted" in said(real, "read", first, code=1)
    assert b"there is no ledger 99" in said(real, "describe", "99", code=1)


def test_a_ledger_that_was_made_is_appended_to_once(real: RealCluster) -> None:
    ledger = said(real, "create").strip().decode()

    framed = b"\0\0\0\1a\0\0\0\2\n\n"
    assert (
        said(real, "append", ledger, "--length-prefixed", given=framed).strip() == ledger.encode()
    )

    assert said(real, "read", ledger, "--length-prefixed") == framed
    refused = said(real, "append", ledger, given=b"more\n", code=1)
    assert b"a ledger has one writer" in refused


def test_a_ledger_without_a_writer_is_recovered_and_explained(real: RealCluster) -> None:
    ledger = said(real, "append", given=b"one\ntwo\n").strip().decode()
    left = said(real, "create").strip().decode()

    told = said(real, "recover", left).decode()

    assert "closed" in told
    assert "the end:" in told
    assert "last entry  -1" in told
    described = said(real, "describe", left).decode()
    assert described == told
    explained = said(real, "explain", ledger).decode()
    assert "entry 1: kept: its writer had it confirmed" in explained
    assert "3 of 3 nodes found it now" in explained
    assert "entry 2: cut, since the ledger ends with entry 1; 3 of 3 nodes do not" in explained
    assert explained.count(": found") == 3
    asked = said(real, "explain", ledger, "--entry", "0").decode()
    assert "entry 0: kept" in asked


def test_losses_are_accepted_by_nobody_who_was_not_asked_twice(real: RealCluster) -> None:
    ledger = said(real, "create", "--ensemble", "3").strip().decode()
    document = json.loads(said(real, "describe", ledger, "--json"))
    for name in document["fragments"][0]["nodes"][:2]:
        real.nodes[name].kill()

    undecided = said(real, "recover", ledger, "--timeout", "0.5", code=1)
    refused = said(real, "recover", ledger, "--accept-loss", given=b"n\n", code=1)
    mistyped = said(real, "recover", ledger, "--accept-loss", given=b"y\n123\n", code=1)

    assert b"too few nodes can be fenced" in undecided
    assert b"Aborted" in refused
    assert b"Aborted" in mistyped
    assert json.loads(said(real, "describe", ledger, "--json"))["phase"] == "in recovery"
    typed = f"y\n{ledger}\n".encode()
    accepted = said(real, "recover", ledger, "--accept-loss", "--json", given=typed)
    assert json.loads(accepted)["phase"] == "closed"


def test_a_node_that_is_gone_is_replaced(real: RealCluster) -> None:
    ledger = said(real, "append", given=b"one\ntwo\n").strip().decode()
    gone, *_ = json.loads(said(real, "describe", ledger, "--json"))["fragments"][0]["nodes"]
    real.nodes[gone].kill()

    left = said(real, "repair", ledger, code=1)
    repaired = said(real, "repair", ledger, "--gone", gone).decode()

    assert left == b""
    rows = [line.split() for line in repaired.splitlines()]
    assert rows[0] == ["NODE", "STATE", "ENTRIES", "OF", "BAD"]
    assert [row[1:] for row in rows[1:]] == [["whole", "2", "2", "0"]] * 3
    assert gone not in [row[0] for row in rows]


def test_what_is_no_place_for_metadata_is_wrong_usage() -> None:
    done = subprocess.run(
        [str(ROOST), "ledger", "list", "--cluster", "ftp://nowhere"],
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 2
    assert b"is no place for metadata" in done.stderr
