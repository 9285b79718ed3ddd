"""`roost channel` between pipes: real processes that stream, are interrupted, and lose a reader.

Nothing waits for time to pass: a line that was written, or a message that is there, says that the
process has come so far.
"""

import contextlib
import os
import pty
import subprocess
from pathlib import Path
from signal import SIGINT, SIGTERM

import pytest

from roost import FileChannel
from roost.channel.view import View
from roost.cli.pipes import Interrupted, Pipes
from roost.host.posix import PosixDisk
from tests.unit.channel.threads import until
from tests.unit.cli.commands import COMMAND, Process, Ran, roost


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "inbox"


def fill(folder: Path, count: int, size: int = 0) -> list[bytes]:
    """Send numbered messages, and give them as lines."""
    messages = [b"%06d" % number + b"." * size for number in range(count)]
    with FileChannel(folder, durability="os") as channel:
        channel.tx().send_many(messages)
    return [message + b"\n" for message in messages]


def holds(folder: Path, count: int) -> bool:
    """Tell whether a channel is there and may be read up to so many messages."""
    if not (folder / "segment.0").exists():
        return False
    with View(PosixDisk(guarded=False), folder) as view:
        return len(view.take(count)) == count


def test_messages_stream_from_one_channel_to_another(folder: Path, tmp_path: Path) -> None:
    lines = fill(folder, 5000)

    with Process("channel", "recv", folder) as taking:
        pipe = taking.output
        with Process("channel", "send", tmp_path / "copy", stdin=pipe.fileno()) as sending:
            pipe.close()

            assert "sent 5000 messages" in sending.ended().err
    assert roost("channel", "recv", tmp_path / "copy").out == b"".join(lines)
    assert roost("channel", "recv", folder).out == b""


def test_a_message_is_sent_as_soon_as_its_line_is_whole(folder: Path) -> None:
    with Process("channel", "send", folder) as sending:
        sending.give(b"one\ntwo\nthr")
        until(lambda: holds(folder, 2))
        assert not holds(folder, 3)
        ran = sending.ended(b"ee")

    assert "sent 3 messages" in ran.err
    assert holds(folder, 3)


def test_an_interrupted_send_keeps_what_was_sent_and_says_how_much(folder: Path) -> None:
    with Process("channel", "send", folder) as sending:
        sending.give(b"one\nhalf a li")
        until(lambda: holds(folder, 1))

        sending.signal(SIGINT)
        ran = sending.ended()

    assert ran.code == 130
    assert ran.err == "sent 1 message; the channel ends at position 11\n"
    assert roost("channel", "recv", folder).out == b"one\n"


def test_a_signal_ends_what_waits_at_once(folder: Path) -> None:
    with Pipes() as pipes, pipes.waiting():
        with pipes.waiting():
            folder.mkdir()

        with pytest.raises(Interrupted):
            os.kill(os.getpid(), SIGTERM)


def test_a_signal_ends_what_works_when_it_waits_next_and_a_second_one_at_once() -> None:
    with Pipes() as pipes:
        os.kill(os.getpid(), SIGINT)

        with pytest.raises(Interrupted):
            pipes.pause(60)
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), SIGINT)


def test_the_last_messages_are_followed_beside_a_running_owner(folder: Path) -> None:
    fill(folder, 3)
    with (
        FileChannel(folder, segment_bytes=30) as channel,
        Process("channel", "tail", folder, "--count", "2", "--follow") as following,
    ):
        assert [following.line() for _ in range(2)] == [b"000001\n", b"000002\n"]
        for number in range(10):
            channel.tx().send(b"more %d" % number)
            assert following.line() == b"more %d\n" % number
        following.signal(SIGINT)

        assert following.ended() == Ran(130, b"", "")


def test_a_receiver_that_follows_lets_others_send(folder: Path) -> None:
    roost("channel", "send", folder, "one")
    with Process("channel", "recv", folder, "--follow") as following:
        assert following.line() == b"one\n"
        for text in ("two", "three"):
            assert roost("channel", "send", folder, text, "--wait", "30").code == 0
            assert following.line() == f"{text}\n".encode()
        following.signal(SIGTERM)

        assert following.ended() == Ran(143, b"", "")


def test_a_receiver_that_follows_waits_for_the_folder_and_ends_with_its_count(
    folder: Path,
) -> None:
    channel = FileChannel(folder)
    channel.tx().send(b"one")
    with Process("channel", "recv", folder, "--follow", "--count", "2") as following:
        channel.tx().send(b"two")
        channel.close()

        assert following.ended() == Ran(0, b"one\ntwo\n", "")


def test_when_the_reader_goes_away_nothing_is_lost(folder: Path) -> None:
    lines = fill(folder, 3000, size=1000)
    with Process("channel", "recv", folder) as taking:
        read = [taking.line() for _ in range(10)]

        taking.output.close()
        ran = taking.ended()

    rest = roost("channel", "recv", folder).out.splitlines(keepends=True)
    assert (ran.code, ran.err) == (141, "")
    assert read == lines[:10]
    # What was taken is acknowledged in batches: that which broke comes again, whole.
    assert rest == lines[-len(rest) :]
    assert len(rest) > 1000


def test_an_interrupted_receiver_loses_nothing_that_it_could_not_write(folder: Path) -> None:
    lines = fill(folder, 3000, size=1000)
    with Process("channel", "recv", folder) as taking:
        read = [taking.line()]

        taking.signal(SIGINT)  # it waits for room in the pipe, or soon will
        ran = taking.ended()

    read += ran.out.splitlines(keepends=True)
    rest = roost("channel", "recv", folder).out.splitlines(keepends=True)
    assert (ran.code, ran.err) == (130, "")
    assert {*read, *rest} >= {*lines}
    assert rest == lines[-len(rest) :]


@pytest.mark.parametrize("command", ["tail", "recv"])
def test_who_follows_ends_by_itself_when_its_reader_has_gone(folder: Path, command: str) -> None:
    roost("channel", "send", folder, "one")
    with Process("channel", command, folder, "--follow") as following:
        assert following.line() == b"one\n"

        following.output.close()

        assert following.ended() == Ran(141, b"", "")


def test_an_output_that_takes_no_more_is_one_clear_line(folder: Path) -> None:
    lines = fill(folder, 3)
    with (
        Path("/dev/full").open("wb") as full,
        Process("channel", "recv", folder, stdout=full.fileno()) as taking,
    ):
        ran = taking.ended()

    assert ran == Ran(1, b"", "roost: [Errno 28] No space left on device\n")
    assert roost("channel", "recv", folder).out == b"".join(lines)


def test_an_output_that_does_not_block_gets_everything_all_the_same(folder: Path) -> None:
    lines = fill(folder, 3000, size=1000)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with Process("channel", "recv", folder, stdout=writing) as taking:
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            assert pipe.read() == b"".join(lines)

        assert taking.ended() == Ran(0, b"", "")


def test_long_work_shows_its_progress_on_a_terminal(folder: Path) -> None:
    leader, follower = pty.openpty()
    os.set_blocking(leader, False)
    seen = b""
    with subprocess.Popen(
        [*COMMAND, "channel", "send", folder, "--durability", "os"],
        stdin=subprocess.PIPE,
        stderr=follower,
    ) as sending:
        os.close(follower)
        assert sending.stdin is not None
        while b"/s" not in seen:
            sending.stdin.write(b"0123456789\n" * 10_000)
            with contextlib.suppress(BlockingIOError):
                seen += os.read(leader, 4096)
    os.close(leader)

    assert b"\rsending: " in seen
