"""What a channel counts while it is open, and how somebody reads it."""

from pathlib import Path

import pytest

from roost import Corrupt, FileChannel
from roost.host.metrics import render_prometheus


def figures(channel: FileChannel[bytes]) -> dict[str, int]:
    return {sample.name: sample.value for sample in channel.metrics()}


def test_sends_syncs_and_rolls_are_counted(tmp_path: Path) -> None:
    with FileChannel(tmp_path, segment_bytes=30) as channel:
        tx = channel.tx()
        for _ in range(4):
            tx.send(b"0123456789")

        counted = figures(channel)

    assert counted["channel_sent_bytes"] == 4 * 18
    assert counted["channel_syncs"] == 4
    assert counted["channel_rolls"] == 1


def test_damage_that_is_met_is_counted_each_time(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel:
        channel.tx().send(b"harmed")
    segment = tmp_path / "segment.0"
    segment.write_bytes(segment.read_bytes()[:-1] + b"X")

    with FileChannel(tmp_path) as channel:
        rx = channel.rx()
        for _ in range(2):
            with pytest.raises(Corrupt):
                rx.recv(0)
        counted = figures(channel)

    assert counted["channel_corrupt_reads"] == 2


def test_a_torn_tail_that_was_set_aside_is_counted(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel:
        channel.tx().send(b"whole")
    with (tmp_path / "segment.0").open("ab") as segment:
        segment.write(b"torn")

    with FileChannel(tmp_path) as channel:
        assert figures(channel)["channel_salvaged_bytes"] == 4


def test_the_figures_are_written_for_prometheus_with_the_folder(tmp_path: Path) -> None:
    with FileChannel(tmp_path) as channel:
        text = render_prometheus(channel.metrics())

    assert f'roost_channel_syncs_total{{channel="{tmp_path}"}} 0' in text
