"""Compressed segments: what went in comes out, and nothing else ever does.

The streams of other programs are read, ours are read by other programs, and whatever is damaged,
cut off, added or claimed beyond reason is refused with the place, in bounded memory.
"""

import gzip
import hashlib
import io
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import cramjam
import google_crc32c
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roost.segments.compress import (
    PIECE_BYTES_MAX,
    BadStream,
    Method,
    compressor,
    decompress,
    method_byte,
    method_of,
)

METHODS: tuple[Method, ...] = ("snappy", "gzip", "zstd")
GOLDEN = Path(__file__).parents[2] / "golden" / "filechannel"

every_method = pytest.mark.parametrize("method", METHODS)


def noise(size: int) -> bytes:
    """Make bytes that do not compress, the same every time."""
    blocks = (hashlib.sha256(b"%d" % n).digest() for n in range(size // 32 + 1))
    return b"".join(blocks)[:size]


def frames(count: int) -> bytes:
    """Make what a segment holds: lengths, checksums and messages that look alike."""
    messages = [
        b'{"id": %d, "event": "click", "page": "/shop/%d"}' % (n, n % 7) for n in range(count)
    ]
    return b"".join(struct.pack(">II", len(m), zlib.crc32(m)) + m for m in messages)


SAMPLES = {"packed": frames(12), "noise": noise(300), "empty": b""}
every_sample = pytest.mark.parametrize("sample", SAMPLES)


def cut(whole: bytes, size: int) -> list[bytes]:
    return [whole[at : at + size] for at in range(0, len(whole), size)]


def pack(method: Method, *chunks: bytes) -> bytes:
    codec = compressor(method)
    return b"".join([codec.add(chunk) for chunk in chunks]) + codec.finish()


def unpack(method: Method, stream: bytes, size: int) -> bytes:
    return b"".join(decompress(method, [stream], size=size))


def until_refused(pieces: Iterator[bytes]) -> tuple[bytes, str]:
    """Take pieces until the stream is refused, which it must be; tell why it was."""
    taken: list[bytes] = []
    with pytest.raises(BadStream) as refused:
        taken.extend(pieces)
    return b"".join(taken), refused.value.reason


def outcome(method: Method, stream: bytes, size: int) -> bytes | None:
    """Unpack, or answer None for a stream that is refused."""
    try:
        return unpack(method, stream, size)
    except BadStream:
        return None


def snappy_chunk(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + len(content).to_bytes(3, "little") + content


def snappy_checksum(content: bytes) -> bytes:
    crc = google_crc32c.value(content)
    turned = (crc >> 15) | (crc & 0x7FFF) << 17
    return struct.pack("<I", (turned + 0xA282EAD8) % 2**32)


SNAPPY_BEGIN = b"\xff\x06\x00\x00sNaPpY"
HELLO = snappy_chunk(1, snappy_checksum(b"hello") + b"hello")


def gzip_header(flags: int, *, checksum_off: int = 0) -> bytes:
    """Make a header with all the optional parts that the flags name."""
    header = b"\x1f\x8b\x08" + bytes([flags]) + b"\x01\x02\x03\x04\x00\x03"
    header += struct.pack("<H", 5) + b"extra" if flags & 4 else b""
    header += b"a name\0" if flags & 8 else b""
    header += b"a comment\0" if flags & 16 else b""
    checksum = (zlib.crc32(header) + checksum_off) % 2**16
    return header + (struct.pack("<H", checksum) if flags & 2 else b"")


def gzip_body(content: bytes) -> bytes:
    trailer = struct.pack("<II", zlib.crc32(content), len(content))
    return zlib.compress(content, 9, -15) + trailer


def zstd_header(*, descriptor: int = 0x04, window: int = 0x48) -> bytes:
    """Begin a frame; as it stands, with a checksum and a window of 512 KiB."""
    return b"\x28\xb5\x2f\xfd" + bytes([descriptor, window])


def zstd_block(kind: int, length: int, content: bytes, *, last: bool = False) -> bytes:
    return (length << 3 | kind << 1 | last).to_bytes(3, "little") + content


# What goes in comes out.


@every_method
@given(content=st.binary(max_size=2000), repeats=st.integers(1, 200), data=st.data())
@settings(deadline=None, max_examples=60)
def test_any_bytes_in_any_pieces_come_out_as_they_went_in(
    method: Method, content: bytes, repeats: int, data: st.DataObject
) -> None:
    whole = content * repeats
    places = st.lists(st.integers(0, len(whole)), max_size=8)
    cuts = [0, *sorted(data.draw(places)), len(whole)]
    step = data.draw(st.integers(1, 70_000))

    stream = pack(method, *[whole[at:before] for at, before in pairwise(cuts)])

    assert b"".join(decompress(method, cut(stream, step), size=len(whole))) == whole


@every_method
@every_sample
def test_a_stream_that_arrives_byte_by_byte_is_read(method: Method, sample: str) -> None:
    content = SAMPLES[sample]

    stream = pack(method, content)

    assert b"".join(decompress(method, cut(stream, 1), size=len(content))) == content


@every_method
def test_a_stream_may_arrive_with_empty_chunks_between(method: Method) -> None:
    stream = pack(method, b"", b"hello", b"")

    chunks = [b"", stream[:7], b"", b"", stream[7:], b""]

    assert b"".join(decompress(method, chunks, size=5)) == b"hello"


@every_method
def test_a_view_of_a_window_is_packed_like_bytes(method: Method) -> None:
    content = frames(4000)
    codec = compressor(method)

    stream = codec.add(memoryview(content)[:100_001])
    stream += codec.add(memoryview(content)[100_001:]) + codec.finish()

    assert unpack(method, stream, len(content)) == content


@every_method
@pytest.mark.parametrize("content", [bytes(1_000_000), noise(1_000_000)], ids=["zeros", "noise"])
def test_pieces_are_small_however_large_the_whole(method: Method, content: bytes) -> None:
    stream = pack(method, content)

    pieces = list(decompress(method, [stream], size=len(content)))

    assert all(0 < len(piece) <= PIECE_BYTES_MAX for piece in pieces)
    assert b"".join(pieces) == content


@every_method
def test_noise_hardly_grows(method: Method) -> None:
    content = noise(500_000)

    assert len(pack(method, content)) < len(content) * 1.001


@every_method
def test_the_same_bytes_make_the_same_stream_at_any_time(method: Method) -> None:
    assert pack(method, frames(10)) == pack(method, frames(10))


def test_each_method_has_its_byte() -> None:
    assert [method_byte(method) for method in METHODS] == [0, 1, 2]
    assert [method_of(byte) for byte in range(3)] == list(METHODS)


def test_an_unknown_method_byte_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"method 3 .*'snappy': 0, 'gzip': 1, 'zstd': 2"):
        method_of(3)


# Other programs.


@pytest.mark.parametrize("name", ["snappy", "gzip"])
@pytest.mark.parametrize("number", [0, 1])
def test_segments_of_the_published_original_are_read(name: str, number: int) -> None:
    segment = (GOLDEN / name / f"segment.{number}.z").read_bytes()
    _, begin, end, byte = struct.unpack(">IQQB43x", segment[:64])

    content = b"".join(decompress(method_of(byte), cut(segment[64:], 100), size=end - begin))

    at = 0
    while at < len(content):
        length, checksum = struct.unpack_from(">II", content, at)
        message = content[at + 8 : at + 8 + length]
        assert zlib.crc32(message) == checksum
        assert message.startswith(b"message-")
        at += 8 + length
    assert method_of(byte) == name


def test_gzip_of_ours_is_read_by_the_standard_library() -> None:
    stream = pack("gzip", frames(3000))

    assert gzip.decompress(stream) == frames(3000)
    assert stream[4:8] == bytes(4), "the header carries a time"


def test_gzip_of_the_standard_library_is_read() -> None:
    file = io.BytesIO()
    with gzip.GzipFile("a name", "wb", fileobj=file) as writer:
        writer.write(frames(3000))

    assert unpack("gzip", file.getvalue(), len(frames(3000))) == frames(3000)


def test_zstd_of_ours_is_one_frame_with_a_checksum() -> None:
    stream = pack("zstd", frames(3000))

    codec = zstandard.ZstdDecompressor()
    frame = zstandard.get_frame_parameters(stream)
    assert codec.decompress(stream, max_output_size=1 << 20) == frames(3000)
    assert frame.has_checksum
    assert frame.window_size <= 1 << 23


@pytest.mark.parametrize("level", [-5, 1, 3, 19])
def test_zstd_of_the_library_in_one_call_is_read(level: int) -> None:
    codec = zstandard.ZstdCompressor(level=level, write_checksum=True)

    stream = codec.compress(frames(3000))

    assert unpack("zstd", stream, len(frames(3000))) == frames(3000)


def test_snappy_is_read_both_ways_by_another_writer_of_the_framing_format() -> None:
    content = frames(2000) + noise(70_000)

    ours, theirs = pack("snappy", content), bytes(cramjam.snappy.compress(content))

    assert bytes(cramjam.snappy.decompress(ours)) == content
    assert unpack("snappy", theirs, len(content)) == content


# Damage.


@every_method
@every_sample
def test_a_flipped_byte_is_refused_or_changes_nothing(method: Method, sample: str) -> None:
    content = SAMPLES[sample]
    stream = pack(method, content)

    # Harmless are the time in a gzip header, the size of a zstd window, and bits that fill up.
    for at in range(len(stream)):
        for flip in (0x01, 0x04, 0x80, 0xFF):
            damaged = stream[:at] + bytes([stream[at] ^ flip]) + stream[at + 1 :]
            assert outcome(method, damaged, len(content)) in (None, content), (at, flip)


@every_method
@pytest.mark.parametrize("sample", ["packed", "noise"])
def test_a_stream_cut_anywhere_is_refused(method: Method, sample: str) -> None:
    content = SAMPLES[sample]
    stream = pack(method, content)

    for before in range(len(stream)):
        assert outcome(method, stream[:before], len(content)) is None, before


@every_method
@pytest.mark.parametrize("tail", [b"\0", bytes(64), b"garbage, and plenty of it"])
def test_bytes_behind_the_end_are_refused(method: Method, tail: bytes) -> None:
    stream = pack(method, b"hello")

    with pytest.raises(BadStream) as refused:
        unpack(method, stream + tail, 5)

    assert len(stream) <= refused.value.offset <= len(stream + tail)


@every_method
@pytest.mark.parametrize("size", [0, 1, 99_999])
def test_more_bytes_than_the_header_said_are_refused(method: Method, size: int) -> None:
    stream = pack(method, noise(100_000))

    taken, reason = until_refused(decompress(method, [stream], size=size))

    assert len(taken) <= size
    assert reason == f"it holds more than {size} bytes"


@every_method
@pytest.mark.parametrize("missing", [1, 1 << 62])
def test_fewer_bytes_than_the_header_said_are_refused(method: Method, missing: int) -> None:
    stream = pack(method, noise(100_000))

    taken, reason = until_refused(decompress(method, [stream], size=100_000 + missing))

    assert len(taken) < 100_000
    assert reason == f"it holds {missing} bytes less than {100_000 + missing}"


@every_method
def test_who_has_all_bytes_has_the_right_ones(method: Method) -> None:
    content = noise(1_000_000)
    stream = pack(method, content)
    damaged = stream[:-1] + bytes([stream[-1] ^ 1])

    taken, _ = until_refused(decompress(method, cut(damaged, 4096), size=len(content)))

    assert 0 < len(taken) < len(content)


@every_method
@given(stream=st.binary(max_size=300))
@example(stream=b"")
@settings(deadline=None, max_examples=300)
def test_anything_at_all_is_unpacked_or_refused(method: Method, stream: bytes) -> None:
    beginning = pack(method, b"hello " * 30)[:12]

    for whole in (stream, beginning + stream):
        assert len(outcome(method, whole, 180) or b"") in (0, 180)


@every_method
@given(data=st.data())
@settings(deadline=None, max_examples=200)
def test_bytes_replaced_removed_or_doubled_never_give_other_bytes(
    method: Method, data: st.DataObject
) -> None:
    content = frames(40)
    stream = pack(method, content)
    at = data.draw(st.integers(0, len(stream)))
    before = data.draw(st.integers(at, min(len(stream), at + 20)))
    middle = data.draw(st.binary(max_size=20) | st.just(stream[at:before] * 2))

    damaged = stream[:at] + middle + stream[before:]

    assert outcome(method, damaged, len(content)) in (None, content)


def test_the_error_says_where_the_damaged_chunk_begins() -> None:
    stream = SNAPPY_BEGIN + HELLO + HELLO.replace(b"hello", b"jello")

    with pytest.raises(BadStream, match="byte 23: the checksum") as refused:
        unpack("snappy", stream, 10)

    assert refused.value.offset == len(SNAPPY_BEGIN + HELLO)
    assert refused.value.reason == "the checksum of a snappy chunk does not match"


# Claims beyond reason.

BOUNDED = """
import itertools, resource, sys, zlib
from roost.segments.compress import BadStream, compressor, decompress

MIB = 1 << 20

def snappy():
    codec = compressor("snappy")
    yield codec.add(b"")
    chunk = codec.add(bytes(65536))
    # 16 MiB of padding, of which nothing needs to be kept.
    yield b"\\xfe\\xff\\xff\\xff" + bytes(2 ** 24 - 1)
    yield from itertools.repeat(chunk * 16, 256)

def gzip():
    codec = compressor("gzip")
    member = codec.add(bytes(64 * MIB)) + codec.finish()
    yield from itertools.repeat(member, 4)

def zstd():
    yield b"\\x28\\xb5\\x2f\\xfd\\x04\\x48" + b"\\x02\\x00\\x10\\x00" * 2047
    yield b"\\x03\\x00\\x10\\x00" + bytes(4)

method, size = sys.argv[1], int(sys.argv[2])
chunks = list(itertools.islice(vars()[method](), 5000))
assert sum(map(len, chunks)) < 40 * MIB
taken = 0
with open("/proc/self/statm") as statm:
    now = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 12 * MIB,) * 2)
try:
    for piece in decompress(method, chunks, size=size):
        taken += len(piece)
except BadStream as refused:
    print(taken, refused.reason)
"""


def unpack_bounded(method: Method, size: int) -> tuple[int, str]:
    """Unpack 256 MiB with 12 MiB to spare; tell how many bytes came, and why no more."""
    command = [sys.executable, "-c", BOUNDED, method, str(size)]
    run = subprocess.run(command, capture_output=True, check=True, text=True)
    taken, reason = run.stdout.split(maxsplit=1)
    return int(taken), reason.strip()


@every_method
def test_a_bomb_stops_at_the_size_that_was_expected(method: Method) -> None:
    taken, reason = unpack_bounded(method, 1 << 20)

    assert taken <= 1 << 20
    assert reason == "it holds more than 1048576 bytes"


@every_method
def test_a_bomb_of_the_expected_size_passes_through_little_memory(method: Method) -> None:
    taken, _ = unpack_bounded(method, 1 << 40)

    assert 255 << 20 < taken <= 256 << 20


def test_a_snappy_chunk_longer_than_any_can_be_is_refused_by_its_header() -> None:
    for kind in (0, 1):
        claim = bytes([kind]) + (76_495).to_bytes(3, "little")

        with pytest.raises(BadStream, match="byte 10: a snappy chunk claims 76495 bytes"):
            unpack("snappy", SNAPPY_BEGIN + claim, 10)


def test_a_snappy_block_that_claims_too_much_is_refused_before_it_is_unpacked() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(65_537)))
    stream = SNAPPY_BEGIN + snappy_chunk(0, snappy_checksum(bytes(65_537)) + block)

    with pytest.raises(BadStream, match="a snappy block claims 65537 bytes"):
        unpack("snappy", stream, 65_537)


