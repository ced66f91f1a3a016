"""What is brought to other machines before it is sent: to all hosts or to none, and nothing stays of what fails."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from meshrt.store import deliveries
from meshrt.store.deliveries import Deliveries
from meshrt.store.hostlinks import HostLinks
from meshrt.store.lease import Loan
from meshrt.store.protocol import Host
from meshrt.wire.handshake import Identity
from tests.unit.store.other_store import SECRET, OtherStore, serve

OWN = Identity(1, 50, 50)
ONE, TWO, GONE = Host(2, 61, [71, 72]), Host(3, 62, [81]), Host(4, 63, [91])
FIRST, SECOND = Loan(1, 50, 5, 9, 0, 100), Loan(1, 50, 5, 10, 128, 100)


class Sender:
    """A store that sends, and two of other machines."""

    def __init__(self, folder: Path) -> None:
        self.selector = selectors.DefaultSelector()
        self.links = HostLinks(self.selector, str(folder), SECRET, OWN)
        self.deliveries = Deliveries(self.links)
        self.one = OtherStore(self.selector, folder, ONE.machine, ONE.agent_pid)
        self.two = OtherStore(self.selector, folder, TWO.machine, TWO.agent_pid)
        self.answers: list[dict[str, Any]] = []
        #: Whether the process that has asked is there.
        self.told = True

    def send(self, *to: Host) -> None:
        self.deliveries.begin([FIRST, SECOND], to, self._answer)

    def _answer(self, message: dict[str, Any]) -> bool:
        self.answers.append(message)
        return self.told

    def close(self) -> None:
        self.links.close()
        self.one.close()
        self.two.close()
        self.selector.close()


@pytest.fixture
def sender(tmp_path: Path) -> Iterator[Sender]:
    made = Sender(tmp_path)
    yield made
    made.close()


def takes(store: OtherStore, offers: list[dict[str, Any]]) -> list[Loan]:
    """Have a store take what it is offered. Returns where it says that it is."""
    machine, agent_pid, _ = store.identity
    loans = [Loan(*offer["loan"])._replace(machine=machine, agent_pid=agent_pid, chunk=8) for offer in offers]
    store.say(*({"t": "ok", "n": offer["n"], "loan": loan} for offer, loan in zip(offers, loans, strict=True)))
    return loans


def recalls(store: OtherStore) -> list[tuple[str, list[int], list[int]]]:
    return [(message["t"], sorted(message["segments"]), message["pids"]) for message in store.hear()]


def test_all_hosts_have_it_before_anybody_is_told(sender: Sender) -> None:
    sender.send(ONE, GONE, TWO)
    first, second = sender.one.accept(), sender.two.accept()
    assert [(each["t"], Loan(*each["loan"]), each["pids"]) for each in first] == [
        ("offer", FIRST, ONE.pids),
        ("offer", SECOND, ONE.pids),
    ]
    there = [takes(sender.one, first)]
    assert sender.answers == []
    sender.deliveries.tick()
    there.append(takes(sender.two, second))
    assert sender.answers == [{"t": "wait"}, {"to": [ONE, TWO], "there": there}], "a host that is lost is left out"
    sender.deliveries.recall([9], [TWO, GONE])
    assert recalls(sender.two) == [("recall", [9], TWO.pids)] and recalls(sender.one) == []


def test_there_is_nobody_to_wait_for(sender: Sender) -> None:
    sender.send(GONE)
    assert sender.answers == [{"to": [], "there": []}]
    sender.send(ONE)
    offers = sender.one.accept()
    sender.one.say({"t": "ok", "n": offers[0]["n"], "loan": FIRST})
    sender.one.hang_up()
    assert sender.answers[1:] == [{"to": [], "there": []}], "its ranks are lost with it"


def test_a_host_that_hangs_up_before_it_lets_this_one_in_is_dialled_again(sender: Sender) -> None:
    sender.send(ONE)
    for _ in range(3):
        sender.one.refuse()
    there = takes(sender.one, sender.one.accept())
    assert sender.answers == [{"to": [ONE], "there": [there]}]
    sender.send(TWO)
    for _ in range(5):
        sender.two.refuse()
    assert sender.answers[1:] == [{"to": [], "there": []}], "it is lost"


def refused(sender: Sender, offers: list[dict[str, Any]]) -> None:
    sender.two.say({"t": "no", "n": offers[0]["n"], "why": "no room"})


def silent(sender: Sender, _offers: list[dict[str, Any]]) -> None:
    sender.deliveries.tick()


@pytest.mark.parametrize(
    ("fails", "why"), [(refused, "does not take it: no room"), (silent, "has said nothing for 0 s")]
)
def test_it_is_recalled_where_one_does_not_take_it(
    sender: Sender, monkeypatch: pytest.MonkeyPatch, fails: Callable[[Sender, list[dict[str, Any]]], None], why: str
) -> None:
    sender.send(ONE, TWO)
    offers = sender.two.accept()
    takes(sender.one, sender.one.accept())
    monkeypatch.setattr(deliveries, "_PATIENCE", -1.0)
    fails(sender, offers)
    (answer,) = sender.answers
    assert (answer["t"], answer["why"]) == ("no", f"a host that it goes to {why}")
    assert answer.get("silent", (0, 0))[0] == (TWO.agent_pid if fails is silent else 0)
    assert recalls(sender.one) == [("recall", [9, 10], ONE.pids)]
    assert recalls(sender.two) == []
    takes(sender.two, offers[1:])
    assert recalls(sender.two) == [("recall", [10], TWO.pids)], "what it takes too late"
    link = sender.links.find(TWO.machine, TWO.agent_pid)
    assert link is not None
    assert list(link.asked) == [offer["n"] for offer in offers if fails is silent][:1], "who may still say something"
    sender.two.say({"t": "no", "n": offers[0]["n"], "why": "late"}, {"t": "nonsense", "n": offers[1]["n"]})
    sender.deliveries.tick()
    assert len(sender.answers) == 1


def test_a_host_that_says_nothing_is_waited_for_once(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    sender.send(ONE)
    takes(sender.one, sender.one.accept())
    sender.send(ONE)
    offers = sender.one.hear()
    with monkeypatch.context() as patch:
        patch.setattr(deliveries, "_PATIENCE", -1.0)
        sender.deliveries.tick()
    sender.send(TWO, ONE)
    first, second = [answer["silent"] for answer in sender.answers[1:]]
    assert first[0] == second[0] == ONE.agent_pid and second[1] >= first[1], "it is silent since then"
    assert sender.one.hear() == [] and sender.links.find(TWO.machine, TWO.agent_pid) is None, "nobody is offered it"
    takes(sender.one, offers)
    assert [segments for _, segments, _ in recalls(sender.one)] == [[9], [10]]
    sender.send(ONE)
    there = takes(sender.one, sender.one.hear())
    assert sender.answers[3:] == [{"to": [ONE], "there": [there]}], "it has spoken"


def test_a_host_that_answers_something_else_meanwhile_is_asked(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        sender.send(ONE)
    takes(sender.one, sender.one.accept()[2:])
    with monkeypatch.context() as patch:
        patch.setattr(deliveries, "_PATIENCE", -1.0)
        sender.deliveries.tick()
    assert [answer.get("silent", (0, 0))[0] for answer in sender.answers] == [0, ONE.agent_pid]
    sender.send(ONE)
    assert len(sender.one.hear()) == 2 and len(sender.answers) == 2, "it is offered that"


def test_it_is_recalled_if_who_has_asked_is_gone(sender: Sender) -> None:
    sender.told = False
    sender.send(ONE)
    takes(sender.one, sender.one.accept())
    assert recalls(sender.one) == [("recall", [9, 10], ONE.pids)]


def test_nonsense_of_a_store(sender: Sender) -> None:
    for message in ({"t": "nothing"}, {"t": "no"}, {"t": "ok", "loan": [1]}, {"t": "ok"}):
        sender.answers.clear()
        sender.send(ONE)
        sender.one.say({**message, "n": sender.one.accept()[0]["n"]})
        assert sender.answers == [{"to": [], "there": []}], "it is no store any more"
    serve(sender.selector)
