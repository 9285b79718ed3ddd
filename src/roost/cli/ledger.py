"""`roost ledger`: make, write, read, end, repair and delete replicated ledgers."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click
import msgspec

from roost.cli import framing
from roost.cli.ending import FAILED, TIMED_OUT, ends_well, epilog, misused
from roost.cli.ledger_report import copies_text, document_text, explained, listing
from roost.cli.machine import progress
from roost.cli.options import delimiter_option, input_framing, output_framing, prefix_option
from roost.cli.pipes import Pipes
from roost.config.values import A_CLUSTER_OR_OFF
from roost.errors import RoostError
from roost.ledger.append import AppendSettings

if TYPE_CHECKING:
    from roost.blocking.cluster import Cluster

URL: Final = "etcd://10.0.0.5:2379/prod"
OPEN_S: Final = 10.0
ENTRY_BYTES_MAX: Final = AppendSettings().payload_bytes_max

CLUSTER: Final = click.option(
    "--cluster",
    "url",
    metavar="URL",
    required=True,
    help=f"Where the metadata is: {A_CLUSTER_OR_OFF.allowed.removesuffix('; or off')}.",
)
LEDGER: Final = click.argument("ledger", type=click.IntRange(0))
JSON: Final = click.option("--json", "as_json", is_flag=True, help="Write JSON.")
TIMEOUT: Final = click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0), default=60.0, show_default=True
)
FROM: Final = click.option("--from", "first", type=click.IntRange(0), default=0, help="Begin here.")
FORMAT: Final = click.option("--format", "form", type=click.Choice(["raw", "json"]), default="raw")


@click.group(epilog=epilog())
def ledger() -> None:
    """Make, write, read, end, repair and delete replicated ledgers.

    A ledger is written once, by one writer, and then closed. One whose writer is gone is open
    until it is recovered.
    """


def quorum_options(command: Callable[..., None]) -> Callable[..., None]:
    """Take how a new ledger is replicated."""
    for name, default, text in (
        ("--ack", 2, "Copies before an entry is acknowledged."),
        ("--write", 3, "Copies of each entry."),
        ("--ensemble", 3, "Nodes that it is spread over."),
    ):
        command = click.option(
            name, type=click.IntRange(1), default=default, show_default=True, help=text
        )(command)
    return command


@contextmanager
def opened(url: str) -> Iterator["Cluster"]:
    """Open a cluster, and close it whatever happens."""
    from roost.blocking.cluster import connect
    from roost.metadata.address import parse_url

    with misused():
        parse_url(url)
    with connect(url, timeout_s=OPEN_S) as cluster:
        yield cluster


@ledger.command(epilog=epilog(f"$ roost ledger create --cluster {URL}", "7"))
@CLUSTER
@quorum_options
@ends_well
def create(*, url: str, ensemble: int, write: int, ack: int) -> None:
    """Make a ledger that nobody has written to yet, and write its id."""
    from roost.metadata.ledgers import Quorum

    with Pipes() as pipes, opened(url) as cluster:
        writer = cluster.create(quorum=Quorum(ensemble, write, ack))
        writer.abandon()
        pipes.write(b"%d\n" % writer.ledger)


@ledger.command(
    epilog=epilog(
        rf"$ printf 'one\ntwo\n' | roost ledger append --cluster {URL}",
        "7",
        "appended 2 entries to ledger 7, which is closed",
    )
)
@CLUSTER
@click.argument("ledger", type=click.IntRange(0), required=False)
@quorum_options
@delimiter_option
@prefix_option
@click.option("--whole", is_flag=True, help="Take all of the input as one entry.")
@ends_well
def append(
    *,
    url: str,
    ledger: int | None,
    ensemble: int,
    write: int,
    ack: int,
    delimiter: str | None,
    length_prefixed: bool,
    whole: bool,
) -> None:
    """Append the lines of the input, each as one entry, and close the ledger.

    That is a new ledger, or one that `create` made and that nobody has written to. Its id is
    written to the output first; how many entries are durable is told on stderr, whatever ends the
    command. Where that is an error the ledger stays open: recover it.
    """
    from roost.metadata.ledgers import Quorum

    cut = input_framing(delimiter, length_prefixed=length_prefixed, whole=whole)
    with Pipes() as pipes, opened(url) as cluster:
        quorum = Quorum(ensemble, write, ack)
        writer = cluster.create(quorum=quorum) if ledger is None else cluster.claim(ledger)
        pipes.write(b"%d\n" % writer.ledger)
        appended, done, state = 0, 0, "open: recover it"
        try:
            with writer, progress("appending") as line:
                for batch in cut(pipes.chunks(), ENTRY_BYTES_MAX):
                    appended += len(writer.append_many(batch))
                    done += sum(map(len, batch)) + len(batch)
                    line.at(done, pipes.input_bytes())
            state = "closed"
        finally:
            told = "1 entry" if appended == 1 else f"{appended} entries"
            click.echo(f"appended {told} to ledger {writer.ledger}, which is {state}", err=True)


@ledger.command(
    "list", epilog=epilog(f"$ roost ledger list --cluster {URL}", "LEDGER  STATE   ENTRIES  NODES")
)
@CLUSTER
@JSON
@ends_well
def list_ledgers(*, url: str, as_json: bool) -> None:
    """List all ledgers, in the order of their ids."""
    with Pipes() as pipes, pipes.waiting(), opened(url) as cluster:
        documents = cluster.ledgers()
        if as_json:
            lines = [msgspec.json.encode(each) + b"\n" for each in documents]
        else:
            lines = [f"{listing(documents)}\n".encode()]
        pipes.write(b"".join(lines))


@ledger.command(epilog=epilog(f"$ roost ledger describe --cluster {URL} 7"))
@CLUSTER
@LEDGER
@JSON
@ends_well
def describe(*, url: str, ledger: int, as_json: bool) -> None:
    """Tell what the metadata says of a ledger: state, quorum, fragments, who misses something."""
    with Pipes() as pipes, pipes.waiting(), opened(url) as cluster:
        document = cluster.describe(ledger)
        text = msgspec.json.encode(document) if as_json else document_text(document).encode()
        pipes.write(text + b"\n")


@ledger.command(epilog=epilog(f"$ roost ledger read --cluster {URL} 7", "one", "two"))
@CLUSTER
@LEDGER
@FROM
@FORMAT
@delimiter_option
@prefix_option
@ends_well
def read(
    *,
    url: str,
    ledger: int,
    first: int,
    form: str,
    delimiter: str | None,
    length_prefixed: bool,
) -> None:
    """Write a ledger's entries to the output, up to the last one that may be read now."""
    write = output_framing(form, delimiter, length_prefixed=length_prefixed)
    with Pipes() as pipes, pipes.waiting(), opened(url) as cluster, progress("reading") as line:
        reader, done = cluster.open(ledger), 0
        while first <= reader.upto:
            piece = reader.read(first)
            pipes.write(_framed(write, piece.first, piece.payloads))
            done += sum(map(len, piece.payloads))
            line.at(done)
            first = piece.before


