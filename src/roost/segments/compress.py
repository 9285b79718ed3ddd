"""Packs the frames of a sealed segment into one compressed stream, and unpacks it again.

Pure: bytes in, bytes out, a piece at a time. The methods, and the bytes that name them in a
compressed segment's header (`docs/formats/channel.md`):

    0 snappy   Snappy framing format: chunks of at most 65,536 bytes, each with its CRC-32C
    1 gzip     RFC 1952, with no time in it; several members one after the other are read as one
    2 zstd     RFC 8878, one frame, with content checksum and a window of at most 8 MiB

The promise: `decompress` gives the bytes that went in, exactly `size` of them, or raises
`BadStream`, whatever the stream claims of itself. It works in bounded memory: pieces of at
most `PIECE_BYTES_MAX`, and nothing is allocated for a claimed length that was not checked.

The checksums of gzip and zstd stand at the end of the stream, so that an early piece may turn
out to be wrong later; the last piece is held back until all of the stream was checked. Who has
received `size` bytes has the right ones; who stops earlier relies on the frames' own checksums.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, Protocol, cast

import cramjam
import google_crc32c
import zstandard
from isal import isal_zlib

Method = Literal["snappy", "gzip", "zstd"]
"""How a segment is compressed."""

PIECE_BYTES_MAX: Final = 1 << 17
"""No piece out of `decompress` is longer. It is also the most that a zstd block may hold."""

_BYTES: Final[dict[Method, int]] = {"snappy": 0, "gzip": 1, "zstd": 2}

# Measured on frames of 150-byte JSON messages, and on program text: gzip 2 packs 660 and 590 MB/s
# to 1/3.5 and 1/3.7; level 3 takes 1.7 times as long for 2 to 5 % less. zstd 1 packs 510 and 420
# MB/s to 1/4.1 and 1/3.9; level 3 takes 1.5 times as long for 3 % more and 9 % less.
_GZIP_LEVEL: Final = 2
_ZSTD_LEVEL: Final = 1

_SNAPPY_BEGIN: Final = b"\xff\x06\x00\x00sNaPpY"
_SNAPPY_CRC_BYTES: Final = 4
_SNAPPY_BLOCK_BYTES: Final = 1 << 16
# Packing n bytes makes at most 32 + n + n/6 of them.
_SNAPPY_CHUNK_BYTES_MAX: Final = _SNAPPY_CRC_BYTES + 32 + _SNAPPY_BLOCK_BYTES * 7 // 6
_SNAPPY_PACKED, _SNAPPY_PLAIN, _SNAPPY_SKIPPABLE, _SNAPPY_IDENTIFIER = 0x00, 0x01, 0x80, 0xFF

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"  # with the method, deflate
_GZIP_HEADER_CRC, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT, _GZIP_RESERVED = 2, 4, 8, 16, 0xE0
# The gzip reader of the published original refuses longer names too.
_GZIP_TEXT_BYTES_MAX: Final = 512
_GZIP_WBITS, _RAW_DEFLATE_WBITS = 31, -15

# What RFC 8878 asks every decoder to support. Level 1 uses 512 KiB.
_ZSTD_WINDOW_BYTES_MAX: Final = 1 << 23
_ZSTD_RLE, _ZSTD_RESERVED = 1, 3

# Its stub calls it an exception where it is a type of exceptions.
_IsalError: Final = cast("type[Exception]", isal_zlib.error)


class BadStream(Exception):
    """A compressed stream is not what it should be; `offset` counts its bytes from its start."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"compressed byte {offset}: {reason}")
        self.offset: Final = offset
        self.reason: Final = reason


class Compressor(Protocol):
    """Takes the bytes of one segment in pieces, and gives those of one stream."""

    def add(self, chunk: bytes | memoryview) -> bytes:
        """Take more bytes; answer what is ready of the stream, perhaps nothing."""

    def finish(self) -> bytes:
        """End the stream and answer the rest of it. Nothing may be added afterwards."""


def method_byte(method: Method) -> int:
    """Give the byte that stands for a method in a segment's header."""
    return _BYTES[method]


