"""The hot path of a connection and of a node, as this installation has it.

Compiled where there was a C compiler, plain Python elsewhere: the same names and the same
answers, more slowly. `COMPILED` tells which it is. Everything else imports from here; only tests
name one of the two.
"""

from typing import Final

try:
    from roost.wire import _kernel as chosen
except ImportError:
    from roost.wire import plain as chosen  # type: ignore[no-redef]

COMPILED: Final = chosen.__name__ == "roost.wire._kernel"

Frames = chosen.Frames
adjacent = chosen.adjacent
blank = chosen.blank
encode_add = chosen.encode_add
holds = chosen.holds
payloads = chosen.payloads
read_add = chosen.read_add
record_head = chosen.record_head
slots = chosen.slots
