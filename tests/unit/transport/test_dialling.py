"""Connecting to ranks that are served by hand: late ones, ones that hang up, and what is no rank."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest

from meshrt.hooks.fate import Fate
from meshrt.transport import connecting, disconnects
from meshrt.transport.dialling import DIALS
from meshrt.transport.driver import Driver
from meshrt.transport.link import Link
from meshrt.wire.handshake import ROLE_DATA, ServerHandshake
from tests.support.waiting import wait_until
from tests.unit.transport.fake_rank import (
    KEY,
    SECRET,
    Answers,
    FakeTree,
    Listen,
    address,
    call,
    pump,
)


def test_a_rank_that_does_not_listen_yet_is_connected_to_later(
    driver: Driver, listen: Listen, tree: FakeTree, tmp_path: Path
) -> None:
    receiver = Answers()
    out = driver.link_to(KEY, address(str(tmp_path / "0")))
    driver.send(out, call(1), 1, receiver, 0)
    assert len(tree.births) == 1
    rank = listen()
    tree.bear()
    pump(driver, rank, lambda: rank.frames)
    rank.answer(1)
    assert driver.wait(receiver, 10)


def test_links_to_a_rank_that_begins_to_listen_are_connected_in_their_order(
    driver: Driver, listen: Listen, tree: FakeTree, tmp_path: Path
) -> None:
    for actor in ("first", "second"):
        driver.link_to((*KEY[:2], actor), address(str(tmp_path / "0")))
    rank = listen()
    driver.link_to((*KEY[:2], "third"), rank.address)
    assert len(tree.births) == 1, "it is asked for once"
    with pytest.raises(BlockingIOError):
        rank.listener.accept()
    tree.bear()
    said = []
    for _ in range(3):
        with rank.listener.accept()[0] as sock:
            sock.settimeout(10)
            said.append(sock.recv(200).rpartition(b"/")[2])
    assert said == [b"first", b"second", b"third"]
    driver.link_to((*KEY[:2], "fourth"), rank.address)
    assert not tree.births
    rank.listener.accept()[0].close()


def test_a_link_that_leads_to_another_user_does_not_hold_up_those_behind_it(
    driver: Driver, listen: Listen, tree: FakeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Answers()
    first, second = (driver.link_to((*KEY[:2], actor), address(str(tmp_path / "0"))) for actor in ("first", "second"))
    driver.send(first, call(1), 1, receiver, 0)
    rank = listen()
    with monkeypatch.context() as patched:
        euid = os.geteuid()
        foreign = iter([euid + 1])
        patched.setattr(os, "geteuid", lambda: next(foreign, euid))
        tree.bear()
    rank.listener.accept()[0].close()  # that of the first link, which nothing was said on
    pump(driver, rank, lambda: second.handshake is None)
    assert not tree.births and "is served by another user" in first.trouble
    tree.kill(driver, 0, Fate("died", signal=9))
    assert receiver.lost == [(0, "died", False)]


def test_a_rank_that_is_not_where_its_handle_says_is_dialled_where_the_tree_says(
    driver: Driver, listen: Listen, tree: FakeTree, tmp_path: Path
) -> None:
    receiver = Answers()
    out = driver.link_to(KEY, address(str(tmp_path / "before")))
    driver.send(out, call(1), 1, receiver, 0)
    rank = listen()
    tree.bear(rank.address.host)
    pump(driver, rank, lambda: rank.frames)
    rank.answer(1)
    assert driver.wait(receiver, 10) and out.address == rank.address


@pytest.mark.parametrize("what", ["the rank ends", "it restarts", "the mesh is stopped", "the process ends"])
def test_a_connection_that_nobody_waits_for_any_more_is_closed(
    what: str, driver: Driver, listen: Listen, tree: FakeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made on one thread, while another one was told."""
    out = driver.link_to(KEY, address(str(tmp_path / "0")))
    rank = listen()
    connect = connecting._here

    def happens() -> None:
        if what == "the mesh is stopped":
            driver.forget(KEY[0])
        elif what == "the process ends":
            driver.close()
        else:
            tree.kill(driver, 0, Fate("died", signal=9, restarts=what == "it restarts"))

    def connected(path: str) -> Link:
        link = connect(path)
        happens()
        return link

    monkeypatch.setattr(connecting, "_here", connected)
    tree.bear()
    assert out.link is None
    wait_until(rank.saw_the_end, 10)


@pytest.mark.parametrize("said", [0, 1])
def test_a_rank_that_hangs_up_in_the_handshake_is_dialled_again(driver: Driver, listen: Listen, said: int) -> None:
    """It waits only so long for a caller that has no time, who has not sent anything then."""
    rank = listen()
    receiver = Answers()
    out = driver.link_to(KEY, rank.address)
    driver.send(out, call(1, b"payload"), 1, receiver, 0)
    for _ in range(3):
        sock, _ = rank.listener.accept()
        if said:
            sock.sendall(ServerHandshake(SECRET, ROLE_DATA).receive_data(sock.recv(256)))
            driver.poll_nowait()
            assert len(sock.recv(256)) == 32, "the proof, and nothing behind it"
        sock.close()
        driver.poll_nowait()
    assert not receiver.finished
    pump(driver, rank, lambda: rank.frames)
    rank.answer(1)
    pump(driver, rank, lambda: receiver.finished)
    assert len(rank.frames) == 1 and not receiver.lost


def test_a_rank_that_always_hangs_up_is_a_lost_link(
    driver: Driver, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disconnects, "DISCONNECTED_SECONDS", 0.05)
    rank = listen()
    receiver = Answers()
    out = driver.link_to(KEY, rank.address)
    driver.send(out, call(1), 1, receiver, 0)
    dialled = 0

    def hung_up() -> bool:
        nonlocal dialled
        with contextlib.suppress(BlockingIOError):
            rank.listener.accept()[0].close()
            dialled += 1
        driver.poll_nowait()
        return receiver.finished

    wait_until(hung_up)
    assert receiver.lost == [(0, "link", False)] and dialled == DIALS


def test_a_rank_without_the_secret_gets_nothing(
    driver: Driver, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disconnects, "DISCONNECTED_SECONDS", 0.05)
    rank = listen(secret=b"x" * 32)
    receiver = Answers()
    out = driver.link_to(KEY, rank.address)
    driver.send(out, call(1, b"secret words"), 1, receiver, 0)
    pump(driver, rank, lambda: receiver.finished)
    assert receiver.lost == [(0, "link", False)]
    assert rank.frames == [] and not rank.handshake.done


def test_a_socket_of_another_kind_in_the_place_of_a_rank(driver: Driver, tmp_path: Path, tree: FakeTree) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(tmp_path / "0"))
        receiver = Answers()
        out = driver.link_to(KEY, address(str(tmp_path / "0")))
        driver.send(out, call(1), 1, receiver, 0)
        tree.kill(driver, 0, Fate("unborn", hint="no luck"))
        assert receiver.lost == [(0, "unborn", False)]
