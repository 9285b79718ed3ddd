"""Progress is told while somebody looks, and only of work that is long."""

from roost.cli.progress import EVERY_S, QUIET_S, Progress
from roost.cli.words import counted, size


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time_s = 100.0

    def now(self) -> float:
        return self.time_s

    def wall(self) -> float:
        return self.time_s

    def boot(self) -> str:
        return "run 0"


def test_quick_work_says_nothing() -> None:
    clock, said = Hand(), list[str]()

    with Progress(clock, said.append, shown=True, doing="reading") as progress:
        clock.time_s += QUIET_S / 2
        progress.at(500, 1000)

    assert said == []


def test_long_work_says_how_far_it_is_and_wipes_it_out() -> None:
    clock, said = Hand(), list[str]()

    with Progress(clock, said.append, shown=True, doing="reading") as progress:
        clock.time_s += 2.0
        progress.at(512, 2048)
        progress.at(600, 2048)  # too soon after the first
        clock.time_s += EVERY_S
        progress.at(8)

    assert said == [
        "\rreading: 25 %, 512 B, 256 B/s",
        "\rreading: 8 B, 3 B/s          ",
        "\r                   \r",
    ]


def test_nothing_is_said_where_nobody_looks() -> None:
    clock, said = Hand(), list[str]()

    with Progress(clock, said.append, shown=False, doing="reading") as progress:
        clock.time_s += 10.0
        progress.at(512, 2048)

    assert said == []


def test_numbers_are_written_as_people_read_them() -> None:
    assert [size(count) for count in (0, 1023, 1024, 3 << 20)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "3.0 MiB",
    ]
    assert [counted(count, "byte") for count in (0, 1, 2)] == ["0 bytes", "1 byte", "2 bytes"]
