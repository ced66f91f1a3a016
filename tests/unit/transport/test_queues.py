"""What waits to be written: whose memory it is, how much there may be of it, and what happens when it is written."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from meshrt.hooks.fate import Fate
from meshrt.transport import queues
from meshrt.transport.driver import Driver
from meshrt.wire.frames import split_frames
from meshrt.wire.messages import CALL
from tests.unit.transport.fake_rank import KEY, FakeTree, Listen, call, open_link, pump

DIED = Fate("died", signal=9)


def test_settle_copies_what_a_caller_may_change(driver: Driver, listen: Listen) -> None:
    rank = listen()
    out = open_link(driver, rank)
    array = bytearray(b"a" * (4 << 20))
    parts = split_frames(CALL, [1], [array])
    driver.send(out, parts, 1, None, 0)
    driver.queues.settle([out], parts, block=False)
    array[:] = b"b" * len(array)
    pump(driver, rank, lambda: rank.frames)
    assert bytes(rank.frames[0].payload) == b"a" * len(array)


def test_settle_copies_nothing_that_cannot_be_changed(driver: Driver, listen: Listen) -> None:
    rank = listen()
    out = open_link(driver, rank)
    data = b"a" * (4 << 20)
    parts = split_frames(CALL, [1], [data])
    driver.send(out, parts, 1, None, 0)
    driver.queues.settle([out], parts, block=False)
    assert out.link.backlog[-1].obj is data


def fill(driver: Driver, out: Any) -> int:
    """Send on an event loop until a call is refused; returns how many calls were sent."""
    data = b"a" * 100_000
    for call_id in range(10_000):
        if driver.full and driver.queues.busy([out]):
            return call_id
        parts = call(call_id + 1, data)
        if not driver.send(out, parts, call_id + 1, None, 0):
            driver.queues.settle([out], parts, block=False)
    raise AssertionError("nothing was refused")


@pytest.mark.row("N6")
@pytest.mark.parametrize("opened", [True, False])
def test_an_event_loop_is_refused_what_makes_a_queue_too_long(
    driver: Driver, listen: Listen, tree: FakeTree, opened: bool
) -> None:
    """Whether or not the link is open; what is queued arrives, and then there is room again."""
    rank = listen()
    out = open_link(driver, rank) if opened else driver.link_to(KEY, rank.address)
    count = fill(driver, out)
    assert queues.LOOP_LIMIT <= out.memory() < queues.LOOP_LIMIT + (1 << 20)
    assert driver.queues.busy([out]) == {0: out.memory()} and not driver.queues.has_room([out])
    came: list[bool] = []
    driver.queues.when_room([out], lambda: came.append(driver.queues.has_room([out])))
    forgotten = driver.queues.when_room([out], lambda: came.append(False))
    forgotten()
    pump(driver, rank, lambda: len(rank.frames) == count)
    assert [frame.header for frame in rank.frames] == [[number] for number in range(1, count + 1)]
    assert driver.queues.busy([out]) == {} and not driver.full and driver.queues.has_room([out])
    assert came == [True]


def test_small_messages_count_with_what_they_take_in_the_queue(driver: Driver, listen: Listen) -> None:
    out = driver.link_to(KEY, listen().address)
    for call_id in range(1000):
        driver.send(out, call(call_id), call_id, None, 0)
    assert out.waiting_bytes() < 100_000 and 1 << 19 < out.memory() < 1 << 21


@pytest.mark.parametrize("how", ["died", "forgotten"])
def test_a_rank_that_has_ended_refuses_nothing(driver: Driver, listen: Listen, tree: FakeTree, how: str) -> None:
    rank = listen()
    out = open_link(driver, rank)
    fill(driver, out)
    came: list[bool] = []
    driver.queues.when_room([out], lambda: came.append(True))
    if how == "died":
        tree.kill(driver, 0, DIED)
        assert came == [True] and driver.queues.has_room([out])
    else:
        driver.forget("m")
        out.link.close()
    assert not driver.full


def test_a_slow_rank_makes_no_other_wait_and_gets_everything(driver: Driver, listen: Listen) -> None:
    rank = listen()
    out = open_link(driver, rank)
    payload = bytes(range(256)) * 8192
    for call_id in range(4):
        driver.send(out, call(call_id, payload), call_id, None, 0)
    assert out.waiting_bytes() > 0 and driver.queues.unwritten("m")
    pump(driver, rank, lambda: len(rank.frames) == 4)
    assert all(bytes(frame.payload) == payload for frame in rank.frames) and not driver.queues.unwritten("m")


def test_an_action_waits_until_everything_is_written(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    rank = listen()
    left: list[float] = []
    driver.queues.when_written("m", 9.0, left.append)
    assert left == [9.0]
    out = driver.link_to(KEY, rank.address)
    driver.send(out, call(1, bytes(4 << 20)), 1, None, 0)
    driver.queues.when_written("m", 9.0, left.append)
    driver.queues.when_written("other", 5.0, left.append)
    driver.queues.when_written("m", 0.0, left.append)
    assert left == [9.0, 5.0, 0.0]
    pump(driver, rank, lambda: rank.frames)
    assert len(left) == 4 and 0 < left[3] < 9
    for timer in tree.later:
        timer()
    assert len(left) == 4


def test_an_action_waits_for_what_another_thread_has_read(driver: Driver) -> None:
    done = threading.Event()
    driver.queues.when_read(done.set)
    assert done.is_set(), "nobody reads"
    done.clear()
    with driver._lead:  # another thread has read answers, and is about to deliver them
        driver.queues.when_read(done.set)
        assert not done.is_set()
    driver.poll_nowait()
    assert done.is_set()


def test_an_action_does_not_wait_for_ever(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    out = driver.link_to(KEY, listen().address)
    driver.send(out, call(1), 1, None, 0)
    left: list[float] = []
    driver.queues.when_written("m", 1e-9, left.append)
    assert not left and driver.queues.unwritten("m")
    tree.later.pop()()
    driver.poll_nowait()
    assert left == [0.0]


def test_an_action_does_not_wait_for_ranks_that_have_ended(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    out = driver.link_to(KEY, listen().address)
    driver.send(out, call(1), 1, None, 0)
    left: list[float] = []
    driver.queues.when_written("m", 9.0, left.append)
    tree.kill(driver, 0, DIED)
    assert len(left) == 1
