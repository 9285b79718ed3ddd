"""What a channel tells about itself: where it stands, what it takes, what it met."""

import msgspec

from roost.channel.machine import Machine
from roost.channel.recover import Finding
from roost.segments.kernel import COMPILED
from roost.types import Durability


class ReceiverStat(msgspec.Struct, frozen=True):
    """One receiver: who it is and how far it is."""

    name: str
    id: int
    position: int
    behind_bytes: int
    unacknowledged: int
    open: bool


class ChannelStat(msgspec.Struct, frozen=True):
    """An open channel at one moment. Positions count bytes of frames from the very first one."""

    path: str
    durability: Durability
    write_path: str
    kernel: str
    head: int
    durable: int
    tail: int
    segments: int
    compression: str
    disk_bytes: int
    incarnation: int
    receivers: list[ReceiverStat]
    findings: list[Finding]
    failure: str
    trouble: str


def receiver_stats(machine: Machine) -> list[ReceiverStat]:
    """Describe the receivers of an open channel."""
    with machine.standing.lock:
        return _receivers(machine)


def _receivers(machine: Machine) -> list[ReceiverStat]:
    return [
        ReceiverStat(
            name=place.mark.name,
            id=place.mark.id,
            position=place.position,
            behind_bytes=max(0, machine.ends.visible - place.position),
            unacknowledged=0 if reading is None else reading.unacknowledged,
            open=reading is not None,
        )
        for place, reading in machine.readings.places()
    ]


def channel_stat(machine: Machine) -> ChannelStat:
    """Describe an open channel."""
    settings = machine.settings
    reason = settings.unmapped_because
    with machine.standing.lock:
        return ChannelStat(
            path=str(machine.standing.folder),
            durability=settings.durability,
            write_path=f"write ({reason})" if reason else "mapped",
            kernel="compiled" if COMPILED else "plain Python (slower)",
            head=machine.catalogue.head,
            durable=machine.sends.group.durable,
            tail=machine.ends.written,
            segments=len(machine.catalogue.segments),
            compression=settings.method or "off",
            disk_bytes=machine.catalogue.disk_bytes(),
            incarnation=machine.incarnation,
            receivers=_receivers(machine),
            findings=machine.findings,
            failure=machine.standing.failure,
            trouble=machine.upkeep.trouble,
        )
