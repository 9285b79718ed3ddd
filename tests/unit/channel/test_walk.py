"""A walk from segment to segment loses nothing on its way, whatever it meets."""

from pathlib import Path

import pytest

from roost import FileChannel, Unavailable


def test_a_segment_that_cannot_be_opened_costs_no_message_before_it(tmp_path: Path) -> None:
    with FileChannel(tmp_path, durability="os", segment_bytes=1) as channel:
        channel.tx().send(b"one")
        channel.tx().send(b"two")
        rx = channel.rx()
        (tmp_path / "segment.1").rename(tmp_path / "away")

        assert rx.recv_many(10) == [b"one"]
        with pytest.raises(Unavailable):
            rx.recv_many(10)
        (tmp_path / "away").rename(tmp_path / "segment.1")
        assert rx.recv_many(10) == [b"two"]