def test_a_zstd_window_that_is_too_large_is_refused() -> None:
    # An exponent of 14 and a mantissa of 1: 16 MiB and an eighth of it.
    with pytest.raises(BadStream, match="needs a window of 18874368 bytes"):
        unpack("zstd", zstd_header(window=14 << 3 | 1), 1)


# The snappy framing format.


def test_snappy_chunks_to_be_skipped_are_skipped_wherever_they_stand() -> None:
    skipped = snappy_chunk(0x80, b"x" * 100) + snappy_chunk(0xFD, b"") + snappy_chunk(0xFE, b"\0")

    stream = SNAPPY_BEGIN + skipped + HELLO + skipped

    assert b"".join(decompress("snappy", cut(stream, 9), size=5)) == b"hello"


def test_snappy_streams_laid_end_to_end_are_one() -> None:
    assert unpack("snappy", (SNAPPY_BEGIN + HELLO) * 2 + SNAPPY_BEGIN, 10) == b"hellohello"


def test_a_snappy_stream_without_a_byte_holds_nothing() -> None:
    assert unpack("snappy", b"", 0) == b""
    with pytest.raises(BadStream, match="byte 0: it holds 1 bytes less than 1"):
        unpack("snappy", b"", 1)


def test_a_snappy_chunk_may_hold_nothing() -> None:
    nothing = snappy_chunk(1, snappy_checksum(b"")) + snappy_chunk(0, snappy_checksum(b"") + b"\0")

    assert unpack("snappy", SNAPPY_BEGIN + nothing + HELLO, 5) == b"hello"


