"""`roost channel`: send to a channel, receive from it, and look at it beside its owner.

`send` and `recv` open the folder, which one process does at a time. `tail`, `dump`, `stat` and
`verify` take no lock and change nothing, so that they work beside a running owner.
"""

import sys
from pathlib import Path
from typing import cast, get_args

import click
import msgspec

from roost.channel.channel import (
    COMPRESSIONS,
    LOCK_NAME,
    MESSAGE_BYTES_LIMIT,
    MESSAGE_BYTES_MAX,
    SEGMENT_BYTES,
)
from roost.channel.outline import outline
from roost.channel.verify import Verification
from roost.channel.view import Message
from roost.cli import framing
from roost.cli.ending import FAILED, TIMED_OUT, ends_well, epilog
from roost.cli.machine import clock, disk, progress, view, write_path
from roost.cli.options import (
    CHANNEL,
    START,
    delimiter_option,
    input_framing,
    output_framing,
    prefix_option,
    skip_option,
)
from roost.cli.pipes import Pipes
from roost.cli.receiving import Receiving, Wanted
from roost.cli.report import outline_text, verified_text
from roost.cli.sending import Sending
from roost.cli.viewing import Viewing
from roost.cli.waiting import Patience
from roost.host.examine import lock_holder
from roost.segments.kernel import crc32
from roost.types import Durability


@click.group(epilog=epilog())
def channel() -> None:
    """Send to a channel, receive from it, and look at it.

    PATH is the channel's folder. One process has it open at a time: send and recv. The others only
    read, and work beside it.
    """


def _say(text: str) -> None:
    click.echo(f"roost: {text}", err=True)


@channel.command(
    epilog=epilog(
        r"$ printf 'one\ntwo\n' | roost channel send inbox",
        "sent 2 messages; the channel ends at position 22",
    )
)
@CHANNEL
@click.argument("messages", nargs=-1)
@delimiter_option
@prefix_option
@click.option("--whole", is_flag=True, help="Take all of the input as one message.")
@click.option(
    "--durability",
    type=click.Choice(get_args(Durability)),
    default="fsync",
    show_default=True,
    help="When a message counts as sent: once an fsync has made it durable; or once the operating "
    "system has it, with an fsync now and then ('interval') or none ('os').",
)
@click.option(
    "--compression",
    type=click.Choice(COMPRESSIONS),
    help="How full segments are compressed. Left out, the folder keeps what it has.",
)
@click.option(
    "--segment-bytes",
    type=click.IntRange(1),
    default=SEGMENT_BYTES,
    show_default=True,
    help="Begin a new segment when one holds so much.",
)
@click.option(
    "--message-bytes-max",
    type=click.IntRange(1, MESSAGE_BYTES_LIMIT),
    default=MESSAGE_BYTES_MAX,
    show_default=True,
    help="Refuse longer messages.",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0),
    default=0.0,
    help="Wait so many seconds for another process to let go of the folder.",
)
@ends_well
def send(
    *,
    path: Path,
    messages: tuple[str, ...],
    delimiter: str | None,
    length_prefixed: bool,
    whole: bool,
    durability: str,
    compression: str | None,
    segment_bytes: int,
    message_bytes_max: int,
    wait_s: float,
) -> None:
    """Send MESSAGES, or the lines of the input.

    The folder is made if there is none. What is read together is sent together, and shares one
    fsync. Empty messages cannot be sent: they are skipped and counted. The number sent and the
    end of the channel are told on stderr, whatever ends the command.
    """
    cut = input_framing(delimiter, length_prefixed=length_prefixed, whole=whole)
    if messages and (whole or length_prefixed or delimiter is not None):
        raise click.UsageError("MESSAGES are sent as they are given: leave out how to cut them.")
    with Pipes() as pipes:
        sending = Sending(
            path,
            durability=cast("Durability", durability),
            compression=compression,
            segment_bytes=segment_bytes,
            message_bytes_max=message_bytes_max,
        )
        given = [message.encode(errors="surrogateescape") for message in messages]
        batches = [given] if given else cut(pipes.chunks(), message_bytes_max)
        sending.run(
            batches,
            patience=Patience(clock(), pipes, timeout_s=wait_s),
            progress=progress("sending"),
            all_bytes=0 if given else pipes.input_bytes(),
        )


@channel.command(epilog=epilog("$ roost channel recv inbox --receiver billing --count 1", "one"))
@CHANNEL
@click.option("--receiver", default="default", show_default=True, help="Take messages as this one.")
@click.option("--count", "-n", type=click.IntRange(1), help="Take at most so many.")
@click.option("--follow", "-f", is_flag=True, help="Wait for more, for ever.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    help="Wait for more, until none came for so many seconds.",
)
@click.option(
    "--start",
    type=START,
    default="head",
    show_default=True,
    help="Where a receiver begins that is new here: head, tail, or a position.",
)
@click.option("--format", "form", type=click.Choice(["raw", "json"]), default="raw")
@delimiter_option
@prefix_option
@skip_option
@ends_well
def recv(
    *,
    path: Path,
    receiver: str,
    count: int | None,
    follow: bool,
    timeout_s: float | None,
    start: int | str,
    form: str,
    delimiter: str | None,
    length_prefixed: bool,
    skip_corrupt: bool,
) -> None:
    """Take messages as a named receiver, and write them to the output.

    Takes what is there and ends, unless it is told to wait. A message is acknowledged once it was
    written, so that none is lost if the output breaks; what was written last may then come twice.
    While it waits, it lets others send: the folder is open only while messages are taken.
    """
    write = output_framing(form, delimiter, length_prefixed=length_prefixed)
    if follow and timeout_s is not None:
        raise click.UsageError("--follow waits for ever: leave it or --timeout out.")
    wanted = Wanted(receiver=receiver, start=start, count_max=count, skip_corrupt=skip_corrupt)
    with Pipes() as pipes:
        receiving = Receiving(path, wanted, pipes=pipes, write=write, say=_say)
        waits = follow or timeout_s is not None
        patience = Patience(clock(), pipes, timeout_s=timeout_s) if waits else None
        if not receiving.run(patience):
            sys.exit(TIMED_OUT)


