"""Every transcript in this folder, played on the stage that its name begins with.

If one fails, run `pytest tests/scenarios --rewrite` and read the difference.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios.channel_stages import Acks, Marks
from tests.scenarios.journal_stages import Commits, Folder, Syncs
from tests.scenarios.ledger_stages import Taker, Writer
from tests.scenarios.node_stages import Node
from tests.scenarios.player import Stage, play, read, write
from tests.scenarios.segments_stages import Bytes

STAGES: dict[str, Callable[[], Stage]] = {
    "channel_acks": Acks,
    "channel_offset": Marks,
    "journal_commit": Commits,
    "journal_recovery": Folder,
    "journal_syncs": Syncs,
    "ledger_append": Writer,
    "ledger_recover": Taker,
    "node_": Node,
    "segments_survey": Bytes,
}

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_transcript_says_what_happens(transcript: Path, pytestconfig: pytest.Config) -> None:
    text = transcript.read_text()
    stage = next(STAGES[prefix] for prefix in STAGES if transcript.name.startswith(prefix))

    played = write(play(read(text), stage()))

    if pytestconfig.getoption("--rewrite"):
        transcript.write_text(played)
    else:
        assert played == text