@ledger.command(epilog=epilog(f"$ roost ledger tail --cluster {URL} 7 --count 1 --follow", "two"))
@CLUSTER
@LEDGER
@click.option("--count", "-n", type=click.IntRange(0), default=10, show_default=True)
@click.option("--follow", "-f", is_flag=True, help="Go on until the ledger is closed.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    help="With --follow: end when nothing came for so many seconds.",
)
@FORMAT
@delimiter_option
@prefix_option
@ends_well
def tail(
    *,
    url: str,
    ledger: int,
    count: int,
    follow: bool,
    timeout_s: float | None,
    form: str,
    delimiter: str | None,
    length_prefixed: bool,
) -> None:
    """Write the last entries, and follow: what comes is written as soon as it is confirmed.

    It changes nothing, and works beside the writer. Ends with the ledger.
    """
    write = output_framing(form, delimiter, length_prefixed=length_prefixed)
    with Pipes() as pipes, pipes.waiting(), opened(url) as cluster:
        reader = cluster.open(ledger)
        first = max(0, reader.upto + 1 - count)
        while True:
            while first <= reader.upto:
                piece = reader.read(first)
                pipes.write(_framed(write, piece.first, piece.payloads))
                first = piece.before
            if not follow or reader.closed:
                return
            if not reader.wait(first - 1, timeout_s=timeout_s or _LONG_S) and timeout_s is not None:
                sys.exit(TIMED_OUT)


