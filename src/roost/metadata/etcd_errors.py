"""What a failed call to etcd means: whether anything was decided, and what to do next.

Pure. A status that etcd itself raised, and that is no matter of time or leadership, is its decision
not to do it. Any other leaves open whether a change was done; a read can be asked again elsewhere.
The one exception is a server to which no connection was made: it was asked nothing.
"""

from typing import Final, Literal

from roost.errors import (
    Compacted,
    Denied,
    Invalid,
    NoRoom,
    NotFound,
    RoostError,
    Throttled,
)
from roost.metadata.answers import unanswered

ELSEWHERE: Final = "elsewhere"
"""Nothing was done: ask another endpoint."""

LOG_IN: Final = "log in"
"""Nothing was done, since our token is no longer known: get another one, and ask again."""


class TooLong(Invalid):
    """The answer to a read is longer than what is taken; ask for less of it at once."""


Verdict = RoostError | Literal["elsewhere", "log in"]

_NOT_SENT: Final = "failed to connect to all addresses"
_OF_ETCD: Final = "etcdserver: "
_DEFINITE: Final[dict[str, type[RoostError]]] = {
    "INVALID_ARGUMENT": Invalid,
    "NOT_FOUND": NotFound,
    "FAILED_PRECONDITION": Invalid,
    "PERMISSION_DENIED": Denied,
    "UNAUTHENTICATED": Denied,
    "RESOURCE_EXHAUSTED": Throttled,
    "OUT_OF_RANGE": Invalid,
}


def verdict(code: str, details: str, *, what: str, changes: bool) -> Verdict:
    """Judge a call by the name of its status and the text that came with it."""
    told = f"{what} was refused by etcd: {details.removeprefix(_OF_ETCD)}"
    if code == "UNAUTHENTICATED" and "invalid auth token" in details:
        return LOG_IN
    if details.startswith(_OF_ETCD) and (kind := _DEFINITE.get(code)) is not None:
        if "space exceeded" in details:
            return NoRoom(f"{told}; free some of it, and disarm its alarm")
        if "authentication failed" in details:
            return Denied(f"{told}; look at the user and the password")
        if "future revision" in details:
            return Invalid(f"{told}: it is yet to come")
        if "has been compacted" in details:
            # How far, etcd does not say here.
            return Compacted(f"{told}: read what is now", upto=0)
        return kind(told)
    if code == "UNAVAILABLE" and details.startswith(_NOT_SENT):
        return ELSEWHERE
    if code == "RESOURCE_EXHAUSTED" and not changes:
        return TooLong(f"{what} has too long an answer ({details}): read fewer keys at once")
    if not changes and code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "UNKNOWN", "INTERNAL"):
        return ELSEWHERE
    return unanswered(what, f"({code.lower()}: {details})", changes=changes)