def test_a_snappy_block_that_grew_in_packing_is_read() -> None:
    content = noise(65_536)
    # As literals of 60 bytes, each behind its tag, after the length in seven bits a byte.
    packed = b"\x80\x80\x04" + b"".join(bytes([len(c) - 1 << 2]) + c for c in cut(content, 60))

    stream = SNAPPY_BEGIN + snappy_chunk(0, snappy_checksum(content) + packed)

    assert len(packed) > len(content)
    assert unpack("snappy", stream, len(content)) == content


def test_snappy_chunks_that_packing_hardly_shrinks_are_stored_as_they_are() -> None:
    stream = pack("snappy", frames(2000)[:65_536], noise(65_536))

    second = len(SNAPPY_BEGIN) + 4 + int.from_bytes(stream[11:14], "little")
    assert stream[10] == 0
    assert stream[second] == 1


@pytest.mark.parametrize("kind", [0x02, 0x7F])
def test_a_snappy_chunk_that_may_not_be_skipped_is_refused(kind: int) -> None:
    with pytest.raises(BadStream, match=f"of type 0x{kind:02x} are not known"):
        unpack("snappy", SNAPPY_BEGIN + snappy_chunk(kind, b"?") + HELLO, 5)


@pytest.mark.parametrize(
    "stream",
    [
        HELLO,
        snappy_chunk(0xFE, b"") + SNAPPY_BEGIN + HELLO,
        b"\xff\x06\x00\x00S2sTwO" + HELLO,
    ],
    ids=["no identifier", "padding first", "another format's"],
)
def test_a_snappy_stream_without_its_identifier_is_refused(stream: bytes) -> None:
    with pytest.raises(BadStream, match="does not begin as a snappy stream"):
        unpack("snappy", stream, 5)


