"""The README's example of replicated ledgers runs as it stands, on a cluster of its own."""

import re
from pathlib import Path

import pytest

from tests.cluster.ledgers import a_cluster, run

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_example_of_replicated_ledgers_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"^```py\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    shown = re.findall(r"b'[a-z]+'", example)

    with a_cluster(tmp_path, 3) as real:
        run(real.up)
        code = example.replace("meta://127.0.0.1:4700", real.url)
        assert code != example
        exec(compile(code, str(README), "exec"), {})  # noqa: S102 (that is what is tested)

    assert capsys.readouterr().out.split() == shown == ["b'first'", "b'second'", "b'third'"]
