"""Metrics are plain integers until somebody looks; then they have names, meanings and labels."""

import re

import pytest

from roost.host.metrics import (
    ChannelMetrics,
    Group,
    JournalMetrics,
    NodeMetrics,
    Sample,
    collect,
    render_prometheus,
)

each_group = pytest.mark.parametrize("group", [ChannelMetrics, JournalMetrics, NodeMetrics])


def test_a_group_begins_at_zero_and_counts_like_any_integer() -> None:
    metrics = ChannelMetrics()

    metrics.syncs += 1
    metrics.syncs += 1
    metrics.sent_bytes += 100

    figures = {sample.name: sample.value for sample in collect(metrics)}
    assert figures.pop("channel_syncs") == 2
    assert figures.pop("channel_sent_bytes") == 100
    assert set(figures.values()) == {0}


@each_group
def test_a_group_takes_no_name_that_is_not_declared(group: type[Group]) -> None:
    assert not hasattr(group(), "__dict__")


@each_group
def test_every_metric_says_what_it_means(group: type[Group]) -> None:
    for sample in collect(group()):
        assert re.fullmatch(rf"{group.prefix}_[a-z_]+", sample.name)
        assert sample.meaning
        assert sample.kind in ("counter", "gauge")


def test_samples_of_one_name_stand_together_under_one_heading() -> None:
    one, other = ChannelMetrics(syncs=1), ChannelMetrics(syncs=2)
    samples = [*collect(one, channel="one"), *collect(other, channel="other")]

    text = render_prometheus(sample for sample in samples if sample.name == "channel_syncs")

    assert text == (
        "# HELP roost_channel_syncs_total syncs that made sent messages durable\n"
        "# TYPE roost_channel_syncs_total counter\n"
        'roost_channel_syncs_total{channel="one"} 1\n'
        'roost_channel_syncs_total{channel="other"} 2\n'
    )


def test_a_level_is_a_gauge_and_has_no_total() -> None:
    metrics = NodeMetrics(adds=3, ledgers=2)
    metrics.ledgers -= 1

    text = render_prometheus(
        sample for sample in collect(metrics) if sample.name in ("node_adds", "node_ledgers")
    )

    assert text == (
        "# HELP roost_node_adds_total entries that were stored\n"
        "# TYPE roost_node_adds_total counter\n"
        "roost_node_adds_total 3\n"
        "# HELP roost_node_ledgers ledgers on this node\n"
        "# TYPE roost_node_ledgers gauge\n"
        "roost_node_ledgers 1\n"
    )


def test_what_would_end_a_label_or_a_line_is_escaped() -> None:
    sample = Sample(
        name="odd",
        meaning='a\\b\nc "d"',
        labels={"path": 'C:\\"x"\ny', "mode": "os"},
        value=3,
    )

    assert render_prometheus([sample]) == (
        '# HELP roost_odd_total a\\\\b\\nc "d"\n'
        "# TYPE roost_odd_total counter\n"
        'roost_odd_total{path="C:\\\\\\"x\\"\\ny",mode="os"} 3\n'
    )


def test_a_sample_without_labels_has_no_braces() -> None:
    assert "roost_channel_rolls_total 0\n" in render_prometheus(collect(ChannelMetrics()))


def test_nothing_renders_as_nothing() -> None:
    assert render_prometheus([]) == ""
