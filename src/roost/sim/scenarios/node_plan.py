"""What one seed of the scenario `node` does: sizes, faults, and what the clients are up to."""

from errno import EIO, ENOSPC
from random import Random
from typing import Final

import msgspec

from roost.journal.plan import JournalSettings
from roost.journal.record import HEADS_BYTES
from roost.node.space import Limits
from roost.node.store import NodeSettings
from roost.sim.faults import DiskFaults, Operation
from roost.sim.medium import NetFaults
from roost.sim.nemesis import draw_net_faults
from roost.sim.scenarios.node_client import ALWAYS, KINDS, Orders

FILE_BYTES_MAX: Final = 64 << 10
Strike = tuple[Operation, str, int]
"""One operation of the disk that fails: which, on what, and how."""

_SYNC_OF_THE_JOURNAL: Final[Strike] = ("sync", ".journal.making", EIO)
STRIKES: Final[list[Strike]] = [
    *[_SYNC_OF_THE_JOURNAL] * 6,  # most syncs are of the segment that is written
    ("write", ".journal.making", EIO),
    ("allocate", ".journal.making", ENOSPC),
    ("rename", ".journal", EIO),
    ("sync", ".journal", EIO),
    ("unlink", ".journal", EIO),
    ("sync_folder", "journal", EIO),
    ("write", ".log", ENOSPC),
    ("sync", ".log", EIO),
    ("unlink", ".log", EIO),
    ("allocate", ".log", ENOSPC),
    ("write", ".index", EIO),
    ("write", ".index", ENOSPC),
    ("sync", ".index", EIO),
    ("sync_folder", "ledgers", EIO),
    ("sync", "checkpoint.making", EIO),
    ("rename", "checkpoint", EIO),
    ("write", "checkpoint.making", ENOSPC),
    ("sync_folder", "node", EIO),
]


class Plan(msgspec.Struct, frozen=True):
    """What one seed does."""

    orders: Orders
    settings: NodeSettings
    clients: int
    lives: int
    requests: int
    troubles: bool
    strikes: bool
    harms: bool
    disk: DiskFaults
    net: NetFaults


def draw(rng: Random) -> Plan:
    """Draw a plan; each kind of fault is absent in most seeds."""

    def sometimes(chance: float, most: float) -> float:
        return rng.random() * most if rng.random() < chance else 0.0

    payload_bytes_max = rng.choice([16, 40, 200])
    net = draw_net_faults(rng) if rng.random() < 0.4 else NetFaults(delay_mean_s=0.0003)
    return Plan(
        orders=Orders(
            kinds={
                kind: weight * (0.3 + rng.random())
                for kind, weight in KINDS.items()
                if kind in ALWAYS or rng.random() < 0.6
            },
            ledgers=rng.randrange(1, 7),
            order=rng.choice(["in order", "striped", "shuffled"]),
            payload_bytes_max=payload_bytes_max,
            batch=rng.choice([1, 3, 8]),
            pause_s=rng.choice([0.0005, 0.005, 0.05]),
            ends=rng.choice([0.05, 0.3]),
        ),
        settings=draw_settings(rng, payload_bytes_max),
        clients=rng.randrange(1, 4),
        lives=rng.randrange(1, 5),
        requests=rng.choice([6, 20, 50]),
        troubles=rng.random() < 0.3,
        strikes=rng.random() < 0.3,
        harms=rng.random() < 0.1,
        disk=DiskFaults(
            read_fails=sometimes(0.07, 0.02),
            write_fails=sometimes(0.1, 0.02),
            sync_fails=sometimes(0.25, 0.05),
            writes_back=sometimes(0.3, 0.2),
            evicts=sometimes(0.3, 0.1),
            tears=sometimes(0.2, 0.5),
            capacity_bytes=rng.choice([1 << 40, 1 << 40, 1 << 40, 1 << 40, 100_000, 200_000]),
            file_bytes_max=FILE_BYTES_MAX,
        ),
        net=net,
    )


def draw_settings(rng: Random, payload_bytes_max: int) -> NodeSettings:
    """Draw sizes so small that everything there is happens in some dozens of adds."""
    segment_bytes = rng.choice([300, 700, 2000, 6000, 20_000])
    reserve_bytes = rng.choice([2, 5, 20]) * HEADS_BYTES
    settings = NodeSettings(
        journal=JournalSettings(
            segment_bytes=segment_bytes,
            reserve_bytes=reserve_bytes,
            ahead_bytes=rng.choice([HEADS_BYTES, 500, 1 << 20]),
            quick_s=rng.choice([0.0, 50e-6, 1.0]),
            record_bytes_max=HEADS_BYTES + payload_bytes_max,
            retry_s=0.05,
        ),
        limits=Limits(
            memory_bytes_max=rng.choice([1000, 3000, 10_000, 50_000]),
            journal_bytes_max=(segment_bytes + reserve_bytes + 64) * rng.choice([5, 10, 40]),
            queued_bytes_max=rng.choice([1000, 1 << 20]),
            free_bytes_min=rng.choice([0, 0, 20_000]),
        ),
        flush_workers=rng.randrange(1, 4),
        files_max=rng.choice([1, 2, 20]),
    )
    # No draw of its own: the histories of all seeds stay what they are but for this.
    together_min = 2 if settings.flush_workers == 2 else 256
    return msgspec.structs.replace(settings, together_min=together_min)
