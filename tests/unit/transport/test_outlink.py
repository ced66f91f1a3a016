"""The states of an outgoing link: each event in each state, as in the table of `meshrt.transport.outlink`."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from meshrt.hooks.fate import Fate
from meshrt.transport import disconnects
from meshrt.transport.dialling import DIALS
from meshrt.transport.driver import Driver
from meshrt.transport.outlink import Early, LinkState, OutLink
from meshrt.wire.messages import STATE
from tests.unit.transport.fake_rank import KEY, Answers, FakeRank, FakeTree, call, open_link, pump

CONNECTING, OPEN, IDLE, DISCONNECTED, LOST = LinkState
DIED = Fate("died", signal=9)
RESTARTS = Fate("died", signal=9, restarts=True)


class Case:
    """A link, its rank, and what may happen to them."""

    def __init__(self, driver: Driver, tree: FakeTree, rank: FakeRank) -> None:
        self.driver = driver
        self.tree = tree
        self.rank = rank
        self.out: OutLink = driver.link_to(KEY, rank.address)

    # -- into a state

    def connecting(self) -> None:
        assert self.out.link is not None

    def open(self) -> None:
        open_link(self.driver, self.rank)

    def idle(self) -> None:
        self.open()
        self.actor_stopped()

    def disconnected(self) -> None:
        self.open()
        self.hang_up()

    def lost_link(self) -> None:
        self.disconnected()
        self.time_passes()

    def lost_rank(self) -> None:
        self.open()
        self.rank_ends()

    # -- events; without a connection the rank cannot cause any

    def call(self) -> None:
        receiver = Answers()
        lost = self.out.state is LOST
        self.driver.send(self.out, call(1), 1, receiver, 0)
        assert bool(receiver.lost) is lost, "it fails at once on a lost link, and on no other"

    def proved(self) -> None:
        if self.out.handshake is not None:
            pump(self.driver, self.rank, lambda: self.out.handshake is None)

    def hang_up(self) -> None:
        if self.rank.sock is None:
            if self.out.state is not CONNECTING:
                return
            self.rank.sock, _ = self.rank.listener.accept()
        self.rank.sock.close()
        self.rank.sock = None
        self.driver.poll_nowait()

    def hang_up_often(self) -> None:
        for _ in range(DIALS):
            self.hang_up()

    def foreign_bytes(self) -> None:
        if self.rank.sock is None and self.out.state is CONNECTING:
            self.rank.sock, _ = self.rank.listener.accept()
        if self.out.link is not None and not self.out.link.closed and self.rank.sock is not None:
            self.rank.sock.sendall(b"\xff" * 256)
            self.driver.poll_nowait()

    def actor_stopped(self) -> None:
        if self.out.state is OPEN:
            self.rank.send(STATE, [0, True])
            self.driver.poll_nowait()

    def time_passes(self) -> None:
        deadlines = self.driver._disconnects.deadlines
        deadlines.update(dict.fromkeys(deadlines, 0.0))
        due, self.tree.later[:] = self.tree.later[:], []
        for function in due:
            function()
        self.driver.poll_nowait()

    def rank_ends(self) -> None:
        self.tree.kill(self.driver, 0, DIED)

    def rank_restarts(self) -> None:
        self.tree.kill(self.driver, 0, RESTARTS)


STATES: dict[str, LinkState] = {
    "connecting": CONNECTING,
    "open": OPEN,
    "idle": IDLE,
    "disconnected": DISCONNECTED,
    "lost_link": LOST,
    "lost_rank": LOST,
}
EVENTS = (
    "call",
    "proved",
    "hang_up",
    "hang_up_often",
    "foreign_bytes",
    "actor_stopped",
    "time_passes",
    "rank_ends",
    "rank_restarts",
)
#: The state after an event; where none is named, the event changes nothing.
NEXT: dict[tuple[str, str], LinkState] = {
    ("connecting", "proved"): OPEN,
    ("connecting", "hang_up_often"): DISCONNECTED,
    ("connecting", "foreign_bytes"): DISCONNECTED,
    ("connecting", "rank_ends"): LOST,
    ("connecting", "rank_restarts"): IDLE,
    ("open", "hang_up"): DISCONNECTED,
    ("open", "hang_up_often"): DISCONNECTED,
    ("open", "foreign_bytes"): DISCONNECTED,
    ("open", "actor_stopped"): IDLE,
    ("open", "rank_ends"): LOST,
    ("open", "rank_restarts"): IDLE,
    ("idle", "call"): CONNECTING,
    ("idle", "rank_ends"): LOST,
    ("idle", "rank_restarts"): IDLE,
    ("disconnected", "time_passes"): LOST,
    ("disconnected", "rank_ends"): LOST,
    ("disconnected", "rank_restarts"): IDLE,
    ("lost_link", "rank_restarts"): IDLE,
}


@pytest.fixture
def case(driver: Driver, tree: FakeTree, listen: Callable[..., FakeRank], monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr(disconnects, "DISCONNECTED_SECONDS", 60.0)  # time passes when the test says so
    return Case(driver, tree, listen())


@pytest.mark.parametrize(("state", "event"), list(itertools.product(STATES, EVENTS)))
def test_each_event_in_each_state(case: Case, state: str, event: str) -> None:
    getattr(case, state)()
    assert case.out.state is STATES[state]
    getattr(case, event)()
    assert case.out.state is NEXT.get((state, event), STATES[state])


def test_the_fate_of_a_lost_link_is_replaced_by_that_of_its_rank(case: Case) -> None:
    case.lost_link()
    assert case.out.fate is not None and case.out.fate.kind == "link"
    case.rank_ends()
    assert case.out.fate == DIED


def test_a_link_with_calls_that_wait_does_not_become_idle(case: Case) -> None:
    case.open()
    case.call()
    case.actor_stopped()
    assert case.out.state is OPEN


def test_a_call_opens_an_idle_link_again(case: Case) -> None:
    case.idle()
    assert case.rank.saw_the_end()
    case.call()
    case.proved()
    assert case.out.state is OPEN


def test_what_was_sent_early_is_counted_and_copied_once() -> None:
    early = Early()
    data = bytearray(b"abc")
    early.append([b"12", data])
    early.keep()
    early.append([b"3"])
    data[:] = b"xyz"
    assert early.bytes == 6 and [[bytes(part) for part in parts] for parts in early.messages] == [
        [b"12", b"abc"],
        [b"3"],
    ]
