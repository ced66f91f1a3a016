"""Calls that are sent to ranks that are served by hand: the links they take, and the processes they are for."""

from __future__ import annotations

from meshrt.hooks.fate import Fate
from meshrt.transport.driver import Driver
from meshrt.wire.handshake import ROLE_DATA, Identity, ServerHandshake
from tests.support.waiting import wait_until
from tests.unit.transport.fake_rank import (
    KEY,
    SECRET,
    Answers,
    FakeTree,
    Listen,
    asked,
    call,
    pump,
    reaches,
)

RESTARTS = Fate("died", signal=9, restarts=True)


def test_answers_that_no_thread_waits_for_are_looked_for(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    rank, out, receiver = asked(driver, listen)
    driver.send(out, call(2), 2, receiver, 0)
    (look,) = tree.later
    tree.later.clear()
    look()
    assert len(tree.later) == 1, "and again, as long as there are some to come"

    def has_come() -> bool:
        rank.serve()
        return len(rank.frames) == 2

    wait_until(has_come)
    rank.answer(1)
    rank.answer(2)
    tree.later.pop()()
    assert len(receiver.delivered) == 2 and not tree.later


def test_what_is_sent_before_the_link_is_open_goes_first(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    rank = listen()
    out = driver.link_to(KEY, rank.address)
    for call_id in (1, 2):
        driver.send(out, call(call_id), call_id, Answers(), 0)
    assert tree.background and driver.queues.unwritten("m") and not driver.queues.unwritten("other")
    pump(driver, rank, lambda: not driver.queues.unwritten("m"))
    driver.send(out, call(3), 3, Answers(), 0)
    pump(driver, rank, lambda: len(rank.frames) == 3)
    assert [frame.header for frame in rank.frames] == [[1], [2], [3]]
    assert not tree.background


def test_one_link_per_rank_and_actor(driver: Driver, listen: Listen) -> None:
    rank = listen()
    assert driver.link_to(KEY, rank.address) is driver.link_to(KEY, rank.address)
    assert driver.link_to(("m", 0, "other"), rank.address) is not driver.link_to(KEY, rank.address)


def test_the_receiver_is_the_process_that_took_the_place_of_a_rank(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    rank, out, _ = asked(driver, listen)
    tree.kill(driver, 0, RESTARTS)
    assert rank.saw_the_end()
    assert driver.receivers([out], block=False) is None, "it is not known yet; the link is opened for that"
    pump(driver, rank, lambda: out.server.pid)
    assert driver.receivers([out], block=True) == [out.server]


def test_what_is_for_one_process_only_is_not_sent_to_the_one_in_its_place(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    rank, out, _ = asked(driver, listen)
    only = {out.server.pid}
    tree.kill(driver, 0, RESTARTS)
    assert rank.saw_the_end()
    rank.frames.clear()
    replies = [Answers() for _ in range(3)]
    assert driver.send(out, call(2), 2, replies[0], 0, only) and out.idle, "no rank is dialled for it"
    rank.handshake = ServerHandshake(SECRET, ROLE_DATA, Identity(0, 0, 77))
    assert reaches(driver, rank, out, 3) and out.server.pid == 77
    rank.frames.clear()
    assert driver.send(out, call(4), 4, replies[1], 0, only)
    driver.send(out, call(5), 5, replies[2], 0, {77})
    pump(driver, rank, lambda: rank.frames)
    assert [frame.header[0] for frame in rank.frames] == [5]
    assert [reply.lost for reply in replies] == [[(0, "died", False)], [(0, "died", False)], []]
