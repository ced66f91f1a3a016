"""Links to ranks of other machines: the way to them is found first; a lost one waits for the verdict on its machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from meshrt.hooks.fate import Fate
from meshrt.transport import disconnects, turns
from meshrt.transport.driver import Driver
from meshrt.transport.link import Link
from meshrt.transport.outlink import LinkState
from tests.support.waiting import wait_until
from tests.unit.transport.fake_rank import KEY, SECRET, Answers, FakeRank, FakeTree, Listen, call, pump, reaches


class Connector:
    """Finds ways when the test says so; they lead to sockets of this machine."""

    def __init__(self) -> None:
        self.known = False
        self.searches: list[Callable[[Link | OSError], None]] = []
        self.doubts = 0

    def is_elsewhere(self, _address: object) -> bool:
        return True

    def knows(self, _address: object) -> bool:
        return self.known

    def connect(self, address: Any) -> Link | None:
        return _here(address.path) if self.known else None

    def search(self, _address: object, done: Callable[[], None]) -> None:
        done()

    def find(self, address: Any, found: Callable[[Link | OSError], None]) -> None:
        self.searches.append(found)

    def doubt(self, _address: object) -> None:
        self.known = False
        self.doubts += 1


def _here(path: str) -> Link:
    import socket

    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    return Link(sock)


@pytest.fixture
def connector() -> Connector:
    return Connector()


@pytest.fixture
def driver(tree: FakeTree, connector: Connector) -> Iterator[Driver]:
    made = Driver(SECRET, tree, connector=connector)  # type: ignore[arg-type]
    yield made
    made.close()


def _poll_until(driver: Driver, condition: Callable[[], object]) -> None:
    def turn() -> object:
        driver.poll_nowait()
        return condition()

    wait_until(turn)


def _state(out: Any) -> LinkState:
    state: LinkState = out.state
    return state


def opened(driver: Driver, connector: Connector, listen: Listen, tree: FakeTree) -> tuple[FakeRank, Any]:
    """Return a rank, and the open link to it."""
    rank = listen()
    out = driver.link_to(KEY, rank.address)
    tree.bear()
    connector.searches.pop()(_here(rank.path))
    pump(driver, rank, lambda: out.state is LinkState.OPEN)
    return rank, out


def test_calls_wait_until_a_way_is_found(driver: Driver, connector: Connector, listen: Listen, tree: FakeTree) -> None:
    rank, receiver = listen(), Answers()
    out = driver.link_to(KEY, rank.address)
    driver.send(out, call(1), 1, receiver, 0)
    assert out.state is LinkState.CONNECTING and not connector.searches, "where it is now, the tree says"
    tree.bear()
    assert len(connector.searches) == 1
    connector.searches.pop()(_here(rank.path))
    pump(driver, rank, lambda: rank.frames)
    rank.answer(1)
    pump(driver, rank, lambda: receiver.finished)
    assert receiver.delivered


def test_a_way_that_is_not_found_loses_the_call_with_the_reason(
    driver: Driver, connector: Connector, listen: Listen, tree: FakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disconnects, "VERDICT_SECONDS", 0.05)
    rank, receiver = listen(), Answers()
    out = driver.link_to(KEY, rank.address)
    tree.bear()
    driver.send(out, call(1), 1, receiver, 0)
    connector.searches.pop()(ConnectionError("nothing leads there"))
    assert out.trouble == "could not be connected to: nothing leads there"
    assert driver.wait(receiver, 10) and receiver.lost == [(0, "link", False)]


def test_a_way_that_is_found_too_late_is_closed(
    driver: Driver, connector: Connector, listen: Listen, tree: FakeTree
) -> None:
    rank = listen()
    out = driver.link_to(KEY, rank.address)
    tree.bear()
    driver.lost.mark_lost(out, Fate("host"))
    driver.lost.fail_pending()
    late = _here(rank.path)
    connector.searches.pop()(late)
    assert late.closed and out.state is LinkState.LOST


def test_a_lost_connection_waits_for_the_verdict_on_its_machine(
    driver: Driver, connector: Connector, listen: Listen, tree: FakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disconnects, "DISCONNECTED_SECONDS", 0.01)
    rank, out = opened(driver, connector, listen, tree)
    receiver = Answers()
    driver.send(out, call(1), 1, receiver, 0)
    rank.serve()
    rank.close()
    assert not driver.wait(receiver, 0.2) and out.state is LinkState.DISCONNECTED
    tree.kill(driver, 0, Fate("host"))
    assert receiver.lost == [(0, "host", True)]


def test_a_link_that_is_lost_while_its_machine_is_not_looks_for_another_way(
    driver: Driver, connector: Connector, listen: Listen, tree: FakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disconnects, "VERDICT_SECONDS", 0.05)
    rank, out = opened(driver, connector, listen, tree)
    receiver = Answers()
    driver.send(out, call(1), 1, receiver, 0)
    rank.serve()
    rank.close()
    assert driver.wait(receiver, 10) and receiver.lost == [(0, "link", True)]
    assert _state(out) is LinkState.IDLE and connector.doubts == 1
    other = listen("1")
    late = Answers()
    driver.send(out, call(2), 2, late, 0)
    tree.bear()
    connector.searches.pop()(_here(other.path))
    pump(driver, other, lambda: other.frames)
    other.answer(2)
    pump(driver, other, lambda: late.finished)
    assert late.delivered
    tree.kill(driver, 0, Fate("died"))
    assert _state(out) is LinkState.LOST, "its rank is still watched"


def test_a_connection_that_ends_while_nothing_waits_there_loses_nothing(
    driver: Driver, connector: Connector, listen: Listen, tree: FakeTree
) -> None:
    rank, out = opened(driver, connector, listen, tree)
    rank.close()
    _poll_until(driver, lambda: out.state is LinkState.IDLE)
    connector.known = True
    again = listen("1")
    out.address = again.address
    assert reaches(driver, again, out, 2)


def test_silence_ends_a_connection(
    driver: Driver, connector: Connector, listen: Listen, tree: FakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out = opened(driver, connector, listen, tree)
    receiver = Answers()
    driver.send(out, call(1), 1, receiver, 0)
    monkeypatch.setattr(Link, "is_silent", lambda _link: True)
    while tree.later:
        tree.later.pop()()
        if out.state is LinkState.DISCONNECTED:
            break
    assert out.state is LinkState.DISCONNECTED and out.trouble == "cannot be reached from here: Connection timed out"


def test_a_rank_that_its_host_does_not_know_yet_is_dialled_when_it_listens(
    driver: Driver, connector: Connector, listen: Listen, tree: FakeTree
) -> None:
    rank = listen()
    out = driver.link_to(KEY, rank.address)
    tree.bear()
    connector.searches.pop()(_here(rank.path))
    rank.listener.accept()[0].close()
    _poll_until(driver, lambda: tree.births)
    assert out.state is LinkState.CONNECTING
    connector.known = True
    tree.bear()
    assert reaches(driver, rank, out, 1)


def test_the_handshakes_of_a_process_wait_for_their_turn(
    driver: Driver, connector: Connector, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank waits only so long for a caller: one that begins with all at once has no time for most of them."""
    monkeypatch.setattr(turns, "AT_A_TIME", 1)
    connector.known = True
    first, second = listen(), listen("1")
    one = driver.link_to(KEY, first.address)
    other = driver.link_to((KEY[0], 1, KEY[2]), second.address)
    with pytest.raises(BlockingIOError):
        second.listener.accept()
    pump(driver, first, lambda: one.state is LinkState.OPEN)
    pump(driver, second, lambda: other.state is LinkState.OPEN)


def test_a_link_that_is_lost_while_it_waits_for_its_turn_is_not_dialled(
    driver: Driver, connector: Connector, listen: Listen, tree: FakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "AT_A_TIME", 1)
    connector.known = True
    ranks = [listen(str(number)) for number in range(3)]
    outs = [driver.link_to((KEY[0], number, KEY[2]), rank.address) for number, rank in enumerate(ranks)]
    driver.lost.mark_lost(outs[1], Fate("host"))
    driver.lost.fail_pending()
    pump(driver, ranks[0], lambda: outs[0].state is LinkState.OPEN)
    pump(driver, ranks[2], lambda: outs[2].state is LinkState.OPEN)
    with pytest.raises(BlockingIOError):
        ranks[1].listener.accept()
