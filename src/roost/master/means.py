"""What all parts of one master work with, made once for each term."""

import msgspec

from roost.host.clock import Clock
from roost.host.log import Log
from roost.host.metrics import MasterMetrics
from roost.ledger.nodes import Nodes
from roost.ledger.records import Records
from roost.ledger.repairing import Repairer
from roost.master.documents import Documents
from roost.master.roster import Roster
from roost.metadata.store import MetadataStore


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata, the nodes, and who repairs."""

    store: MetadataStore
    documents: Documents
    records: Records
    roster: Roster
    nodes: Nodes
    repairer: Repairer
    clock: Clock
    log: Log
    metrics: MasterMetrics
