"""What to say when there is no answer: whether anything may have been decided.

Pure, and the same for all stores.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from roost.errors import Invalid, RoostError, Unavailable, Unknown
from roost.metadata.operations import Get, Operation

T = TypeVar("T")


def changes_anything(*branches: Sequence[Operation]) -> bool:
    """Tell whether a transaction can do more than read."""
    return any(not isinstance(operation, Get) for branch in branches for operation in branch)


def readable(read: Callable[[], T], what: str, *, changes: bool) -> T:
    """Read an answer; one that cannot be read is as good as none."""
    try:
        return read()
    except Invalid as error:
        raise unanswered(what, f"that can be read ({error})", changes=changes) from error


def unanswered(what: str, why: str, *, changes: bool) -> RoostError:
    """Make the error of a request that may have been done, or not, for all we know."""
    told = f"{what} had no answer from the metadata store {why}"
    if changes:
        return Unknown(f"{told}: it may or may not have been done; read again, and see")
    return Unavailable(f"{told}: nothing was changed; try again")
