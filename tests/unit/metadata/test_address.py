"""Where a cluster's metadata is: URLs that are read, and URLs that are refused."""

from pathlib import Path

import pytest

from roost.errors import Invalid
from roost.host.net import Address
from roost.metadata.address import EtcdAddress, FolderAddress, MetaAddress, parse_url


def test_each_scheme_names_its_store() -> None:
    assert parse_url("dir:///srv/meta") == FolderAddress(Path("/srv/meta"))
    assert parse_url("dir://meta data") == FolderAddress(Path("meta data"))
    assert parse_url("meta://127.0.0.1:4700") == MetaAddress(Address("127.0.0.1", 4700))
    assert parse_url("etcd://a:1") == EtcdAddress(endpoints=("a:1",), prefix="roost/")


def test_an_etcd_has_endpoints_a_prefix_and_options() -> None:
    found = parse_url(
        "etcd://a:1,b:2,[::1]:3/x/prod/?ca=/c.pem&cert=/m.pem&key=/k.pem&user=u&password-file=/p"
    )

    assert found == EtcdAddress(
        endpoints=("a:1", "b:2", "[::1]:3"),
        prefix="x/prod/",
        tls=True,
        ca=Path("/c.pem"),
        certificate=Path("/m.pem"),
        key=Path("/k.pem"),
        user="u",
        password_file=Path("/p"),
    )
    assert parse_url("etcd://a:1?tls=true") == EtcdAddress(
        endpoints=("a:1",), prefix="roost/", tls=True
    )


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "no place for metadata"),
        ("meta:127.0.0.1:1", "no place for metadata"),
        ("dir://", "no place for metadata"),
        ("http://a:1", "no place for metadata"),
        ("meta://a", "give host:port"),
        ("etcd://a:1,b", "give host:port"),
        ("etcd://", "no place"),
        ("etcd:///x", "give host:port"),
        ("etcd://a:1?pasword=x", "'pasword' is no option"),
        ("etcd://a:1?tls=maybe", "tls is true or false"),
        ("etcd://a:1?cert=x", "cert and its key go together"),
        ("etcd://a:1?user=x", "user and password-file go together"),
    ],
)
def test_what_is_no_place_is_refused(url: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        parse_url(url)