@pytest.mark.parametrize("again", [b"\xff\x06\x00\x00sNaPpI", b"\xff\x05\x00\x00sNaPp"])
def test_a_damaged_identifier_in_the_middle_is_refused(again: bytes) -> None:
    with pytest.raises(BadStream, match="byte 23: a snappy stream identifier is damaged"):
        unpack("snappy", SNAPPY_BEGIN + HELLO + again + HELLO, 10)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"abc", "claims 3 bytes"),
        (snappy_checksum(b""), "corrupt input"),
        (snappy_checksum(b"abc") + b"\x03\x08ab", "corrupt input"),
        (snappy_checksum(b"abc") + b"\xff\xff\xff\xff\xff\xff", "corrupt input"),
    ],
    ids=["no checksum", "no block", "short block", "endless length"],
)
def test_a_malformed_snappy_chunk_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(BadStream, match=reason):
        unpack("snappy", SNAPPY_BEGIN + snappy_chunk(0, content), 3)


def test_a_plain_snappy_chunk_may_not_hold_more_than_a_block() -> None:
    content = noise(65_537)

    with pytest.raises(BadStream, match="holds 65537 bytes"):
        unpack("snappy", SNAPPY_BEGIN + snappy_chunk(1, snappy_checksum(content) + content), 65_537)


