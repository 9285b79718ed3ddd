"""Which value counts, and that whoever gave one that does not is told where and why."""

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.config.node import NodeConfig, is_loopback
from roost.config.reading import MISSING, NODE, choose, fields_of, node_config
from roost.errors import Invalid
from roost.host.net import Address


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "roost.toml"


def sources(
    flags: dict[str, object], environ: dict[str, str], file: Path | None = None
) -> dict[str, tuple[Any, str]]:
    """Tell of each field that was given its value and where."""
    chosen = choose(flags, environ, file)
    return {
        c.field.name: (c.value, c.source) for c in chosen if c.source not in ("default", MISSING)
    }


def test_a_node_needs_its_folder_and_nothing_else() -> None:
    config = node_config(choose({"data": "/srv"}, {}))

    assert config == NodeConfig(data=Path("/srv"))


def test_the_defaults_are_allowed_and_fit_together() -> None:
    NodeConfig(data=Path("/srv")).validate()

    for field in fields_of(NODE):
        assert field.required or field.about.kind.parse(_given(field.default)) == field.default


def _given(value: object) -> object:
    if value is None:
        return "off"
    return str(value) if isinstance(value, Address) else value


def test_a_flag_comes_before_a_variable_before_the_file_before_the_default(file: Path) -> None:
    file.write_text('[node]\ndrain_s = 3\nmemory_bytes_max = "3MiB"\nsync = "never"\n')
    environ = {"ROOST_NODE_DRAIN_S": "2", "ROOST_NODE_MEMORY_BYTES_MAX": "2MiB", "HOME": "/"}

    given = sources({"drain_s": "1"}, environ, file)

    assert given == {
        "drain_s": (1.0, "flag --drain-s"),
        "memory_bytes_max": (2 << 20, "variable ROOST_NODE_MEMORY_BYTES_MAX"),
        "sync": ("never", f"key node.sync of {file}"),
    }


def test_what_no_flag_and_no_variable_gives_is_left_to_the_file(file: Path) -> None:
    file.write_text("[node]\ninsecure = true\n")

    assert sources({"insecure": None}, {}, file) == {
        "insecure": (True, f"key node.insecure of {file}")
    }
    assert sources({"insecure": False}, {}, file) == {"insecure": (False, "flag --insecure")}


def test_a_variable_may_name_the_file(file: Path) -> None:
    file.write_text('[node]\ndata = "/srv"\n')
    other = file.with_name("other.toml")
    other.write_text('[node]\ndata = "/other"\n')
    environ = {"ROOST_NODE_CONFIG": str(file)}

    assert sources({}, environ) == {"data": (Path("/srv"), f"key node.data of {file}")}
    assert sources({}, environ, other)["data"][0] == Path("/other")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[node]\nmemory_max = 1\n", r"nobody knows 'memory_max'; .* memory_bytes_max$"),
        ("[nodes]\n", r"table or key of .*roost.toml: nobody knows 'nodes'; .* node$"),
        ("node = 1\n", r"node is a table"),
        ("[node\n", r"roost.toml is not TOML"),
        ("[node]\nsync = 1\n", r"sync = 1 \(key node.sync of .*roost.toml\) .*always, interval"),
        ("[node]\nsync = [1]\n", r"sync = \[1\] .* is not allowed"),
        ("[node]\ndrain_s = 1979-05-27\n", r"drain_s = 1979-05-27 .* is not allowed"),
        ("[node]\nflush_workers = true\n", r"flush_workers = true .* from 1 to 64"),
        ("x = 1 #" + "x" * (1 << 20), r"longer than 1048576 bytes"),
    ],
)
def test_a_file_that_is_not_understood_is_refused(file: Path, text: str, why: str) -> None:
    file.write_text(text)

    with pytest.raises(Invalid, match=why):
        choose({}, {}, file)


