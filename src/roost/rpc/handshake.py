"""Who may talk to whom: what the two ends of a connection make of each other's first words.

Pure. The promise: no request of a stranger is looked at, and no request is sent to one. A stranger
is who speaks another version, or belongs to another cluster. Credentials travel and are not
looked at yet; whoever looks at them will do it here.
"""

from roost.errors import Denied, Invalid
from roost.wire.messages import PROTOCOL_VERSION, ROLES, Hello, Welcome


def check_hello(hello: Hello, ours: Welcome) -> None:
    """Refuse, with the reason, who must not come in."""
    _check_version(hello.version)
    if hello.role not in ROLES:
        raise Denied(f"role {hello.role!r} is not known here; there are {', '.join(ROLES)}")
    # People with tools may ask any node which cluster it belongs to.
    if hello.cluster != ours.cluster and (hello.cluster or hello.role != "admin"):
        raise Denied(f"{_whose(ours)}, not of {hello.cluster!r}: look at the address")


def check_welcome(welcome: Welcome, ours: Hello) -> None:
    """Refuse, with the reason, to talk to who has answered."""
    _check_version(welcome.version)
    if ours.cluster not in ("", welcome.cluster):
        raise Denied(
            f"node {welcome.node} belongs to cluster {welcome.cluster!r}, not to "
            f"{ours.cluster!r}: look at the address"
        )


def _whose(ours: Welcome) -> str:
    if not ours.cluster:  # a server of metadata, which holds the name of its cluster as any other
        return f"this serves {ours.node}, and is no node of any cluster"
    return f"this is node {ours.node} of cluster {ours.cluster!r}"


def _check_version(version: int) -> None:
    if version != PROTOCOL_VERSION:
        raise Invalid(
            f"the peer speaks version {version} of the protocol, and this is version "
            f"{PROTOCOL_VERSION}: update the older of the two"
        )
