"""The channel's benchmark measures what it is held to; the figures are its own business."""

import json
from pathlib import Path

import pytest

from bench.channel import measure
from bench.channel.bars import BARS
from bench.channel.scale import Scale
from bench.harness import report

TINY = Scale(
    rounds=1,
    messages=1_000,
    sync_turn_s=0.001,
    syncs_min=1,
    puts=4,
    growth_messages=1_000,
    folder_bytes=1 << 16,
)


def test_the_bars_are_those_that_the_channel_is_held_to() -> None:
    assert {name: (bar.figure, bar.better) for name, bar in BARS.items()} == {
        "send_many_vs_python_loop": (0.35, "lower"),
        "recv_many_vs_python_loop": (0.3, "lower"),
        "send_vs_python_loop": (1.5, "lower"),
        "recv_vs_python_loop": (1.0, "lower"),
        "pingpong_vs_python_loop": (2.0, "lower"),
        "fsync_one_vs_raw": (0.6, "higher"),
        "fsync_vs_raw": (0.35, "higher"),
        "fsync_group_gain": (20, "higher"),
        "fsync_thread_gain": (5, "higher"),
        "fsync_bulk_vs_raw": (0.65, "higher"),
        "vs_persist_queue": (50, "higher"),
        "vs_litequeue": (15, "higher"),
        "rss_growth_mib": (16, "lower"),
        "open_1gib_ms": (20, "lower"),
    }


@pytest.mark.slow
def test_every_bar_is_measured_and_reported_in_one_line_and_nothing_is_left_behind(
    tmp_path: Path,
) -> None:
    claims = measure(TINY, tmp_path)

    assert list(tmp_path.iterdir()) == []
    line = report("channel", claims)
    told = json.loads(line)
    assert "\n" not in line
    assert told.keys() == {"bench", "commit", "machine", "claims"}
    assert told["bench"] == "channel"
    assert [claim["name"] for claim in told["claims"]] == list(BARS)
    for claim in told["claims"]:
        bar = BARS[claim["name"]]
        assert claim.keys() == {"name", "value", "bar", "better", "holds", "detail"}
        assert (claim["bar"], claim["better"]) == (bar.figure, bar.better)
        assert claim["detail"]