def method_of(byte: int) -> Method:
    """Give the method that a segment's header names; `ValueError` says that there is none."""
    for method, known in _BYTES.items():
        if known == byte:
            return method
    raise ValueError(f"compression method {byte} is none of {_BYTES}")


def compressor(method: Method) -> Compressor:
    """Begin a stream."""
    match method:
        case "snappy":
            return _SnappyCompressor()
        case "gzip":
            return _StreamCompressor(isal_zlib.compressobj(level=_GZIP_LEVEL, wbits=_GZIP_WBITS))
        case "zstd":
            codec = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
            return _StreamCompressor(codec.compressobj())


def decompress(method: Method, chunks: Iterable[bytes], *, size: int) -> Iterator[bytes]:
    """Unpack a stream that must hold exactly `size` bytes, or raise `BadStream` on the way.

    `chunks` are the stream's bytes, cut anywhere, and are taken one at a time as needed.
    """
    stream = _Stream(chunks)
    missing = size
    held = b""
    for piece in filter(None, _pieces(method, stream)):
        if len(piece) > missing:
            raise BadStream(stream.offset, f"it holds more than {size} bytes")
        missing -= len(piece)
        if held:
            yield held
        held = piece
    if missing:
        raise BadStream(stream.offset, f"it holds {missing} bytes less than {size}")
    if held:
        yield held


def _pieces(method: Method, stream: "_Stream") -> Iterator[bytes]:
    match method:
        case "snappy":
            return _snappy_pieces(stream)
        case "gzip":
            return _gzip_pieces(stream)
        case "zstd":
            return _zstd_pieces(stream)