# gzip.


def test_gzip_members_one_after_the_other_are_one_stream() -> None:
    members = pack("gzip", b"hello ") + pack("gzip", b"") + gzip.compress(b"world")

    for size in (1, 7, len(members)):
        assert b"".join(decompress("gzip", cut(members, size), size=11)) == b"hello world"


@pytest.mark.parametrize("flags", range(32))
def test_every_optional_part_of_a_gzip_header_is_read_in_any_pieces(flags: int) -> None:
    stream = gzip_header(flags) + gzip_body(b"hello")

    for size in (1, 11, 100):
        assert b"".join(decompress("gzip", cut(stream, size), size=5)) == b"hello"


def test_a_gzip_header_that_its_own_checksum_contradicts_is_refused() -> None:
    with pytest.raises(BadStream, match="checksum of a gzip header"):
        unpack("gzip", gzip_header(0x1E, checksum_off=1) + gzip_body(b"hello"), 5)


def test_a_gzip_header_with_reserved_flags_is_refused() -> None:
    with pytest.raises(BadStream, match="reserved flags"):
        unpack("gzip", gzip_header(0x20) + gzip_body(b"hello"), 5)


def test_a_gzip_name_without_an_end_is_refused_early() -> None:
    stream = b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 100_000

    with pytest.raises(BadStream, match="byte 523: a name in a gzip header is too long"):
        unpack("gzip", stream, 5)


