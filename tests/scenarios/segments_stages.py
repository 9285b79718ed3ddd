"""Stages for the pure parts of segment files."""

from roost.segments.format import HEADER_BYTES, Header, encode_header
from roost.segments.kernel import frame
from roost.segments.scan import Survey, survey

MESSAGE_BYTES_MAX = 100


class Bytes:
    """The bytes of one segment file, as writes and accidents leave them."""

    def __init__(self) -> None:
        self._file = bytearray(encode_header(Header(segment=0, begin=0)))
        self._bound = HEADER_BYTES
        self._foreign = False
        self._good: dict[int, bytes] = {}

    def check(self) -> None:
        """See that nothing below the bound is called a tail, and no good frame there damage."""
        seen = self.survey()
        assert seen.end >= min(self._bound, len(self._file)), "a tail begins below the bound"
        for at, whole in self._good.items():
            stop = at + len(whole)
            if stop <= self._bound and self._file[at:stop] == whole:
                harmed = [d for d in seen.damages if d.start < stop and at < d.stop]
                assert not harmed, f"the good frame at {at} is called damage"

    def frames(self, *payloads: str) -> list[str]:
        """Append one frame for each word."""
        said = []
        for payload in payloads:
            at, whole = len(self._file), frame(payload.encode())
            self._good[at] = whole
            self._file += whole
            said.append(f"{payload} from {at} to {len(self._file)}")
        return said

    def zeros(self, count: int) -> None:
        """Append zeros, as space reserved ahead does."""
        self._file += bytes(count)

    def junk(self, count: int) -> None:
        """Append bytes that mean nothing."""
        self._file += b"\xff" * count

    def flip(self, at: int) -> None:
        """Change one bit."""
        self._file[at] ^= 1

    def cut(self, count: int) -> None:
        """Lose the last bytes."""
        del self._file[-count:]

    def durable(self) -> str:
        """Note that everything up to here was synced."""
        self._bound = len(self._file)
        return f"bound {self._bound}"

    def foreign(self) -> None:
        """Make it a folder that names no bound."""
        self._foreign = True

    def survey(self) -> Survey:
        """Look at it as recovery does."""
        return survey(
            memoryview(bytes(self._file)),
            stop=len(self._file),
            bound=self._bound,
            message_bytes_max=MESSAGE_BYTES_MAX,
            foreign=self._foreign,
        )
