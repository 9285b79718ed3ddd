"""Opens the metadata store that a URL names."""

from pathlib import Path
from typing import Final

from roost.errors import Invalid
from roost.host.disk import Disk
from roost.host.log import Log
from roost.host.seams import Seams
from roost.metadata.address import EtcdAddress, FolderAddress, MetaAddress, parse_url
from roost.metadata.keeper import Keeper
from roost.metadata.local import LocalStore
from roost.metadata.remote import RemoteStore
from roost.metadata.store import CALL_S, MetadataStore

SECRET_BYTES_MAX: Final = 1 << 20
"""No certificate or password is longer."""


async def open_store(
    url: str, *, seams: Seams, log: Log, holder: str, timeout_s: float = CALL_S
) -> MetadataStore:
    """Open it; whoever opens it closes it. `holder` says who we are to whom a lock is in the way.

    A served store need not answer yet; an etcd must, within `timeout_s`.
    """
    address = parse_url(url)
    match address:
        case FolderAddress(folder):
            keeper = await Keeper.open(
                folder, seams=seams, log=log, holder=holder, keep_leases=False
            )
            return LocalStore(keeper, clock=seams.clock, owned=True)
        case MetaAddress(where):
            return RemoteStore(seams.net, where, clock=seams.clock, name=holder)
        case EtcdAddress():
            return await _open_etcd(address, seams=seams, timeout_s=timeout_s)


async def _open_etcd(address: EtcdAddress, *, seams: Seams, timeout_s: float) -> MetadataStore:
    try:
        from roost.metadata.etcd import EtcdStore  # noqa: PLC0415  gRPC is there for etcd alone
        from roost.metadata.etcd_channels import Credentials  # noqa: PLC0415  likewise
    except ImportError as error:
        raise Invalid(
            f"etcd:// needs gRPC, which is not installed ({error}): pip install 'roost[etcd]'"
        ) from error
    disk = seams.disk
    password = b"" if address.password_file is None else _read(disk, address.password_file)
    credentials = Credentials(
        tls=address.tls,
        ca=None if address.ca is None else _read(disk, address.ca),
        certificate=None if address.certificate is None else _read(disk, address.certificate),
        key=None if address.key is None else _read(disk, address.key),
        user=address.user,
        password=password.decode(errors="replace").rstrip("\r\n"),
    )
    return await EtcdStore.open(
        address.endpoints,
        address.prefix,
        clock=seams.clock,
        credentials=credentials,
        timeout_s=timeout_s,
    )


def _read(disk: Disk, path: Path) -> bytes:
    try:
        file = disk.open(path, writable=False)
        try:
            return file.read_at(0, SECRET_BYTES_MAX)
        finally:
            file.close()
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror or error}") from error
