"""The way to an etcd: its endpoints, of which one is asked at a time, and who we are to them."""

from collections.abc import Sequence
from typing import Any, Final

import grpc
import grpc.aio
import msgspec

from roost.errors import Denied
from roost.metadata import etcd_messages
from roost.metadata.protobuf import decode


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """How to get in: all of it is optional."""

    tls: bool = False
    ca: bytes | None = None
    """The certificates to trust, instead of the system's."""

    certificate: bytes | None = None
    key: bytes | None = None
    user: str = ""
    password: str = ""


class Channels:
    """The endpoints of one etcd, of which one is asked at a time; another one when that fails."""

    def __init__(
        self, endpoints: Sequence[str], credentials: Credentials, *, answer_bytes_max: int
    ) -> None:
        assert endpoints, "an etcd has an endpoint"
        options = [
            ("grpc.max_receive_message_length", answer_bytes_max),
            ("grpc.max_send_message_length", -1),
            ("grpc.enable_retries", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 1000),
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
        ]
        self.endpoints: Final = endpoints
        self._channels: Final = [_channel(each, credentials, options) for each in endpoints]
        self._credentials: Final = credentials
        self._current = 0
        self._token = ""
        self._cluster = 0

    @property
    def count(self) -> int:
        """Count the endpoints."""
        return len(self._channels)

    def go_on(self) -> None:
        """Ask the next one from now on."""
        self._current = (self._current + 1) % len(self._channels)

    async def unary(self, method: str, request: bytes, timeout_s: float) -> bytes:
        """Ask for one answer."""
        call = self._channels[self._current].unary_unary(method)
        answer: bytes = await call(request, timeout=timeout_s, metadata=self._metadata())
        return answer

    def stream(self, method: str, timeout_s: float | None = None) -> Any:
        """Begin to ask and to be answered in a stream."""
        call = self._channels[self._current].stream_stream(method)
        metadata = (*self._metadata(), ("hasleader", "true"))
        return call(timeout=timeout_s, metadata=metadata)

    async def log_in(self, timeout_s: float) -> None:
        """Get a token, if there is a user."""
        self._token = ""
        if self._credentials.user:
            request = etcd_messages.authenticate(self._credentials.user, self._credentials.password)
            answer = await self.unary(etcd_messages.AUTHENTICATE, request, timeout_s)
            self._token = etcd_messages.token_of(decode(answer))

    def check_cluster(self, cluster: int) -> None:
        """See that it is the same etcd that answers all the time."""
        self._cluster = self._cluster or cluster
        if cluster not in (0, self._cluster):
            raise Denied(
                f"another etcd cluster ({cluster:x}) answers than before ({self._cluster:x}): "
                f"look at the endpoints {', '.join(self.endpoints)}"
            )

    async def close(self) -> None:
        """End all connections."""
        for channel in self._channels:
            await channel.close(None)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("token", self._token),) if self._token else ()


def _channel(endpoint: str, credentials: Credentials, options: list[tuple[str, int]]) -> Any:
    if not credentials.tls:
        return grpc.aio.insecure_channel(endpoint, options=options)
    secrets = grpc.ssl_channel_credentials(
        root_certificates=credentials.ca,
        private_key=credentials.key,
        certificate_chain=credentials.certificate,
    )
    return grpc.aio.secure_channel(endpoint, secrets, options=options)
