"""Codecs: how a channel's messages become bytes, and bytes messages again.

A codec is two functions. Encoding refuses what decoding would not give back, with `Invalid`;
decoding refuses bytes that are not of its kind, with `Invalid` too, because a checksum has
already shown that the bytes are the ones that were sent: it is the codec that does not fit.
Pickle is left out on purpose: reading a message must never run code.
"""

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

import msgspec

from roost.errors import Invalid

T = TypeVar("T")

CodecName = Literal["bytes", "str", "json", "msgpack"]


class Codec(Generic[T]):
    """Turns messages into bytes and back; `None` for a function means the bytes themselves."""

    __slots__ = ("decode", "encode", "name")

    def __init__(
        self,
        name: str,
        *,
        encode: Callable[[T], bytes] | None = None,
        decode: Callable[[bytes], T] | None = None,
    ) -> None:
        self.name = name
        self.encode = encode
        self.decode = decode


def _encode_text(message: str) -> bytes:
    if not isinstance(message, str):
        raise Invalid(f"this channel sends str, not {type(message).__name__}")
    try:
        return message.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"the message cannot be written as UTF-8: {error}") from error


def _decode_text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"the message is not UTF-8 text: {error}; read it as bytes") from error


def _checked_encode(name: str, encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def checked(message: object) -> bytes:
        try:
            return encode(message)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Invalid(f"the message cannot be written as {name}: {error}") from error

    return checked


def _checked_decode(name: str, decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def checked(payload: bytes) -> object:
        try:
            return decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Invalid(f"the message is not {name}: {error}; read it as bytes") from error

    return checked


BYTES: Codec[bytes] = Codec("bytes")
"""The bytes themselves: nothing is copied or checked on the way."""

TEXT: Codec[str] = Codec("str", encode=_encode_text, decode=_decode_text)
"""Text as UTF-8."""


def json_codec(kind: type[T] | Any = Any) -> Codec[T]:
    """Make a codec of JSON; with `kind`, messages are validated into it when received."""
    return Codec(
        "json",
        encode=_checked_encode("JSON", msgspec.json.Encoder().encode),
        decode=_checked_decode("JSON", msgspec.json.Decoder(kind).decode),
    )


def msgpack_codec(kind: type[T] | Any = Any) -> Codec[T]:
    """Make a codec of MessagePack; with `kind`, messages are validated into it when received."""
    return Codec(
        "msgpack",
        encode=_checked_encode("MessagePack", msgspec.msgpack.Encoder().encode),
        decode=_checked_decode("MessagePack", msgspec.msgpack.Decoder(kind).decode),
    )


def codec_named(name: object) -> Codec[Any]:
    """Find one of the codecs that come with Roost by its name; `Invalid` for anything else."""
    match name:
        case "bytes":
            return BYTES
        case "str":
            return TEXT
        case "json":
            return json_codec()
        case "msgpack":
            return msgpack_codec()
        case _:
            raise Invalid(f"codec={name!r}: choose bytes, str, json or msgpack, or pass a Codec")
