"""What all tests share: the switches of the command line."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that makes the scenarios' expectations what they are now."""
    parser.addoption("--rewrite", action="store_true", help="write what the scenarios print now")
