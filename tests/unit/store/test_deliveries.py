"""What is brought to other machines before it is sent: to all hosts or to none, and nothing stays of what fails."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meshrt.mesh.invitations import make_certificate
from meshrt.store import deliveries
from meshrt.store.chain import StoreName
from meshrt.store.deliveries import Deliveries
from meshrt.store.hostlinks import Elsewhere, HostLinks
from meshrt.store.lease import Loan
from meshrt.store.messages import Delivered, FromStore, Full, Host, Imported, Offer, Silent, TakeBack
from meshrt.wire.addresses import HostAddress, Way
from meshrt.wire.handshake import Identity
from meshrt.wire.tree import Later, Refusal
from tests.unit.store.other_store import SECRET, OtherStore, serve

OWN = Identity(1, 50, 50)
NUMBER = 5
ONE, TWO, GONE = Host(2, 61, [71, 72]), Host(3, 62, [81]), Host(4, 63, [91])
FIRST, SECOND = Loan(1, 50, 5, 9, 0, 100), Loan(1, 50, 5, 10, 128, 100)


class Sender:
    """A store that sends, and two of other machines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.selector = selectors.DefaultSelector()
        self.links = HostLinks(self.selector, str(folder), SECRET, OWN)
        self.deliveries = Deliveries(self.links)
        self.one = OtherStore(self.selector, folder, ONE.machine, ONE.agent_pid)
        self.two = OtherStore(self.selector, folder, TWO.machine, TWO.agent_pid)
        self.answers: list[Delivered | Later | Refusal | Silent] = []
        #: Whether the process that has asked is there.
        self.told = True

    def send(self, *to: Host) -> None:
        self.deliveries.begin(NUMBER, [FIRST, SECOND], to, self._answer)

    def _answer(self, message: Delivered | Later | Refusal | Silent) -> bool:
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


def offered(messages: list[FromStore]) -> list[Offer]:
    """Return the offers among these, which all are some."""
    offers = [message for message in messages if isinstance(message, Offer)]
    assert len(offers) == len(messages)
    return offers


def takes(store: OtherStore, offers: list[Offer]) -> list[Loan]:
    """Have a store take what it is offered. Returns where it says that it is."""
    machine, agent_pid, _ = store.identity
    loans = [offer.loan._replace(machine=machine, agent_pid=agent_pid, chunk=8) for offer in offers]
    store.say(*(Imported(offer.id, loan) for offer, loan in zip(offers, loans, strict=True)))
    return loans


NOWHERE = Delivered(NUMBER, [], [])


def there(*hosts: tuple[Host, list[Loan]]) -> Delivered:
    """What the process is told when these hosts have it."""
    return Delivered(NUMBER, [host for host, _ in hosts], [loans for _, loans in hosts])


def test_all_hosts_have_it_before_the_process_is_told(sender: Sender) -> None:
    sender.send(ONE, GONE, TWO)
    first, second = offered(sender.one.accept()), offered(sender.two.accept())
    assert [(each.loan, each.pids) for each in first] == [(FIRST, ONE.pids), (SECOND, ONE.pids)]
    at_one = takes(sender.one, first)
    assert sender.answers == []
    sender.deliveries.tick()
    at_two = takes(sender.two, second)
    told = there((ONE, at_one), (TWO, at_two))
    assert sender.answers == [Later(NUMBER), told], "a host that is lost is left out"
    sender.deliveries.recall([9], [TWO, GONE])
    assert sender.two.hear() == [TakeBack([9], TWO.pids)] and sender.one.hear() == []


def test_there_is_no_host_to_wait_for(sender: Sender) -> None:
    sender.send(GONE)
    assert sender.answers == [NOWHERE]
    sender.send(ONE)
    offers = offered(sender.one.accept())
    sender.one.say(Imported(offers[0].id, FIRST))
    sender.one.hang_up()
    assert sender.answers[1:] == [NOWHERE], "its ranks are lost with it"


def test_a_host_that_lives_and_is_not_reached(sender: Sender) -> None:
    """It is not left out: its ranks would miss what they are sent."""
    located: list[StoreName] = []
    asked: list[str] = []
    sender.links.elsewhere = Elsewhere(make_certificate(), located.append, lambda _name, why: asked.append(why))
    sender.send(ONE, TWO)
    (one, two) = (StoreName(host.machine, host.agent_pid) for host in (ONE, TWO))
    sender.links.located(two, HostAddress(*two, str(sender.folder).encode()))
    offers = offered(sender.two.accept())
    takes(sender.two, offers)
    sender.links.located(one, HostAddress(*one, b"/nowhere", (("127.0.0.1", 0),)))
    while not asked:
        serve(sender.selector)
    assert sender.answers == []
    sender.links.way_found(one, Way(("127.0.0.1", 0), "relay/abc"))
    while len(located) < 3:
        serve(sender.selector)
    sender.links.located(one, HostAddress(*one, b"/nowhere"))
    (answer,) = sender.answers
    assert isinstance(answer, Refusal) and answer.why.startswith("a destination host cannot be reached: 127.0.0.1")
    assert sender.two.hear() == [TakeBack([9, 10], TWO.pids)], "to all hosts or to none"


