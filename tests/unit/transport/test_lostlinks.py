"""Ranks that end, or restart: what arrives before, which calls fail, and which process the link leads to then."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from meshrt.hooks.fate import Fate
from meshrt.transport import disconnects, linktable
from meshrt.transport.driver import Driver
from meshrt.wire.handshake import ROLE_DATA, Identity, ServerHandshake
from meshrt.wire.messages import STATE
from tests.support.descriptors import next_is
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
    reaches,
)

DIED = Fate("died", signal=9)
RESTARTS = Fate("died", signal=9, restarts=True)


def test_what_a_rank_wrote_before_it_ended_arrives_before_its_calls_fail(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    rank = listen()
    out = open_link(driver, rank)
    answered, failed = Answers(), Answers()
    driver.send(out, call(1), 1, answered, 0)
    driver.send(out, call(2), 2, failed, 0)
    rank.serve()
    rank.answer(1)
    rank.close()
    tree.kill(driver, 0, DIED)
    assert answered.finished and not answered.lost
    assert failed.lost == [(0, "died", True)]


def test_all_that_a_rank_wrote_arrives_however_often_it_takes_to_read_it(
    driver: Driver, listen: Listen, tree: FakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshrt.transport.link._RECV", 100)
    rank = listen()
    out = open_link(driver, rank)
    answers = Answers(50)
    for call_id in range(50):
        driver.send(out, call(call_id), call_id, answers, call_id)
    rank.serve()
    for call_id in range(50):
        rank.answer(call_id)
    tree.kill(driver, 0, DIED)
    assert [position for position, _ in answers.delivered] == list(range(50)) and not answers.lost


def test_ranks_that_end_together_are_lost_at_once(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    """Even if a thread reads meanwhile: the first loss is what a call fails by, and it names all of them."""
    ranks = [listen("0"), listen("1")]
    outs = [driver.link_to(("m", number, "a"), rank.address) for number, rank in enumerate(ranks)]
    for rank in ranks:
        pump(driver, rank, lambda: rank.handshake.done)  # noqa: B023 - used at once
    answers = Answers(2)
    for position, out in enumerate(outs):
        driver.send(out, call(1), 1, answers, position)
    with driver.lost.together():
        tree.kill(driver, 0, DIED)
        driver.poll_nowait()
        assert not answers.lost
        tree.kill(driver, 1, DIED)
        assert not answers.lost
    assert sorted(answers.lost) == [(0, "died", True), (1, "died", True)] and answers.told == 1


def test_the_end_of_a_rank_without_end_of_stream_is_enough(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    """A grandchild may hold the socket open."""
    _rank, _, receiver = asked(driver, listen)
    tree.kill(driver, 0, DIED)
    assert receiver.lost == [(0, "died", True)]


def test_the_end_of_a_rank_leaves_the_link_alone_that_has_its_descriptor_now(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    rank, another = listen(), listen("1")
    out = driver.link_to(KEY, rank.address)
    number = out.link.fileno() if out.link is not None else -1
    sock, _ = rank.listener.accept()
    Path(rank.path).unlink()
    sock.close()
    driver.poll_nowait()  # it is dialled again, in vain
    with next_is(number):
        other = driver.link_to(("m", 1, "actor"), another.address)
    assert other.link is not None and other.link.fileno() == number
    tree.kill(driver, 0, DIED)
    receiver = Answers()
    driver.send(other, call(1), 1, receiver, 0)
    pump(driver, another, lambda: another.frames)
    another.answer(1)
    pump(driver, another, lambda: receiver.finished)
    assert receiver.delivered and not receiver.lost


def test_an_idle_link_is_lost_with_its_rank(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    rank = listen()
    out = open_link(driver, rank)
    rank.send(STATE, [0, True])
    pump(driver, rank, lambda: out.idle)
    tree.kill(driver, 0, DIED)
    receiver = Answers()
    driver.send(out, call(1), 1, receiver, 0)
    assert receiver.lost == [(0, "died", False)]


def test_so_many_links_are_kept_that_are_lost_for_good(
    driver: Driver, listen: Listen, tree: FakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that calls meshes which end, one after the other, does not grow. A late call fails, kept or not."""
    monkeypatch.setattr(linktable, "LOST_MAX", 4)
    rank = listen()
    outs = {(mesh, n): driver.link_to((mesh, n, "actor"), rank.address) for mesh in "abcd" for n in (0, 1)}
    for (mesh, n), out in outs.items():
        if (mesh, n) != ("b", 1):  # a mesh that lives: each error about it names all of its ranks that have ended
            driver.lost.mark_lost(out, DIED)
            driver.lost.fail_pending()
    assert [key[:2] for key in driver._table.by_key] == [("b", 0), ("b", 1), ("d", 0), ("d", 1)]
    receiver = Answers()
    first = outs["a", 0]
    driver.send(first, call(1), 1, receiver, 0)
    assert receiver.lost == [(0, "died", False)]
    again = driver.link_to(first.key, rank.address)
    assert again is not first
    driver.lost.mark_lost(again, DIED)  # the tree tells at once
    driver.send(again, call(2), 2, receiver, 0)
    driver.lost.fail_pending()
    assert [kind for _, kind, _ in receiver.lost] == ["died"] * 2
    driver.lost.mark_lost(outs["b", 1], DIED)
    driver.lost.fail_pending()
    for mesh in "abcd":
        driver.forget(mesh)
    assert not driver._table.by_key and not driver._table._lost and not driver._table._counts


def test_what_was_sent_to_a_rank_that_is_started_again_is_lost_and_the_next_call_opens_the_link(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    rank, out, receiver = asked(driver, listen)
    rank.serve()
    tree.kill(driver, 0, RESTARTS)
    assert receiver.lost == [(0, "died", True)]
    assert rank.saw_the_end()
    rank.frames.clear()
    assert reaches(driver, rank, out, 2)
    tree.kill(driver, 0, DIED)  # it is watched again
    assert out.fate == DIED


def test_another_process_in_the_place_of_a_rank_is_sent_nothing_before_the_end_of_that_is_known(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    rank = listen()
    out = open_link(driver, rank)
    rank.send(STATE, [0, True])
    pump(driver, rank, lambda: out.idle)
    assert rank.saw_the_end()
    rank.handshake = ServerHandshake(SECRET, ROLE_DATA, Identity(0, 0, 77))
    receiver = Answers()
    driver.send(out, call(1), 1, receiver, 0)
    pump(driver, rank, lambda: out.disconnected)
    tree.kill(driver, 0, RESTARTS)
    assert receiver.lost == [(0, "died", False)]
    assert rank.saw_the_end() and not rank.frames
    assert reaches(driver, rank, out, 2)


def test_what_had_not_left_for_a_rank_that_is_started_again_surely_did_not_run(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    receiver = Answers()
    out = driver.link_to(KEY, listen().address)
    driver.send(out, call(1), 1, receiver, 0)
    tree.kill(driver, 0, RESTARTS)
    assert receiver.lost == [(0, "died", False)]


def test_a_lost_link_comes_back_with_its_rank(
    driver: Driver, listen: Listen, tree: FakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the stream was seen long before the end of the process."""
    monkeypatch.setattr(disconnects, "DISCONNECTED_SECONDS", 0.0)
    rank = listen()
    out = open_link(driver, rank)
    rank.serve()
    assert rank.sock is not None
    rank.sock.shutdown(socket.SHUT_WR)
    pump(driver, rank, lambda: out.fate is not None)
    assert out.fate.kind == "link"
    tree.kill(driver, 0, RESTARTS)
    assert rank.saw_the_end()
    assert reaches(driver, rank, out, 1)
