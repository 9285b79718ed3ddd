"""The documents about nodes: who each is, for ever, and how it is, as long as it says so."""

from typing import Final

import msgspec

from roost.metadata.documents import Kind


class ClusterDocument(msgspec.Struct, frozen=True):
    """Which cluster it is whose metadata this is."""

    cluster: str
    created_at: float
    """By the wall of whoever made it."""


class NodeIdentity(msgspec.Struct, frozen=True):
    """Who a node is: written when it registers for the first time, and never changed."""

    node: str
    uuid: str
    """Of its folder, as 32 hexadecimal digits: a folder with another one is another node."""

    address: str
    """Where it was found first; where it is now, its report says."""

    created_at: float
    """By its own wall."""


class NodeReport(msgspec.Struct, frozen=True):
    """How a node is; it vanishes with the node's lease."""

    node: str
    address: str
    """Where it takes requests."""

    zone: str
    """Where it stands: what fails together has one name, and '' is a zone, too."""

    roost: str
    """The version of Roost that it runs."""

    health: str
    """What is wrong with it; '' if it is well."""

    readonly: str
    """Why it takes no adds; '' if it does."""

    free_bytes: int
    ledgers: int
    added_bytes_per_s: float
    """On average since its last report, and so is the next."""

    read_bytes_per_s: float
    reported_at: float
    """By its own wall."""


CLUSTER_DOCUMENT: Final = Kind("cluster", ClusterDocument)
NODE_IDENTITY: Final = Kind("node", NodeIdentity)
NODE_REPORT: Final = Kind("node_report", NodeReport)