_LONG_S: Final = 30.0


def _framed(write: framing.Write, first: int, payloads: tuple[bytes | memoryview, ...]) -> bytes:
    return b"".join(write(first + at, bytes(each)) for at, each in enumerate(payloads))


@ledger.command(epilog=epilog(f"$ roost ledger recover --cluster {URL} 7"))
@CLUSTER
@LEDGER
@TIMEOUT
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Close it even where too few nodes are left to know what was acknowledged: asks twice.",
)
@JSON
@ends_well
def recover(*, url: str, ledger: int, timeout_s: float, accept_loss: bool, as_json: bool) -> None:
    """Stop a ledger's writer for good, and close the ledger behind its last entry.

    What was acknowledged stays. If too few nodes answer to know that, nothing is decided, and
    this can be tried again when nodes are back.
    """
    with Pipes() as pipes, opened(url) as cluster:
        if accept_loss:
            _ask_twice(ledger)
        with pipes.waiting():
            document = cluster.recover(ledger, accept_loss=accept_loss, timeout_s=timeout_s)
        text = msgspec.json.encode(document) if as_json else document_text(document).encode()
        pipes.write(text + b"\n")


def _ask_twice(ledger: int) -> None:
    click.echo(
        f"Entries of ledger {ledger} that were acknowledged may be given up for good: all that is "
        "on nodes alone which do not answer now. If they come back, what they have is not taken.",
        err=True,
    )
    click.confirm("Is it certain that these nodes never come back?", abort=True, err=True)
    typed = click.prompt(f"Type the id of the ledger to close it ({ledger})", err=True)
    if typed.strip() != str(ledger):
        raise click.Abort


@ledger.command(epilog=epilog(f"$ roost ledger explain --cluster {URL} 7 --entry 41"))
@CLUSTER
@LEDGER
@click.option("--entry", type=click.IntRange(0), help="Of this entry; else of the end.")
@ends_well
def explain(*, url: str, ledger: int, entry: int | None) -> None:
    """Tell why a ledger ends where it ends, and who has what.

    That is what its recovery has noted, and what the nodes answer now of the last entry and of
    the one behind it, or of the one that is asked for: why it was kept, or cut.
    """
    with Pipes() as pipes, pipes.waiting(), opened(url) as cluster:
        document = cluster.describe(ledger)
        if entry is not None:
            wanted = [entry]
        else:
            last = cluster.open(ledger).upto if document.last is None else document.last
            wanted = [each for each in (last, last + 1) if each >= 0]
        said = {each: cluster.ask(ledger, each) for each in wanted}
        pipes.write(f"{explained(document, said)}\n".encode())


@ledger.command(epilog=epilog(f"$ roost ledger repair --cluster {URL} 7 --gone carol"))
@CLUSTER
@LEDGER
@click.option("--gone", multiple=True, help="A node that never comes back; may be repeated.")
@JSON
@ends_well
def repair(*, url: str, ledger: int, gone: tuple[str, ...], as_json: bool) -> None:
    """Give a closed ledger the copies that it lacks, and mend those that do not hold.

    Nodes that are gone are replaced by others; all copies are read and checked. Exits with 1 if
    something is left to do.
    """
    with Pipes() as pipes, pipes.waiting(), opened(url) as cluster:
        complete = cluster.repair(ledger, gone=gone)
        copies = cluster.mend(ledger)
        text = msgspec.json.encode(copies) if as_json else copies_text(copies).encode()
        pipes.write(text + b"\n")
    if not (complete and all(each.whole for each in copies)):
        sys.exit(FAILED)


@ledger.command(epilog=epilog(f"$ roost ledger delete --cluster {URL} 7 --yes"))
@CLUSTER
@LEDGER
@click.option("--yes", is_flag=True, help="Do not ask.")
@ends_well
def delete(*, url: str, ledger: int, yes: bool) -> None:
    """Delete a ledger for good; names the nodes that could not be told: ask again then."""
    with Pipes() as pipes, opened(url) as cluster:
        if not yes:
            click.confirm(f"Delete ledger {ledger} for good?", abort=True, err=True)
        with pipes.waiting():
            left = cluster.delete(ledger)
        if left:
            raise RoostError(f"ledger {ledger} is deleted, but not told: {', '.join(left)}")
