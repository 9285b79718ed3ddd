"""What all tests share: the switches of the command line, and how long properties are tried."""

import gc

import pytest
from hypothesis import settings

# The same examples in every run, few of them in `make check`; `--hypothesis-profile=long` looks
# for new ones.
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("long", max_examples=20_000, stateful_step_count=100, deadline=None)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that makes the scenarios' expectations what they are now."""
    parser.addoption("--rewrite", action="store_true", help="write what the scenarios print now")


@pytest.fixture(autouse=True, scope="module")
def _leave_to_the_collector_what_is_new() -> None:
    """Keep a look for garbage from looking at all that the tests before have loaded and cached.

    The simulator collects after each of its runs, and so does whoever looks for what was leaked.
    """
    gc.collect()
    gc.freeze()
