"""Replicated ledgers without asyncio, on real nodes."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import roost
from roost.errors import Closed, Fenced, NotFound, Unavailable, Unknown
from roost.metadata.ledgers import LedgerPhase, Quorum
from tests.cluster.ledgers import RealCluster, a_cluster, run
from tests.cluster.nodes import WAIT_S


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealCluster]:
    with a_cluster(tmp_path, 3) as cluster:
        run(cluster.up)
        yield cluster


def test_a_ledger_is_written_and_read_by_threads(real: RealCluster) -> None:
    with roost.connect(real.url, timeout_s=WAIT_S) as cluster:
        assert cluster.name == "prod"
        with cluster.create(quorum=Quorum(3, 2, 2)) as writer:
            assert writer.append(b"hello") == 0
            assert writer.append_many([b"%d" % number for number in range(1, 500)])[-1] == 499
            reader = cluster.open(writer.ledger)
            assert reader.wait(498, timeout_s=WAIT_S)
            assert (reader.upto, reader.closed) == (499, False)
        assert writer.document.phase is LedgerPhase.CLOSED
        found = [bytes(each) for each in cluster.read(writer.ledger)]
        assert found == [b"hello", *(b"%d" % number for number in range(1, 500))]
        assert [*cluster.read(writer.ledger, 499)] == [b"499"]
        assert [each.ledger for each in cluster.ledgers()] == [writer.ledger]
        assert all(each.whole for each in cluster.verify(writer.ledger))
        assert cluster.repair(writer.ledger)
        assert all(each.whole for each in cluster.mend(writer.ledger))
        assert cluster.delete(writer.ledger) == []
        with pytest.raises(NotFound):
            cluster.describe(writer.ledger)
    assert not [each for each in threading.enumerate() if each.name == "roost"]


def test_a_writer_that_leaves_with_an_error_leaves_its_ledger_to_a_recovery(
    real: RealCluster,
) -> None:
    with roost.connect(real.url, timeout_s=WAIT_S) as cluster:
        writer = cluster.create()
        writer.append(b"kept")
        with pytest.raises(Closed), writer:
            raise Closed("something else")
        assert cluster.describe(writer.ledger).phase is LedgerPhase.OPEN

        document = cluster.recover(writer.ledger)

        assert (document.phase, document.last) == (LedgerPhase.CLOSED, 0)
        assert [*cluster.read(writer.ledger)] == [b"kept"]


def test_a_recovery_stops_a_writer_that_is_alive(real: RealCluster) -> None:
    with roost.connect(real.url, timeout_s=WAIT_S) as cluster:
        writer = cluster.create()
        writer.append(b"one")
        cluster.recover(writer.ledger)

        with pytest.raises((Fenced, Unknown)):
            writer.append(b"two")
        with pytest.raises(Fenced):
            writer.append(b"three")
        writer.abandon()
        assert [*cluster.read(writer.ledger)] == [b"one"]


def test_an_append_that_is_not_confirmed_in_time_is_unknown(real: RealCluster) -> None:
    with roost.connect(real.url, timeout_s=WAIT_S) as cluster:
        writer = cluster.create()
        for name in ("alice", "bob"):
            real.nodes[name].kill()

        with pytest.raises((Unknown, Unavailable)):
            writer.append(b"one", timeout_s=0.5)

        writer.abandon()


def test_where_there_is_no_cluster_nothing_is_left_running(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no node has ever registered"):
        roost.connect(f"dir://{tmp_path / 'none'}")
    assert not [each for each in threading.enumerate() if each.name == "roost"]
