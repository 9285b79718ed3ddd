"""A process that writes one ledger until it is killed.

    python -m tests.cluster.ledger_writer URL FILE

The file's first line is the ledger's id; each entry's follows once it is acknowledged.
"""

import sys
from pathlib import Path

from roost.types import Epoch
from tests.cluster.ledgers import Load, opened, run


async def write(url: str, noted: Path) -> None:
    """Append for ever."""
    cluster = await opened(url)
    writer = await cluster.ledgers.create(epoch=Epoch(1))
    await Load(writer, noted=noted).run()


if __name__ == "__main__":
    run(lambda: write(sys.argv[1], Path(sys.argv[2])))