class _Stream:
    """The compressed bytes, read from chunks of any size in the sizes that a format asks for."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._chunk = b""
        self._at = 0
        self.offset = 0

    def ended(self) -> bool:
        """Tell whether every byte was taken."""
        while self._at == len(self._chunk):
            following = next(self._chunks, None)
            if following is None:
                return True
            self._chunk, self._at = following, 0
        return False

    def piece(self, size_max: int) -> bytes:
        """Take what is at hand, at least one byte and at most `size_max`."""
        if self.ended():
            raise BadStream(self.offset, "it ends too early")
        piece = self._chunk[self._at : self._at + size_max]
        self._at += len(piece)
        self.offset += len(piece)
        return piece

    def put_back(self, size: int) -> None:
        """Return the last `size` bytes of the last piece."""
        assert size <= self._at, "only bytes of the last piece can be put back"
        self._at -= size
        self.offset -= size

    def take(self, size: int) -> bytes:
        """Take exactly `size` bytes: the caller has checked that it is no wild claim."""
        if size <= len(self._chunk) - self._at:
            return self.piece(size) if size else b""
        taken = bytearray()
        while len(taken) < size:
            taken += self.piece(size - len(taken))
        return bytes(taken)

    def skip(self, size: int) -> None:
        """Pass over exactly `size` bytes without gathering them."""
        while size:
            size -= len(self.piece(min(size, PIECE_BYTES_MAX)))


class _StreamCompressor:
    """A compressor whose library makes the whole stream."""

    def __init__(self, codec: "isal_zlib.Compress | zstandard.ZstdCompressionObj") -> None:
        self._codec = codec

    def add(self, chunk: bytes | memoryview) -> bytes:
        return self._codec.compress(chunk)

    def finish(self) -> bytes:
        return self._codec.flush()


class _SnappyCompressor:
    """A compressor to the Snappy framing format.

    A chunk is u8 type, u24 length (little endian), content. The first is the identifier; data
    is u32 masked CRC-32C of the unpacked bytes (little endian), then these as a Snappy block
    (type 0), or as they are (type 1) where packing does not pay.
    """

    def __init__(self) -> None:
        self._pending = bytearray()
        self._ready = [_SNAPPY_BEGIN]

    def add(self, chunk: bytes | memoryview) -> bytes:
        self._pending += chunk
        return self._pack(len(self._pending) // _SNAPPY_BLOCK_BYTES * _SNAPPY_BLOCK_BYTES)

    def finish(self) -> bytes:
        return self._pack(len(self._pending))

    def _pack(self, before: int) -> bytes:
        for at in range(0, before, _SNAPPY_BLOCK_BYTES):
            block = bytes(self._pending[at : min(at + _SNAPPY_BLOCK_BYTES, before)])
            self._ready.append(_snappy_packed(block))
        del self._pending[:before]
        ready = b"".join(self._ready)
        self._ready.clear()
        return ready


def _snappy_packed(block: bytes) -> bytes:
    checksum = _snappy_checksum(block)
    packed = bytes(cramjam.snappy.compress_raw(block))
    # To save less than an eighth is not worth unpacking it on every read.
    if len(packed) > len(block) - len(block) // 8:
        return _snappy_chunk(_SNAPPY_PLAIN, checksum + block)
    return _snappy_chunk(_SNAPPY_PACKED, checksum + packed)


def _snappy_chunk(kind: int, content: bytes) -> bytes:
    return bytes((kind,)) + len(content).to_bytes(3, "little") + content


def _snappy_checksum(block: bytes) -> bytes:
    """Mask the CRC as the framing format does: turned by 15 bits, plus a constant."""
    crc: int = google_crc32c.value(block)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return masked.to_bytes(4, "little")


def _snappy_pieces(stream: _Stream) -> Iterator[bytes]:
    if stream.ended():
        return  # that is what the writer of the published original makes of nothing
    if stream.take(len(_SNAPPY_BEGIN)) != _SNAPPY_BEGIN:
        raise BadStream(0, "it does not begin as a snappy stream")
    while not stream.ended():
        at = stream.offset
        head = stream.take(4)
        kind, length = head[0], int.from_bytes(head[1:], "little")
        if kind in (_SNAPPY_PACKED, _SNAPPY_PLAIN):
            yield _snappy_block(stream, kind, length, at)
        elif kind == _SNAPPY_IDENTIFIER:
            # Streams may be laid end to end; then it stands in the middle again.
            if head + stream.take(len(_SNAPPY_BEGIN) - len(head)) != _SNAPPY_BEGIN:
                raise BadStream(at, "a snappy stream identifier is damaged")
        elif kind >= _SNAPPY_SKIPPABLE:
            stream.skip(length)
        else:
            raise BadStream(at, f"snappy chunks of type 0x{kind:02x} are not known")


def _snappy_block(stream: _Stream, kind: int, length: int, at: int) -> bytes:
    """Unpack one chunk of data of `length` bytes; `at` is where the chunk began."""
    if not _SNAPPY_CRC_BYTES <= length <= _SNAPPY_CHUNK_BYTES_MAX:
        raise BadStream(at, f"a snappy chunk claims {length} bytes")
    content = stream.take(length)
    checksum, block = content[:_SNAPPY_CRC_BYTES], content[_SNAPPY_CRC_BYTES:]
    if kind == _SNAPPY_PACKED:
        block = _snappy_unpacked(block, at)
    if len(block) > _SNAPPY_BLOCK_BYTES:
        raise BadStream(at, f"a snappy chunk holds {len(block)} bytes")
    if _snappy_checksum(block) != checksum:
        raise BadStream(at, "the checksum of a snappy chunk does not match")
    return block


def _snappy_unpacked(block: bytes, at: int) -> bytes:
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > _SNAPPY_BLOCK_BYTES:
            raise BadStream(at, f"a snappy block claims {claimed} bytes")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise BadStream(at, str(error)) from error


def _gzip_pieces(stream: _Stream) -> Iterator[bytes]:
    while True:
        _gzip_header(stream)
        yield from _gzip_member(stream)
        if stream.ended():
            return


def _gzip_header(stream: _Stream) -> None:
    # isal 1.9.1 takes a sound header that carries a checksum for a damaged one when it arrives
    # in two pieces: so it is read here.
    at = stream.offset
    fixed = stream.take(10)
    if not fixed.startswith(_GZIP_MAGIC):
        raise BadStream(at, "no gzip member begins here")
    flags = fixed[3]
    if flags & _GZIP_RESERVED:
        raise BadStream(at, "a gzip header uses reserved flags")
    header = bytearray(fixed)
    if flags & _GZIP_EXTRA:
        header += stream.take(2)
        header += stream.take(int.from_bytes(header[-2:], "little"))
    for flag in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & flag:
            header += _gzip_text(stream)
    if flags & _GZIP_HEADER_CRC:
        checksum = int.from_bytes(stream.take(2), "little")
        if checksum != isal_zlib.crc32(header) & 0xFFFF:
            raise BadStream(at, "the checksum of a gzip header does not match")


def _gzip_text(stream: _Stream) -> bytes:
    text = b""
    while not text.endswith(b"\0"):
        text += stream.take(1)
        if len(text) > _GZIP_TEXT_BYTES_MAX:
            raise BadStream(stream.offset, "a name in a gzip header is too long")
    return text


def _gzip_member(stream: _Stream) -> Iterator[bytes]:
    """Unpack what follows a member's header: deflated bytes, their CRC-32, their length."""
    codec = isal_zlib.decompressobj(wbits=_RAW_DEFLATE_WBITS)
    crc = length = 0
    packed = b""
    while not codec.eof:
        packed = packed or stream.piece(PIECE_BYTES_MAX)
        try:
            unpacked = codec.decompress(packed, PIECE_BYTES_MAX)
        except _IsalError as error:
            raise BadStream(stream.offset - len(packed), str(error)) from error
        packed = codec.unconsumed_tail
        crc = isal_zlib.crc32(unpacked, crc)
        length += len(unpacked)
        yield unpacked
    stream.put_back(len(codec.unused_data))
    at = stream.offset
    trailer = crc.to_bytes(4, "little") + (length & 0xFFFFFFFF).to_bytes(4, "little")
    if stream.take(len(trailer)) != trailer:
        raise BadStream(at, "the checksum or the length of a gzip member does not match")


