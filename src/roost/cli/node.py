"""`roost node`: run a storage node, make its folder, and check what is in it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from roost.cli.draining import decommission, forget
from roost.cli.ending import FAILED, ends_well, epilog, misused
from roost.cli.machine import clock, disk, holder, progress, rng
from roost.cli.pipes import Pipes
from roost.cli.settings import configured, options_of
from roost.cli.words import counted, size
from roost.config.reading import NODE
from roost.node.verify import Problem, size_of, verify_all

FOLDER: Final = click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="The node's folder.",
)


@click.group(
    invoke_without_command=True,
    epilog=epilog(
        "$ roost node format --data /srv/node --cluster-id prod --node-id alice",
        "$ roost node --data /srv/node --listen 127.0.0.1:4710",
    ),
)
@options_of(NODE)
@click.pass_context
@ends_well
def node(context: click.Context, /, **options: Any) -> None:
    """Run a storage node in a folder that `roost node format` made, until SIGTERM or SIGINT.

    It then takes no more, answers what is under way, brings everything into files and exits with
    0; a second signal ends it at once. Events go to stderr; `listening` tells where it takes
    requests. Each option has a variable, such as ROOST_NODE_LISTEN, and a key in the table [node]
    of the file that --config or ROOST_NODE_CONFIG names; `roost config explain` shows them all.
    """
    if context.invoked_subcommand is not None:
        if any(given is not None for given in options.values()):
            raise click.UsageError(f"Put options behind {context.invoked_subcommand!r}.")
        return
    with misused():
        config = configured(options)
    from roost.cli.running import run

    run(config)


@node.command(
    "format",
    epilog=epilog(
        "$ roost node format --data /srv/node --cluster-id prod --node-id alice",
        "formatted /srv/node for node alice of cluster prod, uuid 6513270e-...",
    ),
)
@FOLDER
@click.option("--cluster-id", required=True, help="The cluster that it belongs to, for ever.")
@click.option("--node-id", required=True, help="Its name in that cluster.")
@click.option(
    "--force",
    is_flag=True,
    help="Format anew what was formatted and never used. Data is never removed.",
)
@ends_well
def format_folder(*, data: Path, cluster_id: str, node_id: str, force: bool) -> None:
    """Make a node's folder of a new or empty one.

    A folder in which anything lies is refused, with --force or without.
    """
    from roost.node.identity import format_node

    identity = format_node(
        disk(),
        data,
        cluster=cluster_id,
        node=node_id,
        rng=rng(),
        wall=clock().wall(),
        force=force,
    )
    click.echo(
        f"formatted {data} for node {identity.node} of cluster {identity.cluster}, uuid "
        f"{identity.uuid_text}"
    )


@node.command(epilog=epilog("$ roost node verify --data /srv/node"))
@FOLDER
@ends_well
def verify(*, data: Path) -> None:
    """Read everything in a stopped node's folder, and compute every checksum.

    Nothing is changed. Exits with 1 if something that was durable cannot be read, each told with
    its file. What a crash leaves and the next start puts right is no problem.
    """
    from roost.node.identity import take

    machine = disk()
    _, lock = take(machine, data, holder=holder())
    try:
        with Pipes() as pipes, pipes.waiting(), progress("verifying") as line:
            all_bytes = size_of(machine, data)
            done = entries = problems = 0
            for checked in verify_all(machine, data):
                done += checked.bytes
                entries += checked.entries
                problems += len(checked.problems)
                pipes.write("".join(map(_problem_text, checked.problems)).encode())
                line.at(done, all_bytes)
            pipes.write(_verdict(entries, done, problems).encode())
    finally:
        lock.release()
    if problems:
        sys.exit(FAILED)


def _problem_text(problem: Problem) -> str:
    return ": ".join(_problem_parts(problem)) + "\n"


def _problem_parts(problem: Problem) -> Iterator[str]:
    yield "corrupt"
    yield problem.file + ("" if problem.offset is None else f" offset {problem.offset}")
    if problem.ledger is not None:
        entry = "" if problem.entry is None else f" entry {problem.entry}"
        yield f"ledger {problem.ledger}{entry}"
    yield problem.text


def _verdict(entries: int, done: int, problems: int) -> str:
    told = counted(problems, "problem") if problems else "all good"
    whole = "1 entry" if entries == 1 else f"{entries} entries"
    return f"{whole} in files, {size(done)} checked: {told}\n"


node.add_command(decommission)
node.add_command(forget)
