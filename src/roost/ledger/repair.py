"""Plans how closed ledgers get back all of their copies, and how the metadata learns of it.

Pure. The promise: the metadata never names a node for an entry that it does not durably hold, but
for nodes that are noted as laggards. So a copy is made first, and only when the new node has
answered that all of it is durable there, the new name is put in the old one's place, in exactly the
fragment that was read, by a compare-and-set on the document.

Only closed ledgers are touched. What is still written to is its writer's, and its writer replaces
what fails; a ledger whose writer is gone is recovered first.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from roost.host.random import Rng
from roost.ledger.placement import Candidate, choose
from roost.ledger.quorum import write_set
from roost.metadata.ledgers import Fragment, LedgerDocument, LedgerPhase
from roost.types import EntryId, Epoch, LedgerId, NodeId
from roost.wire.messages import LedgerState, Placed


class Job(msgspec.Struct, frozen=True):
    """Have `new` copy a fragment from the others; then it takes the place of `old`."""

    ledger: LedgerId
    epoch: Epoch
    first: EntryId
    upto: EntryId
    slot: int
    old: NodeId
    new: NodeId
    """The same as `old` where that is a laggard: it fetches what it missed."""

    last: EntryId
    """Where the ledger ends."""

    sources: tuple[NodeId, ...]
    """The best first."""


def plan(
    document: LedgerDocument,
    *,
    gone: Collection[NodeId],
    leaving: Collection[NodeId] = (),
    candidates: Iterable[Candidate],
    rng: Rng,
    free_bytes_min: int = 0,
) -> list[Job]:
    """List what a ledger needs; a node that nobody can replace now is left for the next time.

    Who is `gone` can be asked for nothing. Who is `leaving` is replaced, and copied from.
    """
    if document.phase is not LedgerPhase.CLOSED:
        return []
    jobs: list[Job] = []
    candidates = [*candidates]
    away = {*gone, *leaving}
    for index, fragment in enumerate(document.fragments):
        upto = document.upto_of(index)
        assert upto is not None, "a closed ledger ends"
        if upto >= fragment.first:
            lost = [slot for slot, node in enumerate(fragment.nodes) if node in away]
            spares = choose(
                candidates,
                len(lost),
                rng=rng,
                excluded={*fragment.nodes, *away, *document.barred},
                zones_taken=_zones(fragment, away, candidates),
                free_bytes_min=free_bytes_min,
            )
            new = dict(zip(lost, spares, strict=False))
            jobs += _of_fragment(document, index, new, gone)
    return jobs


def _zones(
    fragment: Fragment, away: Collection[NodeId], candidates: Sequence[Candidate]
) -> set[str]:
    """Name the zones of the nodes that stay."""
    stay = {*fragment.nodes} - {*away}
    return {each.zone for each in candidates if each.node in stay}


def _of_fragment(
    document: LedgerDocument, index: int, new: Mapping[int, NodeId], gone: Collection[NodeId]
) -> Iterable[Job]:
    fragment, upto = document.fragments[index], document.upto_of(index)
    assert upto is not None, "a closed ledger ends"
    assert document.last is not None, "and says where"
    for slot, node in enumerate(fragment.nodes):
        target = new.get(slot) or (node if node in document.laggards else None)
        if target is None or target in gone:
            continue
        sources = [each for each in fragment.nodes if each != target and each not in gone]
        yield Job(
            ledger=document.ledger,
            epoch=document.epoch,
            first=fragment.first,
            upto=upto,
            slot=slot,
            old=node,
            new=target,
            last=document.last,
            # A laggard may have what nobody else has, and is asked last.
            sources=tuple(sorted(sources, key=lambda each: each in document.laggards)),
        )


def is_copied(document: LedgerDocument, job: Job, placed: Placed) -> bool:
    """Tell whether a node has answered that it has all that its slot is to have, durably."""
    if placed.missing_total > len(placed.missing):
        return False
    return not any(job.slot in write_set(entry, document.quorum) for entry in placed.missing)


def is_complete(document: LedgerDocument, state: LedgerState) -> bool:
    """Tell whether a node's own account proves that it lacks nothing: it has every entry.

    A count proves that only where it counts the whole ledger: what else a node may hold, beyond the
    end or of slots that it does not have, it counts as well.
    """
    return (
        document.last is not None
        and not state.suspect
        and state.highest <= document.last
        and state.entries == document.last + 1
    )


def with_copy(document: LedgerDocument, job: Job) -> LedgerDocument | None:
    """Put the new node in the old one's place; None if that is not what the document says."""
    if document.phase is not LedgerPhase.CLOSED:
        return None
    fragments = [*document.fragments]
    for index, fragment in enumerate(fragments):
        if fragment.first == job.first and document.upto_of(index) == job.upto:
            if fragment.nodes[job.slot] != job.old or job.new in fragment.nodes:
                return None
            if job.new in document.barred:
                return None
            nodes = [*fragment.nodes]
            nodes[job.slot] = job.new
            fragments[index] = Fragment(fragment.first, tuple(nodes))
            return msgspec.structs.replace(document, fragments=tuple(fragments)).tidied()
    return None


def without_laggard(document: LedgerDocument, node: NodeId) -> LedgerDocument | None:
    """Strike a node off the laggards, after it was found to have, or was given, everything."""
    if document.phase is not LedgerPhase.CLOSED or node not in document.laggards:
        return None
    left = tuple(each for each in document.laggards if each != node)
    return msgspec.structs.replace(document, laggards=left)
