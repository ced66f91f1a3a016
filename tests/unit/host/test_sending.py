"""The output of ranks on its way to the root: in order, bounded, and what is left out is counted."""

from __future__ import annotations

import pytest

from meshrt.host import sending
from meshrt.host.sending import OutputQueue, SentLog
from meshrt.wire.tree import Printed

A, B = ("m", 0), ("m", 1)


class Root:
    """Takes messages, and confirms what it is told to."""

    def __init__(self) -> None:
        self.messages: list[Printed] = []
        self.confirmed = 0
        self.sent = 0
        self.queue = OutputQueue(self.messages.append, self._all_sent)

    def _all_sent(self) -> None:
        self.sent += 1

    def confirm(self) -> None:
        """Confirm the oldest message that is not confirmed."""
        self.confirmed += 1
        self.queue.kept(self.messages[self.confirmed - 1].cost)

    def confirm_all(self) -> None:
        while self.confirmed < len(self.messages):
            self.confirm()

    def text(self, address: tuple[str, int]) -> bytes:
        return b"".join(each.data for each in self.messages if (each.mesh, each.rank) == address)


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Root:
    monkeypatch.setattr(sending, "WINDOW", 4096)
    monkeypatch.setattr(sending, "LIMIT", 20_000)
    monkeypatch.setattr(sending, "_BATCH", 1000)
    return Root()


def test_lines_are_sent_at_once_and_the_end_behind_them(root: Root) -> None:
    root.queue.add(A, False, b"a\nb\n")
    root.queue.add(A, True, b"c\n")
    root.queue.end(A)
    assert [(each.err, each.data, each.done) for each in root.messages] == [
        (False, b"a\nb\n", False),
        (True, b"c\n", False),
        (False, b"", True),
    ]
    assert not root.queue.waits("m")


def test_no_more_than_the_window_is_on_its_way_and_ranks_take_turns(root: Root) -> None:
    for number in range(200):
        root.queue.add(A, False, b"a%3d %s\n" % (number, b"x" * 50))
    root.queue.add(B, False, b"b\n")
    on_their_way = sum(each.cost for each in root.messages)
    assert 4096 <= on_their_way < 4096 + 1000 + 300 and root.queue.waits("m")
    while not root.text(B):
        root.confirm()
    assert root.queue.waits("m"), "the other rank did not have to be sent before"
    root.confirm_all()
    assert root.text(A) == b"".join(b"a%3d %s\n" % (number, b"x" * 50) for number in range(200))
    assert not root.queue.waits("m") and root.sent


def test_the_oldest_lines_of_the_rank_with_most_are_left_out_and_counted(root: Root) -> None:
    for number in range(1000):
        root.queue.add(A, False, b"%04d %s\n" % (number, b"x" * 94))
        if number % 100 == 0:
            root.queue.add(B, False, b"b %d\n" % number)
    root.queue.end(A)
    root.confirm_all()
    assert root.text(B) == b"".join(b"b %d\n" % number for number in range(0, 1000, 100))
    found = [int(line[:4]) for line in root.text(A).splitlines()]
    left_out = sum(each.left_out for each in root.messages if each.rank == 0)
    assert found == sorted(found) and found[-150:] == list(range(850, 1000))
    assert len(found) + left_out == 1000 and left_out > 500
    assert [each.done for each in root.messages if each.rank == 0][-1] and not root.queue.waits("m")


def test_what_the_root_does_not_take_is_given_up_when_the_mesh_is_stopped(root: Root) -> None:
    for number in range(300):
        root.queue.add(A, False, b"%04d %s\n" % (number, b"x" * 44))
    root.queue.add(B, False, b"b\n")
    root.queue.end(A)
    assert root.queue.waits("m") and not root.queue.waits("other")
    root.queue.give_up("m")
    assert not root.queue.waits("m")
    last, other = root.messages[-2:]
    assert (other.data, other.left_out, other.done) == (b"", 1, False)
    assert (last.data, last.done) == (b"", True) and last.left_out + len(root.text(A).splitlines()) == 300


def test_a_log_that_is_sent_knows_the_last_lines(root: Root) -> None:
    log = SentLog(A, root.queue, print)
    assert log.take([b"\x1eactor\x1eone", b"two\rthree"], False) == []
    log.take([b"%d" % number for number in range(19)], True)
    log.close()
    assert list(log.tail)[:2] == ["three", "0"] and len(log.tail) == 20
    assert root.messages[0].data == b"\x1eactor\x1eone\ntwo\rthree\n" and root.messages[-1].done
