"""What happened in a simulated world, as lines that hash to one value.

The hash covers what is printed, byte for byte; two runs of one seed that differ in anything that
was traced differ in it.
"""

from collections.abc import Callable
from hashlib import blake2b


class Trace:
    """Events in the order in which they happened; `say` hears them, and the details if wanted."""

    def __init__(self, say: Callable[[str], None] | None = None, *, details: bool = False) -> None:
        self._say = say
        self._details = details
        self._ended = False
        self._hash = blake2b(digest_size=16)

    def add(self, now: float, event: str, fields: dict[str, object]) -> None:
        """Note that `event` happened at the virtual time `now`."""
        text = "".join(f" {name}={fields[name]}" for name in fields)
        self._add(f"{now:12.6f}  {event}{text}", said=True)

    def add_detail(self, now: float, text: str) -> None:
        """Note what is only said to those who want to look closely; the hash covers it always."""
        self._add(f"{now:12.6f}      {text}", said=self._details)

    def end(self) -> None:
        """Take nothing more: what follows is no part of the history."""
        self._ended = True

    def fingerprint(self, *parts: bytes) -> str:
        """Digest all events so far, and what else belongs to the history."""
        history = self._hash.copy()
        for part in parts:
            history.update(part)
        return history.hexdigest()

    def _add(self, line: str, *, said: bool) -> None:
        if self._ended:
            return
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        if said and self._say is not None:
            self._say(line)