@pytest.mark.parametrize(
    "trailer",
    [
        struct.pack("<II", zlib.crc32(b"hello") ^ 1, 5),
        struct.pack("<II", zlib.crc32(b"hello"), 6),
    ],
    ids=["checksum", "length"],
)
def test_a_gzip_member_that_its_trailer_contradicts_is_refused(trailer: bytes) -> None:
    stream = pack("gzip", b"hello")

    with pytest.raises(BadStream, match="does not match") as refused:
        unpack("gzip", stream[:-8] + trailer, 5)

    assert refused.value.offset == len(stream) - 8


# zstd.


def test_a_zstd_frame_without_a_checksum_is_refused() -> None:
    codec = zstandard.ZstdCompressor(write_checksum=False)

    with pytest.raises(BadStream, match="carries no checksum"):
        unpack("zstd", codec.compress(b"hello"), 5)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (b"\x50\x2a\x4d\x18\x00\x00\x00\x00", b"", "does not begin as a zstd frame"),
        (b"", b"\x50\x2a\x4d\x18\x00\x00\x00\x00", "bytes follow the end"),
        (b"", pack("zstd", b""), "bytes follow the end"),
    ],
    ids=["skippable first", "skippable last", "second frame"],
)
def test_zstd_is_one_frame_and_nothing_else(before: bytes, after: bytes, reason: str) -> None:
    with pytest.raises(BadStream, match=reason):
        unpack("zstd", before + pack("zstd", b"hello") + after, 5)


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (zstd_block(3, 1, b"x"), "wrong header"),
        (zstd_block(0, PIECE_BYTES_MAX + 1, b"x"), "wrong header"),
        (zstd_block(1, PIECE_BYTES_MAX + 1, b"x"), "wrong header"),
        (zstd_block(2, 4, b"\xff\xff\xff\xff"), "zstd"),
    ],
    ids=["reserved kind", "too long", "too often", "nonsense"],
)
def test_a_zstd_block_that_cannot_be_is_refused_at_its_place(block: bytes, reason: str) -> None:
    good = zstd_block(0, 5, b"hello")

    with pytest.raises(BadStream, match=f"byte 14: .*{reason}"):
        unpack("zstd", zstd_header() + good + block + bytes(10), 10)


def test_a_zstd_frame_that_its_checksum_contradicts_is_refused() -> None:
    stream = zstd_header() + zstd_block(0, 5, b"hello", last=True) + bytes(4)

    with pytest.raises(BadStream, match=r"byte 6: .*checksum"):
        unpack("zstd", stream, 5)


def test_a_zstd_header_with_a_reserved_bit_is_refused() -> None:
    with pytest.raises(BadStream, match="byte 0: "):
        unpack("zstd", zstd_header(descriptor=0x0C) + bytes(20), 5)
