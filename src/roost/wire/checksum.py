"""The one checksum of internal formats: CRC-32, the IEEE polynomial.

Its values are those of `zlib.crc32`, so that no format depends on a package; `isal` computes them
several times as fast.
"""

from isal.isal_zlib import crc32

__all__ = ["crc32"]
