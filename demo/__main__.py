"""Shows Roost at work: a file channel, nodes, replicated ledgers, killed processes, damage.

Everything here uses real files and real processes, in a folder that is removed at the end.
"""

import tempfile
from pathlib import Path

from demo import damage, fanout, killed, ledger, node, simulated, throughput

PARTS = (throughput, fanout, killed, damage, node, ledger, simulated)


def main() -> None:
    """Play all parts, one after the other."""
    print(
        "Roost: a durable log in Python. Today: a crash-safe queue in a folder, storage nodes, and"
    )
    print("ledgers that are replicated over them.\n")
    with tempfile.TemporaryDirectory(prefix="roost-demo-") as folder:
        for number, part in enumerate(PARTS, 1):
            title = (part.__doc__ or "").splitlines()[0].rstrip(".")
            print(f"{number}. {title}")
            for line in part.play(Path(folder) / part.__name__.rpartition(".")[2]):
                print(f"   {line}", flush=True)
            print()
    print("Next: README.md for five minutes of use, `roost --help` for the shell.")


if __name__ == "__main__":
    main()
