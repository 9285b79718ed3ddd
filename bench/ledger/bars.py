"""What replicated ledgers are held to: each claim's name, its bar, and which side of it is good."""

from collections.abc import Mapping
from typing import Final

from bench.harness import Bar, Claim

BARS: Final[Mapping[str, Bar]] = {
    "records_vs_nats_always": Bar(5, "higher"),
    "records_vs_nats_default": Bar(1.5, "higher"),
    "depth1_vs_node": Bar(2, "lower"),
    "p99_vs_node": Bar(5, "lower"),
    "kill_stall_ms": Bar(400, "lower"),
    "recovery_s": Bar(1, "lower"),
    "repair_vs_read": Bar(0.5, "higher"),
    "write_amplification": Bar(2.2, "lower"),
}


def claim(name: str, value: float, detail: Mapping[str, object]) -> Claim:
    """Make one of the claims above."""
    return BARS[name].claim(name, value, detail)
