"""All that a process has of its machine, in one value that its entry point makes."""

import msgspec

from roost.host.clock import Clock
from roost.host.disk import Disk
from roost.host.net import Net
from roost.host.random import Rng
from roost.host.tasks import Tasks


class Seams(msgspec.Struct, frozen=True):
    """One machine's seams, all real or all simulated."""

    clock: Clock
    disk: Disk
    net: Net
    rng: Rng
    tasks: Tasks
