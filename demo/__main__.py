"""Shows Roost at work: a file channel, a storage node, killed processes, a damaged disk.

Everything here uses real files and real processes, in a folder that is removed at the end.
"""

import tempfile
from pathlib import Path

from demo import damage, fanout, killed, node, simulated, throughput

PARTS = (throughput, fanout, killed, damage, node, simulated)


def main() -> None:
    """Play all parts, one after the other."""
    print("Roost: a durable log in Python. Today: a crash-safe queue in a folder, and the storage")
    print("node that replicated ledgers will stand on.\n")
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
