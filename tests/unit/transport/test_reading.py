"""What ranks send, that are served by hand: answers, foreign bytes, and that an actor was stopped."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from meshrt.transport import disconnects
from meshrt.transport.driver import Driver
from meshrt.transport.outlink import LinkState
from meshrt.wire.frames import Frame
from meshrt.wire.handshake import Identity
from meshrt.wire.messages import RESULT, STATE, STORED
from tests.support.waiting import wait_until
from tests.unit.transport.fake_rank import (
    KEY,
    SECRET,
    Answers,
    FakeTree,
    Listen,
    asked,
    call,
    open_link,
    pump,
)


def test_calls_are_sent_in_order_and_answers_find_their_call(driver: Driver, listen: Listen) -> None:
    rank = listen()
    out = open_link(driver, rank)
    receivers = [Answers() for _ in range(3)]
    for index, receiver in enumerate(receivers):
        driver.send(out, call(index + 1), index + 1, receiver, index)
    rank.serve()
    assert [frame.header for frame in rank.frames] == [[1], [2], [3]]
    for call_id in (3, 1, 2):
        rank.answer(call_id)
    driver.poll_nowait()
    assert [[position for position, _ in receiver.delivered] for receiver in receivers] == [[0], [1], [2]]
    assert rank.handshake.endpoint == "m/0/actor"


@pytest.mark.row("N5")
def test_garbage_from_a_rank_is_a_lost_link(driver: Driver, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disconnects, "DISCONNECTED_SECONDS", 0.05)
    rank, _, receiver = asked(driver, listen)
    assert rank.sock is not None
    rank.sock.sendall(b"\xff" * 100)
    assert driver.wait(receiver, 10)
    assert receiver.lost == [(0, "link", True)]


@pytest.mark.row("N5")
def test_an_answer_to_no_call_is_dropped(driver: Driver, listen: Listen) -> None:
    rank = listen()
    out = open_link(driver, rank)
    rank.answer(99)
    receiver = Answers()
    driver.send(out, call(1), 1, receiver, 0)
    rank.answer(1)
    assert driver.wait(receiver, 10)


def test_a_link_to_a_stopped_actor_is_closed_and_opened_again_by_the_next_call(driver: Driver, listen: Listen) -> None:
    rank = listen()
    out = open_link(driver, rank)
    for call_id in (1, 2):
        receiver = Answers()
        driver.send(out, call(call_id), call_id, receiver, 0)
        pump(driver, rank, lambda: rank.frames)
        rank.send(STATE, [0, True])
        rank.answer(rank.frames.pop().header[0])
        pump(driver, rank, lambda: receiver.finished)  # noqa: B023 - it is called here
        wait_until(rank.saw_the_end)
        assert driver.link_to(KEY, rank.address) is out and out.fate is None


def test_a_link_stays_open_while_calls_wait_there(driver: Driver, listen: Listen) -> None:
    rank = listen()
    out = open_link(driver, rank)
    receivers = [Answers() for _ in range(3)]
    for call_id, receiver in enumerate(receivers):
        driver.send(out, call(call_id), call_id + 1, receiver, 0)
    pump(driver, rank, lambda: len(rank.frames) == 3)
    rank.send(STATE, [0, True])
    for call_id, receiver in enumerate(receivers):
        assert out.link is not None and not out.link.closed
        rank.answer(call_id + 1)
        pump(driver, rank, lambda: receiver.finished)  # noqa: B023 - it is called here
    wait_until(rank.saw_the_end)


def test_a_link_stays_open_when_the_actor_has_begun_anew(driver: Driver, listen: Listen) -> None:
    """Both are there when this process looks; or what has to be read first has not been read."""
    rank = listen()
    out = open_link(driver, rank)
    rank.send(STATE, [0, True])
    rank.send(STATE, [0, False])
    receiver = Answers()
    driver.send(out, call(1), 1, receiver, 0)
    pump(driver, rank, lambda: rank.frames)
    rank.answer(1)
    pump(driver, rank, lambda: receiver.finished)
    assert out.link is not None and not out.link.closed and not out.idle


def test_what_is_sent_while_a_link_becomes_idle_is_not_lost(driver: Driver, listen: Listen) -> None:
    """The call is noted between the look at what is owed and the end of the link."""
    rank = listen()
    out = open_link(driver, rank)
    link = out.link
    assert link is not None
    pump(driver, rank, lambda: rank.handshake.done)
    receiver = Answers()
    sent: list[threading.Thread] = []

    class Slow:
        """Used in place of the link, while a call is sent from another thread."""

        def at_rest(self) -> bool:
            sent.append(threading.Thread(target=driver.send, args=(out, call(1), 1, receiver, 0)))
            sent[0].start()
            wait_until(lambda: out.outstanding)
            return True

        def close(self) -> None:
            link.close()

    out.stopped = True
    slow: Any = Slow()
    driver._reader.make_idle(out, slow)
    sent[0].join(10)
    wait_until(rank.saw_the_end)
    pump(driver, rank, lambda: rank.frames)
    rank.send(RESULT, [1, None])
    pump(driver, rank, lambda: receiver.finished)
    assert receiver.delivered and not out.stopped


def test_what_came_in_shared_memory_is_claimed(tree: FakeTree, listen: Listen) -> None:
    claimed: list[Frame] = []

    def claim(frame: Frame) -> Frame:
        claimed.append(frame)
        return Frame(RESULT, frame.header, b"from memory")

    made = Driver(SECRET, tree, claim, lambda: Identity(0, 7, 8))
    try:
        rank, _, receiver = asked(made, listen)
        rank.send(RESULT | STORED, [1, None])
        made.poll_nowait()
        assert [bytes(frame.payload) for _, frame in receiver.delivered] == [b"from memory"] and len(claimed) == 1
        assert rank.handshake.client == Identity(0, 7, 8)
    finally:
        made.close()


def test_what_came_in_shared_memory_ends_the_link_of_a_process_that_has_none(driver: Driver, listen: Listen) -> None:
    rank, out, receiver = asked(driver, listen)
    rank.send(RESULT | STORED, [1, None])
    driver.poll_nowait()
    assert out.state is LinkState.DISCONNECTED and not receiver.delivered
