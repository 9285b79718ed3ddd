"""What the file channel is held to: each claim's name, its bar, and which side of it is good."""

from collections.abc import Mapping
from typing import Final

from bench.harness import Bar, Claim

BARS: Final[Mapping[str, Bar]] = {
    "send_many_vs_python_loop": Bar(0.35, "lower"),
    "recv_many_vs_python_loop": Bar(0.3, "lower"),
    "send_vs_python_loop": Bar(1.5, "lower"),
    "recv_vs_python_loop": Bar(1.0, "lower"),
    "pingpong_vs_python_loop": Bar(2.0, "lower"),
    "fsync_one_vs_raw": Bar(0.6, "higher"),
    "fsync_vs_raw": Bar(0.35, "higher"),
    "fsync_group_gain": Bar(20, "higher"),
    "fsync_thread_gain": Bar(5, "higher"),
    "fsync_bulk_vs_raw": Bar(0.65, "higher"),
    "vs_persist_queue": Bar(50, "higher"),
    "vs_litequeue": Bar(15, "higher"),
    "rss_growth_mib": Bar(16, "lower"),
    "open_1gib_ms": Bar(20, "lower"),
}


def claim(name: str, value: float, detail: Mapping[str, object]) -> Claim:
    """Make one of the claims above."""
    return BARS[name].claim(name, value, detail)
