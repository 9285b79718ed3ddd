"""How a node is: one answer for `stat`, the health page and the metrics."""

from importlib.metadata import version
from typing import Final

from roost.host.clock import Clock
from roost.host.metrics import JournalMetrics, NodeMetrics, collect
from roost.node.identity import Identity
from roost.node.store import Store
from roost.wire.messages import NodeStat


class Status:
    """Asks the store, and says it in the words of the wire."""

    def __init__(
        self,
        store: Store,
        identity: Identity,
        *,
        clock: Clock,
        sync: str,
        metrics: NodeMetrics,
        journal_metrics: JournalMetrics,
    ) -> None:
        self._store: Final = store
        self._identity: Final = identity
        self._clock: Final = clock
        self._sync: Final = sync
        self._metrics: Final = metrics
        self._journal_metrics: Final = journal_metrics
        self._begun: Final = clock.now()
        self._version: Final = version("roost")

    def problems(self) -> list[str]:
        """Say what is not as it should be; nothing, if the node is well."""
        store = self._store
        said = [
            store.failure or store.why_refused,
            store.upkeep.why_full,
            store.journal.why_no_room,
            "ledgers may have been forgotten: copy them from their replicas"
            if store.known.forgetful
            else "",
        ]
        return [text for text in dict.fromkeys(said) if text]

    def stat(self) -> NodeStat:
        """Tell all of it."""
        store, identity, journal = self._store, self._identity, self._store.journal
        self.refresh()
        counted = [*collect(self._metrics), *collect(self._journal_metrics)]
        return NodeStat(
            node=identity.node,
            cluster=identity.cluster,
            uuid=identity.uuid,
            version=self._version,
            health="; ".join(self.problems())[:1000],
            readonly=store.failure[:1000],
            sync=self._sync,
            uptime_s=max(0.0, self._clock.now() - self._begun),
            ledgers=len(store.known.ledgers),
            memory_bytes=store.memory_bytes,
            journal_kept_bytes=journal.kept_bytes,
            journal_queued_bytes=journal.queued_bytes,
            journal_tail=journal.tail,
            journal_durable=journal.durable_before,
            free_bytes=store.free_bytes,
            counters={sample.name: sample.value for sample in counted if sample.kind == "counter"},
        )

    def refresh(self) -> None:
        """Set the levels among the metrics to what they are now."""
        store, metrics = self._store, self._metrics
        metrics.ledgers = len(store.known.ledgers)
        metrics.memory_bytes = store.memory_bytes
        metrics.journal_kept_bytes = store.journal.kept_bytes
        metrics.free_bytes = store.free_bytes
