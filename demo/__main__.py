"""Shows the file channel at work: sending, fan-out, a killed process, a damaged disk.

Everything here uses the public interface and real files, in a folder that is removed at the end.
"""

import tempfile
from pathlib import Path

from demo import damage, fanout, killed, simulated, throughput

PARTS = (throughput, fanout, killed, damage, simulated)


def main() -> None:
    """Play all parts, one after the other."""
    print("Roost: a durable log in Python. Today: a crash-safe queue in a folder.\n")
    with tempfile.TemporaryDirectory(prefix="roost-demo-") as folder:
        for number, part in enumerate(PARTS, 1):
            title = (part.__doc__ or "").splitlines()[0].rstrip(".")
            print(f"{number}. {title}")
            for line in part.play(Path(folder) / part.__name__.rpartition(".")[2]):
                print(f"   {line}", flush=True)
            print()
    print("Next: README.md for five minutes of use, `roost channel --help` for the shell.")


if __name__ == "__main__":
    main()
