"""The scenario player, tried on a machine of its own: a purse that knows its coins."""

import msgspec
import pytest

from roost.errors import Invalid
from tests.scenarios.player import play, read, write

STORY = """\
# A purse gives what it has.

# What goes in comes out.
put 2 3 owner=ann
take 4
----
Put coins=2 owner=ann
Put coins=3 owner=ann
1 left

take 2
----
Invalid: 1 left
"""


class Put(msgspec.Struct, frozen=True):
    """Coins went in."""

    coins: int
    owner: str


class Purse:
    """A stage with one invariant."""

    def __init__(self) -> None:
        self._coins = 0
        self._checks = 0

    def check(self) -> None:
        self._checks += 1
        assert self._coins != 13, "an unlucky purse"

    def put(self, *coins: int, owner: str) -> list[Put]:
        self._coins += sum(coins)
        return [Put(coins=coin, owner=owner) for coin in coins]

    def take(self, coins: int) -> str:
        if coins > self._coins:
            raise Invalid(f"{self._coins} left")
        self._coins -= coins
        return f"{self._coins} left"

    def checks(self) -> int:
        return self._checks

    def drop(self) -> None:
        self._coins = 0


def test_a_story_that_holds_is_played_back_as_it_stands() -> None:
    steps = read(STORY)

    assert play(steps, Purse()) == steps


def test_what_is_read_is_written_back_unchanged() -> None:
    assert write(read(STORY)) == STORY


def test_a_story_that_no_longer_holds_is_rewritten_with_what_happens_now() -> None:
    steps = read(STORY.replace("take 4", "take 1"))

    assert write(play(steps, Purse())) == STORY.replace("take 4", "take 1").replace(
        "1 left\n\n", "4 left\n\n"
    ).replace("Invalid: 1 left", "2 left")


def test_a_command_that_answers_nothing_leaves_nothing_behind_the_line() -> None:
    assert write(play(read("drop\n----\nsomething\n"), Purse())) == "drop\n----\n"


def test_every_command_is_followed_by_a_check() -> None:
    assert play(read("drop\ndrop\nchecks\n----\n"), Purse())[0].answer == ("2",)


def test_a_broken_invariant_fails_the_story() -> None:
    with pytest.raises(AssertionError, match="unlucky"):
        play(read("put 13 owner=ann\n----\n"), Purse())


def test_a_verb_that_the_stage_does_not_know_is_named() -> None:
    with pytest.raises(AssertionError, match="Purse knows no 'steal'"):
        play(read("steal 1\n----\n"), Purse())


def test_a_word_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        play(read("take all\n----\n"), Purse())


def test_a_line_outside_of_a_step_is_refused() -> None:
    with pytest.raises(AssertionError, match="'take 1' is neither"):
        read("# A forgotten line.\ntake 1\n")
