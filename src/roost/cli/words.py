"""Numbers as people read them."""

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEP: Final = 1024


def size(count: int) -> str:
    """Write a number of bytes as people read it."""
    value, unit = float(count), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{count} B"


def counted(count: int, what: str) -> str:
    """Write how many there are of something."""
    return f"{count} {what}{'s' * (count != 1)}"