def _zstd_pieces(stream: _Stream) -> Iterator[bytes]:
    """Unpack one frame, block by block.

    The library gives all that its input unpacks to, however much that is. So it gets one block
    at a time, of which the format says that it is at most 128 KiB. Walking the blocks also
    tells exactly where the frame ends.
    """
    header = _zstd_header(stream)
    codec = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX).decompressobj()
    yield _zstd_unpacked(codec, header, at=0)
    last = False
    while not last:
        at = stream.offset
        head = stream.take(3)
        word = int.from_bytes(head, "little")
        last, kind, length = bool(word & 1), word >> 1 & 3, word >> 3
        if kind == _ZSTD_RESERVED or length > PIECE_BYTES_MAX:
            raise BadStream(at, "a zstd block has a wrong header")
        block = head + stream.take(1 if kind == _ZSTD_RLE else length)
        block += stream.take(4 if last else 0)  # the content checksum
        yield _zstd_unpacked(codec, block, at=at)
    if not stream.ended():
        raise BadStream(stream.offset, "bytes follow the end of the zstd frame")


def _zstd_header(stream: _Stream) -> bytes:
    prefix = stream.take(5)  # tells how long the header is
    if not prefix.startswith(zstandard.FRAME_HEADER):
        raise BadStream(0, "it does not begin as a zstd frame")
    header = prefix + stream.take(zstandard.frame_header_size(prefix) - len(prefix))
    try:
        frame = zstandard.get_frame_parameters(header)
    except zstandard.ZstdError as error:
        raise BadStream(0, str(error)) from error
    if frame.window_size > _ZSTD_WINDOW_BYTES_MAX:
        raise BadStream(0, f"the zstd frame needs a window of {frame.window_size} bytes")
    if not frame.has_checksum:
        raise BadStream(0, "the zstd frame carries no checksum")
    return header


def _zstd_unpacked(codec: "zstandard.ZstdDecompressionObj", packed: bytes, *, at: int) -> bytes:
    try:
        return codec.decompress(packed)
    except zstandard.ZstdError as error:
        raise BadStream(at, str(error)) from error