@channel.command(epilog=epilog("$ roost channel tail inbox --count 1", "two"))
@CHANNEL
@click.option("--count", "-n", type=click.IntRange(0), default=10, show_default=True)
@click.option("--follow", "-f", is_flag=True, help="Go on with what is sent from now on.")
@click.option("--format", "form", type=click.Choice(["raw", "json"]), default="raw")
@delimiter_option
@prefix_option
@skip_option
@ends_well
def tail(
    *,
    path: Path,
    count: int,
    follow: bool,
    form: str,
    delimiter: str | None,
    length_prefixed: bool,
    skip_corrupt: bool,
) -> None:
    """Show the last messages; no receiver moves.

    Works beside the process that has the channel open.
    """
    write = output_framing(form, delimiter, length_prefixed=length_prefixed)
    with Pipes() as pipes, pipes.waiting(), view(path) as seen:
        seen.go_back(count)
        viewing = Viewing(seen, pipes, skip_corrupt=skip_corrupt, say=_say)
        viewing.write_all(lambda message: write(message.begin, message.payload))
        patience = Patience(clock(), pipes, timeout_s=None)
        while follow and patience.until(seen.refresh):
            viewing.write_all(lambda message: write(message.begin, message.payload))


@channel.command(epilog=epilog("$ roost channel dump inbox --from 11", '11 0 11ca8a66 3 "two"'))
@CHANNEL
@click.option("--from", "start", type=START, help="Begin here: head, tail, or a position.")
@click.option("--receiver", help="Begin where this receiver stands.")
@click.option("--to", "before", type=click.IntRange(0), help="End before this position.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@skip_option
@ends_well
def dump(
    *,
    path: Path,
    start: int | str | None,
    receiver: str | None,
    before: int | None,
    form: str,
    skip_corrupt: bool,
) -> None:
    """List messages: position, segment, checksum, length, and what they carry.

    A payload that is not UTF-8 is shown in base64. Works beside the process that has the channel
    open, and ends with what was there when it began.
    """
    if start is not None and receiver is not None:
        raise click.UsageError("Begin at a position or at a receiver: leave one of them out.")
    with Pipes() as pipes, pipes.waiting(), view(path) as seen, progress("reading") as line:
        if receiver is not None:
            seen.go_to_receiver(receiver)
        else:
            seen.go("head" if start is None else start)
        viewing = Viewing(seen, pipes, skip_corrupt=skip_corrupt, say=_say)
        last = seen.visible if before is None else min(before, seen.visible)
        viewing.write_all(_dumped_json if form == "json" else _dumped, before=last, progress=line)


def _dumped(message: Message) -> bytes:
    payload = message.payload
    return (
        f"{message.begin} {message.segment} {crc32(payload):08x} {len(payload)} "
        f"{framing.shown(payload)}\n"
    ).encode()


def _dumped_json(message: Message) -> bytes:
    payload = message.payload
    return framing.json_object(
        {
            "position": message.begin,
            "segment": message.segment,
            "crc32": f"{crc32(payload):08x}",
            "size": len(payload),
        },
        payload,
    )


@channel.command(epilog=epilog("$ roost channel stat inbox"))
@CHANNEL
@click.option("--json", "as_json", is_flag=True, help="Write one object of JSON.")
@ends_well
def stat(*, path: Path, as_json: bool) -> None:
    """Tell how a channel stands: mode, positions, receivers, segments, salvage.

    Works beside the process that has the channel open, and names it.
    """
    with Pipes() as pipes, pipes.waiting(), view(path) as seen:
        told = outline(
            disk(), seen, write_path=write_path(path), owner=lock_holder(path / LOCK_NAME)
        )
        pipes.write(msgspec.json.encode(told) if as_json else outline_text(told).encode())
        pipes.write(b"\n")


@channel.command(epilog=epilog("$ roost channel verify inbox"))
@CHANNEL
@ends_well
def verify(*, path: Path) -> None:
    """Read everything, and compute every checksum; nothing is changed.

    Exits with 1 if a message cannot be read or the file `offset` does not fit, each told with file
    and offset. What a crash leaves and the next open puts right is only noted. Works beside the
    process that has the channel open.
    """
    with Pipes() as pipes, pipes.waiting(), view(path) as seen, progress("verifying") as line:
        verified = Verification(disk(), seen, progress=line.at).run()
        pipes.write(f"{verified_text(verified)}\n".encode())
    if verified.problems:
        sys.exit(FAILED)
