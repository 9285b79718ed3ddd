"""How messages stand one behind the other in a pipe: cutting them out, and writing them down.

Pure, and bytes all the way: nothing that comes from a pipe or goes into one is decoded, but for
text that is shown to people. The promise: what one command writes, `send` with the same options
reads back, message for message.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from roost.errors import Invalid

PREFIX_BYTES: Final = 4
"""The length before each message, big endian, where messages may hold any bytes."""

Write = Callable[[int, bytes], bytes]
"""Turns a position and a payload into what is written for it."""

_ESCAPES: Final = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "\\": "\\"}


def delimiter_bytes(text: str) -> bytes:
    r"""Read a delimiter as it is typed: \n \r \t \0 \\ and \xHH stand for their byte."""

    def unescaped(found: re.Match[str]) -> bytes:
        code = found[1]
        return bytes((int(code[1:], 16),)) if code[0] == "x" else _ESCAPES[code].encode()

    parts, at = [], 0
    for found in re.finditer(r"\\(x[0-9a-fA-F]{2}|[0nrt\\])", text):
        parts += [text[at : found.start()].encode(errors="surrogateescape"), unescaped(found)]
        at = found.end()
    parts.append(text[at:].encode(errors="surrogateescape"))
    delimiter = b"".join(parts)
    if not delimiter:
        raise Invalid("the delimiter is empty; give at least one byte")
    return delimiter


# Cutting. Each yields what is whole, in batches, before it complains of what is not.


def delimited(chunks: Iterable[bytes], delimiter: bytes, bytes_max: int) -> Iterator[list[bytes]]:
    """Cut at a delimiter; what stands behind the last one is a message, too."""
    rest = bytearray()
    for chunk in chunks:
        searched = max(0, len(rest) - len(delimiter) + 1)
        rest += chunk
        if rest.find(delimiter, searched) >= 0:
            *whole, last = bytes(rest).split(delimiter)
            rest = bytearray(last)
            yield from _fitting(whole, bytes_max)
        if len(rest) > bytes_max:
            raise _too_long(bytes_max)
    if rest:
        yield [bytes(rest)]


def prefixed(chunks: Iterable[bytes], bytes_max: int) -> Iterator[list[bytes]]:
    """Cut by the length before each message."""
    rest = bytearray()
    for chunk in chunks:
        rest += chunk
        batch: list[bytes] = []
        at = 0
        while (stop := _stop(rest, at)) and stop - at - PREFIX_BYTES <= bytes_max:
            if stop > len(rest):
                break
            batch.append(bytes(rest[at + PREFIX_BYTES : stop]))
            at = stop
        yield batch
        if stop - at - PREFIX_BYTES > bytes_max:
            raise _too_long(bytes_max)
        del rest[:at]
    if rest:
        raise Invalid(f"the input ends in the middle of a message, {len(rest)} bytes into it")


def _stop(rest: bytearray, at: int) -> int:
    """Say where the message ends whose length stands at `at`; 0 if that is not whole."""
    if len(rest) - at < PREFIX_BYTES:
        return 0
    return at + PREFIX_BYTES + int.from_bytes(rest[at : at + PREFIX_BYTES], "big")


def whole(chunks: Iterable[bytes], bytes_max: int) -> Iterator[list[bytes]]:
    """Take everything as one message."""
    everything = bytearray()
    for chunk in chunks:
        everything += chunk
        if len(everything) > bytes_max:
            raise _too_long(bytes_max)
    yield [bytes(everything)]


def _fitting(messages: list[bytes], bytes_max: int) -> Iterator[list[bytes]]:
    too_long = next((at for at, m in enumerate(messages) if len(m) > bytes_max), None)
    yield messages[:too_long]
    if too_long is not None:
        raise _too_long(bytes_max)


def _too_long(bytes_max: int) -> Invalid:
    return Invalid(
        f"a message of the input has more than {bytes_max} bytes; allow for it with "
        "--message-bytes-max, or look at how the input is cut into messages"
    )


# Writing


def raw(delimiter: bytes) -> Write:
    """Write the payload and a delimiter."""
    return lambda _, payload: payload + delimiter


def with_prefix(_: int, payload: bytes) -> bytes:
    """Write the payload behind its length."""
    return len(payload).to_bytes(PREFIX_BYTES, "big") + payload


def json_line(position: int, payload: bytes) -> bytes:
    """Write a line of JSON, with the payload as text if it is UTF-8 and in base64 if not."""
    return json_object({"position": position}, payload)


def json_object(fields: dict[str, object], payload: bytes) -> bytes:
    """Write a line of JSON from some fields and a payload."""
    try:
        carried = {"text": payload.decode()}
    except UnicodeDecodeError:
        carried = {"base64": b64encode(payload).decode()}
    return msgspec.json.encode({**fields, **carried}) + b"\n"


def shown(payload: bytes) -> str:
    """Show a payload on one line of a terminal, whatever it holds."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return "base64:" + b64encode(payload).decode()
    return json.dumps(text, ensure_ascii=not text.isprintable())
