"""Standard output of a rank: whole lines, each thread its own, marked for further actors."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from meshrt.actor.context import ActorInstance, CallContext, enter, leave
from meshrt.actor.output import LineOutput
from meshrt.host.output import LINE_MAX, MARK, RECORD_MARK, unmarked
from meshrt.selection import Shape


class Rank:
    """A stream and what comes out of it."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        self.out = LineOutput(self.write_end)
        self.out.first_actor = "first"

    def seen(self) -> bytes:
        try:
            return os.read(self.read_end, 1 << 20)
        except BlockingIOError:
            return b""


@pytest.fixture
def rank() -> Iterator[Rank]:
    made = Rank()
    yield made
    os.close(made.read_end)
    os.close(made.write_end)


def test_lines_are_written_when_they_are_whole(rank: Rank) -> None:
    assert rank.out.write(b"one\ntw") == 6
    assert rank.seen() == b"one\n"
    rank.out.write(b"o")
    assert rank.seen() == b""
    rank.out.write(b"\n")
    assert rank.seen() == b"two\n"


def test_push_ends_an_unfinished_line(rank: Rank) -> None:
    rank.out.write(b"question? ")
    rank.out.push()
    rank.out.push()
    assert rank.seen() == b"question? \n"


def test_threads_do_not_mix(rank: Rank) -> None:
    rank.out.write(b"main ")
    other = threading.Thread(target=lambda: (rank.out.write(b"other "), rank.out.write(b"line\n")))
    other.start()
    other.join(10)
    rank.out.write(b"line\n")
    assert rank.seen() == b"other line\nmain line\n"


def test_lines_for_the_file_alone_are_marked_in_each_part(rank: Rank) -> None:
    rank.out.write(b"question? ")
    rank.out.flush()
    rank.out.keep("one\n\n" + "x" * LINE_MAX)
    rank.out.write(b"answer\n")
    begin, *lines = rank.seen().split(b"\n")
    assert begin == b"question? " and lines[-2:] == [b"answer", b""]
    assert all(line.startswith(RECORD_MARK) and len(line) <= LINE_MAX for line in lines[:-2])
    assert b"|".join(line.removeprefix(RECORD_MARK) for line in lines[:3])[:7] == b"one||xx"
    assert sum(line.count(b"x") for line in lines[:-2]) == LINE_MAX


@pytest.mark.parametrize(("actor", "mark"), [("first", b""), ("second", MARK + b"second" + MARK)])
def test_lines_of_another_actor_than_the_first_are_marked(rank: Rank, actor: str, mark: bytes) -> None:
    shape = Shape.unity()
    context = CallContext(ActorInstance(actor, "Class", "m", shape.extent.point(0)), "step", shape, 0)
    token = enter(context)
    try:
        rank.out.write(b"a\nb\n")
    finally:
        leave(token)
    assert rank.seen() == mark + b"a\n" + mark + b"b\n"


@pytest.mark.parametrize("line", [MARK + b"other" + MARK + b"done", RECORD_MARK + b"hidden"])
def test_what_an_actor_prints_is_not_taken_for_a_mark(rank: Rank, line: bytes) -> None:
    rank.out.write(line + b"\n")
    pieces = rank.seen().split(b"\n")[:-1]
    lines = unmarked(pieces)
    assert lines.data == line + b"\n" and lines.texts
    assert MARK + b"first" + MARK + line == pieces[0]


def test_a_line_without_end_does_not_pile_up(rank: Rank) -> None:
    rank.out.write(b"x" * LINE_MAX)
    assert rank.seen() == b""
    rank.out.write(b"y" * LINE_MAX)
    assert len(rank.seen()) >= 2 * LINE_MAX


def test_it_is_a_stream_on_a_descriptor_and_no_terminal(rank: Rank) -> None:
    assert rank.out.writable() and not rank.out.isatty() and rank.out.fileno() == rank.write_end
