"""The hot path of the file channel, as this installation has it.

Compiled where there was a C compiler, plain Python elsewhere: the same names and the same
answers, more slowly. `COMPILED` tells which it is, and `GUARDED` whether a window may be a
mapped file. Everything else imports from here; only tests name one of the two.
"""

from typing import Final

try:
    from roost.segments import _kernel as chosen
except ImportError:
    from roost.segments import plain as chosen  # type: ignore[no-redef]

COMPILED: Final = chosen.__name__ == "roost.segments._kernel"
GUARDED: Final = chosen.GUARDED

Appender = chosen.Appender
Cursor = chosen.Cursor
Ends = chosen.Ends
Slot = chosen.Slot
boundary = chosen.boundary
crc32 = chosen.crc32
frame = chosen.frame
frames = chosen.frames
resume = chosen.resume
scan = chosen.scan
