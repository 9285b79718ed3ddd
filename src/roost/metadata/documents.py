"""Documents: what stands in a key's value, as JSON that people can read, with a kind and a version.

    {"kind": "node", "version": 1, "node": "alice", ...}

Pure. A field that is new has a default, and a reader passes over fields that it does not know: that
takes no new version. A version is raised where an older reader would do the wrong thing; whoever
meets a newer one than it knows refuses it, and does nothing by halves.
"""

from typing import Final, Generic, TypeVar

import msgspec

from roost.errors import Corrupt, Invalid

D = TypeVar("D", bound=msgspec.Struct)


class _Head(msgspec.Struct, frozen=True):
    """What every document begins with."""

    kind: str
    version: int


class Kind(Generic[D]):
    """One kind of document."""

    def __init__(self, name: str, of: type[D], *, version: int = 1) -> None:
        taken = set(_Head.__struct_fields__) & set(of.__struct_fields__)
        assert not taken, f"every document has fields of these names: {taken}"
        self._head: Final = _Head(name, version)
        self._of: Final = of

    def encode(self, document: D) -> bytes:
        """Write a document."""
        fields = msgspec.to_builtins(document)
        return msgspec.json.encode({**msgspec.to_builtins(self._head), **fields})

    def decode(self, key: str, value: bytes) -> D:
        """Read the document that stands in a key.

        `Invalid` if a newer Roost wrote it, and `Corrupt` if it is none of this kind at all.
        """
        try:
            head = msgspec.json.decode(value, type=_Head)
            if head.kind == self._head.kind and head.version > self._head.version:
                raise Invalid(
                    f"the {head.kind} in {key!r} has version {head.version}, and this Roost reads "
                    f"up to {self._head.version}: update it"
                )
            if head.kind != self._head.kind or head.version < 1:
                raise _corrupt(key, f"it is a {head.kind!r} of version {head.version}")
            return msgspec.json.decode(value, type=self._of)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _corrupt(key, f"{error}, in {self._head.kind!r}") from error


def _corrupt(key: str, why: str) -> Corrupt:
    return Corrupt(
        f"the document in the metadata's key {key!r} cannot be read: {why}. Look who wrote it.",
        file=key,
        offset=0,
    )
