"""Who is let in, and whom we talk to."""

import pytest
from msgspec.structs import replace

from roost.errors import Denied, Invalid, RoostError
from roost.rpc.handshake import check_hello, check_welcome
from roost.rpc.limits import Limits
from tests.unit.rpc.stage import HELLO, welcome_of

WELCOME = welcome_of(Limits())


@pytest.mark.parametrize("role", ["client", "node", "admin"])
def test_who_belongs_to_the_cluster_comes_in(role: str) -> None:
    check_hello(replace(HELLO, role=role), WELCOME)
    check_welcome(WELCOME, replace(HELLO, role=role))


def test_a_tool_may_ask_which_cluster_this_is() -> None:
    hello = replace(HELLO, role="admin", cluster="")

    check_hello(hello, WELCOME)
    check_welcome(WELCOME, hello)


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [
        ({"version": 2}, Invalid, "version 2"),
        ({"cluster": "other"}, Denied, "of cluster 'test', not of 'other'"),
        ({"cluster": ""}, Denied, "not of ''"),
        ({"cluster": "other", "role": "admin"}, Denied, "not of 'other'"),
        ({"role": "king"}, Denied, "'king' is not known"),
    ],
)
def test_a_stranger_is_refused(
    change: dict[str, object], kind: type[RoostError], reason: str
) -> None:
    with pytest.raises(kind, match=reason):
        check_hello(replace(HELLO, **change), WELCOME)


def test_a_server_of_another_version_or_cluster_is_not_talked_to() -> None:
    with pytest.raises(Invalid, match="version 3"):
        check_welcome(replace(WELCOME, version=3), HELLO)
    with pytest.raises(Denied, match="belongs to cluster 'other'"):
        check_welcome(replace(WELCOME, cluster="other"), HELLO)
