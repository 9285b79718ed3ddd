"""What one seed of the scenario `ledger` does: quorums, sizes, patience, and faults."""

from random import Random
from typing import Final

import msgspec

from roost.ledger.append import AppendSettings
from roost.ledger.nodes import Patience
from roost.ledger.recover import RecoverSettings
from roost.metadata.ledgers import Quorum
from roost.sim.medium import NetFaults
from roost.sim.metadata import MetadataFaults
from roost.sim.nemesis import draw_net_faults

QUORUMS: Final = [
    *[Quorum(3, 3, 2)] * 6,
    *[Quorum(3, 2, 2)] * 2,
    *[Quorum(2, 2, 1)] * 1,
    *[Quorum(3, 3, 1)] * 2,
    *[Quorum(4, 3, 2)] * 2,
    *[Quorum(4, 2, 2)] * 1,
    *[Quorum(3, 3, 3)] * 1,
    *[Quorum(5, 5, 2)] * 2,
    *[Quorum(3, 3, 2, 2)] * 1,
]
RACES: Final = 0.15
"""How many seeds are about a fence that races with adds, and about nothing else."""

TROUBLES: Final = {
    "kill a node": 3.0,
    "power of a node": 2.0,
    "pause a node": 2.0,
    "cut a node off": 4.0,
    "cut one way": 3.0,
    "pause the writer": 2.0,
    "kill the writer": 1.5,
    "take over": 3.0,
    "kill the taker": 1.5,
    "lose the lease": 0.5,
    "cut the metadata off": 1.0,
    "lose a disk": 0.7,
    "strand the writer": 5.0,
    "replace in a hurry": 3.0,
    "leave few nodes": 2.0,
}
"""What may happen, and how frequent it is where it is not left out."""


class Plan(msgspec.Struct, frozen=True):
    """What one seed does."""

    quorum: Quorum
    nodes: int
    zones: int
    entries: int
    burst: int
    pause_s: float
    closes: bool
    writers: int
    reads: bool
    mends: bool
    troubles: dict[str, float]
    trouble_count: int
    rage_s: float
    lasts_s: float
    appending: AppendSettings
    recovering: RecoverSettings
    patience: Patience
    slow: int
    """So many nodes are slow."""

    step_mean_s: float
    """How long a step of a slow node's work on its disk takes."""

    net: NetFaults
    metadata: MetadataFaults


def draw(rng: Random) -> Plan:
    """Draw a plan; each kind of trouble is absent in many seeds."""
    plan = _draw(rng)
    return _race(plan, rng) if rng.random() < RACES else plan


def _race(plan: Plan, rng: Random) -> Plan:
    """Let nothing happen but takeovers from writers that go on, on disks that take their time."""
    return msgspec.structs.replace(
        plan,
        quorum=Quorum(),
        nodes=3 + rng.randrange(2),
        entries=60,
        burst=rng.choice([1, 2]),
        pause_s=rng.choice([0.001, 0.004]),
        closes=False,
        writers=2,
        reads=False,
        mends=False,
        troubles={"strand the writer": 1.0},
        trouble_count=4,
        rage_s=0.05,
        lasts_s=0.05,
        slow=1,
        step_mean_s=0.01,
        net=NetFaults(delay_mean_s=rng.choice([0.0003, 0.002])),
        metadata=MetadataFaults(delay_mean_s=0.0003),
    )


def _draw(rng: Random) -> Plan:

    def sometimes(chance: float, most: float) -> float:
        return rng.random() * most if rng.random() < chance else 0.0

    quorum = rng.choice(QUORUMS)
    burst = rng.choice([1, 2, 4, 8])
    net = NetFaults(delay_mean_s=0.0003)
    if rng.random() < 0.3:
        net = draw_net_faults(rng)
        net = msgspec.structs.replace(net, delay_mean_s=min(net.delay_mean_s, 0.004))
    return Plan(
        quorum=quorum,
        nodes=quorum.ensemble + rng.choice([0, 1, 1, 2]),
        zones=rng.choice([0, 2, 5]),
        entries=rng.randrange(2, 5) * burst,
        burst=burst,
        pause_s=rng.choice([0.0, 0.002, 0.01, 0.05]),
        closes=rng.random() < 0.5,
        writers=rng.choice([1, 1, 2]),
        reads=rng.random() < 0.5,
        mends=rng.random() < 0.4,
        troubles={
            kind: weight * (0.2 + rng.random())
            for kind, weight in TROUBLES.items()
            if rng.random() < 0.5
        },
        trouble_count=rng.randrange(0, 8),
        rage_s=rng.choice([0.02, 0.1, 0.4]),
        lasts_s=rng.choice([0.01, 0.05, 0.3, 1.0]),
        appending=_appending(rng),
        recovering=RecoverSettings(
            window=rng.choice([1, 3, 100]), held_bytes_max=rng.choice([10, 1 << 20])
        ),
        patience=Patience(connect_s=0.2, call_s=rng.choice([0.2, 0.5]), tell_s=0.1, copy_s=3.0),
        slow=rng.choice([0, 0, 1, 2, 9]),
        step_mean_s=rng.choice([0.001, 0.01]),
        net=net,
        metadata=MetadataFaults(
            delay_mean_s=rng.choice([0.0003, 0.002]),
            delays_long=sometimes(0.2, 0.05),
            loses=sometimes(0.2, 0.1),
            forgets=sometimes(0.3, 0.2),
            refuses=sometimes(0.2, 0.1),
        ),
    )


def _appending(rng: Random) -> AppendSettings:
    return AppendSettings(
        pending_max=rng.choice([2, 8, 100]),
        pending_bytes_max=rng.choice([60, 1 << 20]),
        behind_bytes_max=rng.choice([100, 1 << 20, 1 << 20]),
        append_timeout_s=rng.choice([0.1, 2.0]),
        node_timeout_s=rng.choice([0.05, 0.3]),
        spare_retry_s=0.2,
        write_retry_limit=rng.choice([2, 10]),
        lac_push_s=0.01,
        linger_s=rng.choice([0.0, 0.05, 0.3]),
    )
