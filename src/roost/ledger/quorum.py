"""The arithmetic of quorums: where an entry goes, and how many answers decide.

A ledger's ensemble has E slots, each taken by one node. Entry e goes to Qw of them, its write set:
the slots e, e + 1, ... modulo E. It is confirmed once Qa of these have it. All of recovery rests
on two counts, and both say the same thing, that no Qa nodes are left that could have confirmed
something behind our back:

    fence       of every write set fewer than Qa nodes are unfenced; E - Qa + 1 fences are enough
    the end     fewer than Qa nodes can have the entry: Qw - Qa + 1 say that it is absent

A majority is neither: with Qw = 5 and Qa = 2 three nodes may lack an entry that was acknowledged.
"""

from collections.abc import Collection
from typing import Final

from roost.errors import Invalid
from roost.metadata.ledgers import Quorum

ENSEMBLE_MAX: Final = 64
"""More nodes than that in one ensemble only slow each other down."""


def check_quorum(quorum: Quorum, *, ack_min: int = 1) -> list[str]:
    """Refuse what cannot work with `Invalid`; give warnings about what is unwise.

    >>> check_quorum(Quorum(5, 3, 2))
    []
    >>> check_quorum(Quorum(3, 2, 1))
    ['ack quorum 1: what one node has and no other is acknowledged, and may be lost with it']
    >>> check_quorum(Quorum(3, 2, 3))
    Traceback (most recent call last):
    roost.errors.Invalid: ensemble 3, write quorum 2, ack quorum 3: each is at most the one before
    """
    size, write, ack, read = quorum.ensemble, quorum.write, quorum.ack, quorum.read
    if not ENSEMBLE_MAX >= size >= write >= ack >= 1:
        if size > ENSEMBLE_MAX or ack < 1:
            raise Invalid(f"ensemble {size}, ack quorum {ack}: both are from 1 to {ENSEMBLE_MAX}")
        raise Invalid(
            f"ensemble {size}, write quorum {write}, ack quorum {ack}: each is at most the one "
            "before"
        )
    if ack < ack_min:
        raise Invalid(f"ack quorum {ack}: in this cluster it is at least {ack_min}")
    if read != 1 and not end_coverage(quorum) <= read <= write:
        raise Invalid(
            f"read quorum {read}: 1, or from {end_coverage(quorum)} (write quorum - ack quorum + "
            f"1) to {write}"
        )
    if ack == 1:
        return [
            "ack quorum 1: what one node has and no other is acknowledged, and may be lost with it"
        ]
    return []


def write_set(entry: int, quorum: Quorum) -> tuple[int, ...]:
    """Name the slots that an entry goes to, the first one first.

    >>> write_set(0, Quorum(3, 3, 2))
    (0, 1, 2)
    >>> write_set(4, Quorum(5, 3, 2))
    (4, 0, 1)
    """
    size = quorum.ensemble
    return tuple([(entry + step) % size for step in range(quorum.write)])


def stripe_masks(quorum: Quorum) -> tuple[int, ...]:
    """Give the write sets of entries 0, 1, ... E - 1 as bits by slot; they recur from there.

    >>> [format(mask, "05b") for mask in stripe_masks(Quorum(5, 3, 2))]
    ['00111', '01110', '11100', '11001', '10011']
    """
    return tuple(
        sum(1 << slot for slot in write_set(entry, quorum)) for entry in range(quorum.ensemble)
    )


def end_coverage(quorum: Quorum) -> int:
    """Count how many of a write set must lack an entry before nobody can have confirmed it.

    >>> end_coverage(Quorum(3, 3, 2)), end_coverage(Quorum(5, 5, 2))
    (2, 4)
    """
    return quorum.write - quorum.ack + 1


def fence_coverage(quorum: Quorum) -> int:
    """Count how many fences are enough, whichever nodes they are on.

    >>> fence_coverage(Quorum(3, 3, 2)), fence_coverage(Quorum(5, 3, 2))
    (2, 4)
    """
    return quorum.ensemble - quorum.ack + 1


def covers(fenced: Collection[int], quorum: Quorum) -> bool:
    """Tell whether no write set has Qa slots left that are not fenced: no add can be confirmed.

    >>> covers({0}, Quorum(3, 3, 2)), covers({0, 2}, Quorum(3, 3, 2))
    (False, True)

    Where entries are striped fewer than `fence_coverage` may be enough, if they lie well:

    >>> covers({0, 1, 2}, Quorum(6, 2, 2)), covers({0, 2, 4}, Quorum(6, 2, 2))
    (False, True)
    """
    return all(
        sum(slot not in fenced for slot in write_set(entry, quorum)) < quorum.ack
        for entry in range(quorum.ensemble)
    )


def named_entries(slot: int, first: int, upto: int, quorum: Quorum) -> int:
    """Count the entries from `first` upto `upto` that a slot is to have.

    >>> named_entries(0, 0, 9, Quorum(3, 3, 2)), named_entries(1, 0, 9, Quorum(5, 3, 2))
    (10, 6)
    >>> named_entries(2, 5, 4, Quorum(3, 3, 2))
    0
    """
    total = upto - first + 1
    if total <= 0:
        return 0
    size = quorum.ensemble
    rounds, rest = divmod(total, size)
    return rounds * quorum.write + sum(
        (slot - first - step) % size < quorum.write for step in range(rest)
    )
