"""What the storage node is held to: each claim's name, its bar, and which side of it is good."""

from collections.abc import Mapping
from typing import Final

from bench.harness import Bar, Claim

BARS: Final[Mapping[str, Bar]] = {
    "adds_vs_nats_always": Bar(10, "higher"),
    "adds_vs_nats_default": Bar(3, "higher"),
    "depth1_vs_fdatasync": Bar(2.5, "lower"),
    "large_vs_raw": Bar(0.6, "higher"),
    "tail_read_vs_add": Bar(1, "higher"),
    "many_ledgers_ratio": Bar(0.5, "higher"),
    "cold_read_vs_socket": Bar(0.5, "higher"),
    "recovery_mb_s": Bar(200, "higher"),
    "recovery_entries_s": Bar(250_000, "higher"),
    "start_100k_s": Bar(10, "lower"),
    "rss_100k_mib": Bar(600, "lower"),
}


def claim(name: str, value: float, detail: Mapping[str, object]) -> Claim:
    """Make one of the claims above."""
    return BARS[name].claim(name, value, detail)
