"""`roost config explain` tells all that can be told to a node, and what would be."""

import tomllib
from pathlib import Path

import pytest

from roost.config.node import NodeConfig
from roost.config.reading import NODE, choose, fields_of, node_config
from tests.unit.cli.commands import roost


def test_every_field_is_explained() -> None:
    ran = roost("config", "explain")

    text = ran.out.decode()
    assert ran.code == 0
    for field in fields_of(NODE):
        assert field.flag in text
        assert field.variable in text
        assert field.about.text.split(".")[0][:40] in text
    assert "# data =   # not given, and needed" in text


def test_each_value_is_shown_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "roost.toml"
    file.write_text("[node]\ndrain_s = 2.5\n")

    ran = roost("config", "explain", "--config", file, "--insecure", "--memory-bytes-max", "1GiB")

    lines = ran.out.decode().splitlines()
    assert f"drain_s = 2.5  # by key node.drain_s of {file}" in lines
    assert "insecure = true  # by flag --insecure" in lines
    assert 'memory_bytes_max = "1GiB"  # by flag --memory-bytes-max' in lines
    assert 'sync = "always"  # default' in lines


def test_an_explanation_is_a_file_that_says_the_same(tmp_path: Path) -> None:
    options = (
        *(
            "--data",
            'odd "name" \\ é\x7f',
            "--http",
            "off",
            "--listen",
            "[::1]:0",
            "--sync",
            "never",
        ),
        *("--interval-s", "0.25", "--free-bytes-min", "1000", "--flush-workers", "3"),
    )
    explained = tmp_path / "explained.toml"

    explained.write_bytes(roost("config", "explain", *options).out)
    config = node_config(choose({}, {}, explained))

    assert config == NodeConfig(
        data=Path('odd "name" \\ é\x7f'),
        http=None,
        listen=config.listen,
        sync="never",
        interval_s=0.25,
        free_bytes_min=1000,
        flush_workers=3,
    )
    assert len(tomllib.loads(explained.read_text())["node"]) == len(fields_of(NODE))
    assert roost("config", "explain", "--config", explained).code == 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--sync", "often"], "sync = 'often' (flag --sync) is not allowed: give always"),
        (["--data", "x", "--journal-bytes-max", "1MiB"], "journal_bytes_max = 1MiB (flag"),
    ],
)
def test_what_a_node_would_refuse_is_refused(options: list[str], why: str) -> None:
    ran = roost("config", "explain", *options)

    assert ran.code == 2
    assert why in ran.err
    assert len(ran.err.splitlines()) == 1