def test_a_file_that_cannot_be_read_is_named(file: Path) -> None:
    with pytest.raises(Invalid, match=r"roost.toml cannot be read: No such file"):
        choose({}, {}, file)
    with pytest.raises(Invalid, match=r"cannot be read: Is a directory"):
        choose({}, {"ROOST_NODE_CONFIG": str(file.parent)})
    file.write_bytes(b"\xff")
    with pytest.raises(Invalid, match=r"is not TOML"):
        choose({}, {}, file)


def test_a_variable_that_is_not_understood_is_refused() -> None:
    with pytest.raises(Invalid, match=r"nobody knows 'ROOST_NODE_LISTN'; .* ROOST_NODE_LISTEN$"):
        choose({}, {"ROOST_NODE_LISTN": "x"})
    with pytest.raises(Invalid, match=r"listen = 'x' \(variable ROOST_NODE_LISTEN\) .* host:port"):
        choose({}, {"ROOST_NODE_LISTEN": "x"})


def test_what_is_not_allowed_is_refused_even_if_it_does_not_count() -> None:
    with pytest.raises(Invalid, match="variable ROOST_NODE_DRAIN_S"):
        choose({"drain_s": "1"}, {"ROOST_NODE_DRAIN_S": "soon"})


def test_what_is_missing_is_asked_for_by_all_its_names() -> None:
    with pytest.raises(
        Invalid, match=r"data is not given; .*--data, ROOST_NODE_DATA, .*node\.data"
    ):
        node_config(choose({}, {}))


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"journal_bytes_max": 127 << 20}, ["journal_segment_bytes", "journal_bytes_max"]),
        ({"journal_segment_bytes": 16 << 20}, ["payload_bytes_max", "journal_segment_bytes"]),
        ({"memory_bytes_max": 1 << 20}, ["payload_bytes_max", "memory_bytes_max"]),
        ({"queued_bytes_max": 1 << 20}, ["payload_bytes_max", "queued_bytes_max"]),
        ({"connection_bytes_max": 1 << 20}, ["payload_bytes_max", "connection_bytes_max"]),
        ({"listen": Address("0.0.0.0", 1)}, ["listen"]),  # noqa: S104 (that is what is refused)
        ({"http": Address("node-1", 1)}, ["http"]),
    ],
)
def test_what_does_not_fit_together_is_refused_with_both_names_and_sources(
    changes: dict[str, Any], names: list[str]
) -> None:
    config = msgspec.structs.replace(NodeConfig(data=Path("/srv")), **changes)

    with pytest.raises(Invalid) as caught:
        config.validate({name: f"from {name}" for name in names})

    for name in names:
        assert f"{name} = " in str(caught.value)
        assert f"(from {name})" in str(caught.value)


def test_values_from_different_sources_are_looked_at_together() -> None:
    chosen = choose(
        {"data": "/srv", "journal_segment_bytes": "64MiB"},
        {"ROOST_NODE_JOURNAL_BYTES_MAX": "100MiB"},
    )

    with pytest.raises(Invalid) as caught:
        node_config(chosen)

    assert str(caught.value).startswith(
        "journal_segment_bytes = 64MiB (flag --journal-segment-bytes) and journal_bytes_max = "
        "100MiB (variable ROOST_NODE_JOURNAL_BYTES_MAX): the journal"
    )


def test_off_loopback_is_for_who_insists() -> None:
    config = NodeConfig(data=Path("/srv"), listen=Address("10.0.0.1", 1), http=None)

    with pytest.raises(Invalid, match="--insecure"):
        config.validate()
    msgspec.structs.replace(config, insecure=True).validate()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 (that is what is asked)
        ("::", False),
        ("::ffff:10.0.0.1", False),
        ("localhost.example.org", False),
        ("10.0.0.1", False),
        ("fe80::1%lo", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, *, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_every_field_says_what_it_is_for_and_has_names_of_its_own() -> None:
    fields = fields_of(NODE)

    for field in fields:
        assert field.about.text.endswith(".")
        assert field.about.kind.allowed
    names = itertools.chain.from_iterable((field.flag, field.variable) for field in fields)
    assert len({*names}) == 2 * len(fields)