def test_a_host_that_hangs_up_before_it_lets_this_one_in_is_dialled_again(sender: Sender) -> None:
    sender.send(ONE)
    for _ in range(3):
        sender.one.refuse()
    at_one = takes(sender.one, offered(sender.one.accept()))
    assert sender.answers == [there((ONE, at_one))]
    sender.send(TWO)
    for _ in range(5):
        sender.two.refuse()
    assert sender.answers[1:] == [NOWHERE], "it is lost"


def refused(sender: Sender, offers: list[Offer]) -> None:
    sender.two.say(Refusal(offers[0].id, "no room"))


def full(sender: Sender, offers: list[Offer]) -> None:
    sender.two.say(Full(offers[0].id, 100, 50, 0, "the limit"))


def silent(sender: Sender, _offers: list[Offer]) -> None:
    sender.deliveries.tick()


@pytest.mark.parametrize(
    ("fails", "why"),
    [
        (refused, "a destination host does not accept the data: no room"),
        (full, "a destination host does not accept the data: 0.1 KiB do not fit in the store: the store uses 0 B"),
        (silent, ""),
    ],
)
def test_it_is_recalled_where_one_does_not_take_it(
    sender: Sender, monkeypatch: pytest.MonkeyPatch, fails: Callable[[Sender, list[Offer]], None], why: str
) -> None:
    sender.send(ONE, TWO)
    offers = offered(sender.two.accept())
    takes(sender.one, offered(sender.one.accept()))
    monkeypatch.setattr(deliveries, "_PATIENCE", -1.0)
    fails(sender, offers)
    (answer,) = sender.answers
    assert answer.id == NUMBER
    if why:
        assert isinstance(answer, Refusal) and answer.why.startswith(why)
    else:
        assert isinstance(answer, Silent) and answer.agent_pid == TWO.agent_pid
    assert sender.one.hear() == [TakeBack([9, 10], ONE.pids)]
    assert sender.two.hear() == []
    takes(sender.two, offers[1:])
    assert sender.two.hear() == [TakeBack([10], TWO.pids)], "what it takes too late"
    link = sender.links.find(TWO.machine, TWO.agent_pid)
    assert link is not None
    still_asked = [offer for offer in offers if link.asked.find(offer.id) is not None]
    assert still_asked == ([] if why else offers[:1]), "which may still be answered"
    sender.two.say(Refusal(offers[0].id, "late"), {"t": "nonsense", "id": offers[1].id})
    sender.deliveries.tick()
    assert len(sender.answers) == 1


def silences(sender: Sender) -> list[Silent | None]:
    return [answer if isinstance(answer, Silent) else None for answer in sender.answers]


def test_a_host_that_says_nothing_is_waited_for_once(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    sender.send(ONE)
    takes(sender.one, offered(sender.one.accept()))
    sender.send(ONE)
    offers = offered(sender.one.hear())
    with monkeypatch.context() as patch:
        patch.setattr(deliveries, "_PATIENCE", -1.0)
        sender.deliveries.tick()
    sender.send(TWO, ONE)
    first, second = silences(sender)[1:]
    assert first is not None and second is not None
    assert first.agent_pid == second.agent_pid == ONE.agent_pid
    assert second.seconds >= first.seconds, "it is silent since then"
    assert sender.one.hear() == [] and sender.links.find(TWO.machine, TWO.agent_pid) is None, "no host is offered it"
    takes(sender.one, offers)
    assert sender.one.hear() == [TakeBack([9], ONE.pids), TakeBack([10], ONE.pids)]
    sender.send(ONE)
    at_one = takes(sender.one, offered(sender.one.hear()))
    assert sender.answers[3:] == [there((ONE, at_one))], "it has spoken"


def test_a_host_that_answers_something_else_meanwhile_is_asked(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        sender.send(ONE)
    takes(sender.one, offered(sender.one.accept())[2:])
    with monkeypatch.context() as patch:
        patch.setattr(deliveries, "_PATIENCE", -1.0)
        sender.deliveries.tick()
    assert [each and each.agent_pid for each in silences(sender)] == [None, ONE.agent_pid]
    sender.send(ONE)
    assert len(sender.one.hear()) == 2 and len(sender.answers) == 2, "it is offered that"


def test_it_is_recalled_if_who_has_asked_is_gone(sender: Sender) -> None:
    sender.told = False
    sender.send(ONE)
    takes(sender.one, offered(sender.one.accept()))
    assert sender.one.hear() == [TakeBack([9, 10], ONE.pids)]


def test_nonsense_of_a_store(sender: Sender) -> None:
    size = [*FIRST[:-1], 0]
    for message in ({"t": "nothing"}, {"t": "no"}, {"t": "imported", "loan": size}, {"t": "imported"}, {"t": "found"}):
        sender.answers.clear()
        sender.send(ONE)
        sender.one.say({**message, "id": offered(sender.one.accept())[0].id})
        assert sender.answers == [NOWHERE], "it is no store any more"
    serve(sender.selector)
