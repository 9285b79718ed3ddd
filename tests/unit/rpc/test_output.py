"""What goes out together: small pieces as one, large ones as they are."""

from hypothesis import given
from hypothesis import strategies as st

from roost.rpc.output import LARGE_BYTES, joined

SMALL, LARGE = b"small", bytes(LARGE_BYTES)


def test_large_pieces_are_not_copied_and_small_ones_are_joined() -> None:
    pieces = joined([SMALL, SMALL, LARGE, memoryview(LARGE), SMALL, LARGE, SMALL, SMALL])

    assert [len(piece) for piece in pieces] == [10, LARGE_BYTES, LARGE_BYTES, 5, LARGE_BYTES, 10]
    assert pieces[1] is LARGE


@given(st.lists(st.sampled_from([b"", SMALL, LARGE, LARGE + SMALL]), max_size=8))
def test_nothing_is_lost_or_moved(pieces: list[bytes | memoryview]) -> None:
    assert b"".join(joined(pieces)) == b"".join(pieces)
