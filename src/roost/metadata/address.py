"""Where a cluster's metadata is, as one URL.

    etcd://host:port,host:port/prefix      an etcd, and what all keys are below
    meta://host:port                       a store that `roost meta` serves on this machine
    dir://path                             the same store, in this process

Pure. An etcd's URL may have options behind a `?`, joined by `&`: `tls=true`, `ca=FILE`,
`cert=FILE`, `key=FILE` (each of which means TLS), `user=NAME` and `password-file=FILE`. A password
itself stands in no URL: they end up in logs and lists of processes.
"""

from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from roost.errors import Invalid
from roost.host.net import Address

ETCD_PREFIX: Final = "roost"
"""What keys are below where a URL does not say."""

_ETCD_OPTIONS: Final = ("tls", "ca", "cert", "key", "user", "password-file")


class EtcdAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An etcd, and how to get in."""

    endpoints: tuple[str, ...]
    prefix: str
    """Ends with a slash."""

    tls: bool = False
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    user: str = ""
    password_file: Path | None = None


class MetaAddress(msgspec.Struct, frozen=True):
    """A store that another process serves."""

    address: Address


class FolderAddress(msgspec.Struct, frozen=True):
    """A store in a folder, for this process alone."""

    folder: Path


MetadataAddress = EtcdAddress | MetaAddress | FolderAddress


def parse_url(url: str) -> MetadataAddress:
    """Read a URL; `Invalid` says what is wrong with it."""
    scheme, separator, rest = url.partition("://")
    if separator and rest:
        if scheme == "dir":
            return FolderAddress(Path(rest))
        if scheme == "meta":
            return MetaAddress(Address.parse(rest))
        if scheme == "etcd":
            return _etcd(url)
    raise Invalid(
        f"{url!r} is no place for metadata: give etcd://host:port,host:port/prefix, "
        "meta://host:port or dir://path"
    )


def _etcd(url: str) -> EtcdAddress:
    parts = urlsplit(url)
    endpoints = tuple(str(Address.parse(each)) for each in parts.netloc.split(","))
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in _ETCD_OPTIONS:
            raise Invalid(f"{url!r}: {name!r} is no option; there are {', '.join(_ETCD_OPTIONS)}")
    if options.get("tls", "true") not in ("true", "false"):
        raise Invalid(f"{url!r}: tls is true or false")
    files = {name: Path(options[name]) for name in ("ca", "cert", "key") if name in options}
    if ("cert" in files) != ("key" in files):
        raise Invalid(f"{url!r}: a client's cert and its key go together")
    if ("user" in options) != ("password-file" in options):
        raise Invalid(f"{url!r}: user and password-file go together")
    return EtcdAddress(
        endpoints=endpoints,
        prefix=f"{parts.path.strip('/') or ETCD_PREFIX}/",
        tls=bool(files) or options.get("tls") == "true",
        ca=files.get("ca"),
        certificate=files.get("cert"),
        key=files.get("key"),
        user=options.get("user", ""),
        password_file=Path(options["password-file"]) if "password-file" in options else None,
    )
