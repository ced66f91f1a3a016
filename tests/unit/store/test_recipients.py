"""Who receives a message, and what the stores are told of it."""

from __future__ import annotations

import pytest

from meshrt.errors import MeshError
from meshrt.store import recipients
from meshrt.store.lease import Loan
from meshrt.store.messages import Deliver, Delivered, FromProcess, Give, Host, Recall, TakeBack, ToProcess
from meshrt.store.recipients import Recipients
from meshrt.store.unsent import Unsent
from meshrt.wire.handshake import Identity
from tests.unit.store.registrars import FakeRegistrar, FakeRegistrars

HERE, AWAY, FAR = 1, 2, 3
OWN, OTHER = 50, 51
RECEIVERS = [Identity(HERE, OWN, 11), Identity(AWAY, 60, 12), Identity(FAR, 70, 12), Identity(AWAY, 60, 13)]
HOSTS = [Host(AWAY, 60, [12, 13]), Host(FAR, 70, [12])]
LOANS = [Loan(HERE, OWN, 1, 91, 0, 8), Loan(HERE, OTHER, 2, 92, 0, 8), Loan(HERE, OWN, 1, 93, 64, 8)]


def made(
    registrars: FakeRegistrars, receivers: list[Identity] | None = RECEIVERS, unsent: Unsent | None = None
) -> Recipients:
    registrars.own = Identity(HERE, OWN, 1)
    return Recipients(registrars, receivers, unsent or Unsent())  # type: ignore[arg-type]


def at(host: Host, loan: Loan) -> Loan:
    return loan._replace(machine=host.machine, agent_pid=host.agent_pid, chunk=7)


def brings(registrar: FakeRegistrar, *reached: Host) -> None:
    def answer(question: FromProcess) -> ToProcess:
        assert isinstance(question, Deliver) and question.to == HOSTS
        return Delivered(question.id, list(reached), [[at(host, loan) for loan in question.loans] for host in reached])

    registrar.answers = answer


def test_they_are_told_apart_by_machine_and_pid_together() -> None:
    to = made(FakeRegistrars(OWN))
    assert (to.known, to.here, to.away) == (True, [11], HOSTS)
    to = made(FakeRegistrars(OWN), [])
    assert (to.known, to.here, to.away) == (True, [], [])
    to = made(FakeRegistrars(OWN), None)
    assert (to.known, to.here, to.away) == (False, [], [])


def test_those_here_are_given_it_a_message_for_each_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipients, "_MOST", 1)
    registrars = FakeRegistrars(OWN, OTHER)
    made(registrars).give(LOANS)
    assert registrars.of(OWN).told == [Give([91], [11]), Give([93], [11])]
    assert registrars.of(OTHER).told == [Give([92], [11])]


def test_those_away_have_it_where_all_of_it_is() -> None:
    registrars = FakeRegistrars(OWN, OTHER)
    brings(registrars.of(OWN), *HOSTS)
    brings(registrars.of(OTHER), *HOSTS)
    assert made(registrars).bring(LOANS) == [([at(host, loan) for loan in LOANS], host.pids) for host in HOSTS]
    brings(registrars.of(OTHER), HOSTS[1])
    assert [pids for _, pids in made(registrars).bring(LOANS)] == [[12]], "a host that is lost is left out"


@pytest.mark.parametrize("error", [MeshError("no room"), KeyboardInterrupt()])
def test_what_one_store_has_brought_is_recalled_where_another_cannot(error: BaseException) -> None:
    def fails(_question: FromProcess) -> ToProcess:
        raise error

    registrars = FakeRegistrars(OWN, OTHER)
    brings(registrars.of(OWN), *HOSTS)
    registrars.of(OTHER).answers = fails
    with pytest.raises(type(error)):
        made(registrars).bring(LOANS)
    assert registrars.of(OWN).told_later == [Recall([91, 93], HOSTS)] and registrars.of(OTHER).told_later == []


@pytest.mark.parametrize("sent", [False, True])
def test_what_is_not_sent_is_taken_back_once(sent: bool) -> None:
    registrars = FakeRegistrars(OWN, OTHER)
    brings(registrars.of(OWN), *HOSTS)
    brings(registrars.of(OTHER), *HOSTS)
    with Unsent() as unsent:
        to = made(registrars, unsent=unsent)
        to.bring(LOANS)
        to.give(LOANS)
        if sent:
            unsent.sent()
    unsent.__exit__()
    to.recall()
    own, other = registrars.of(OWN), registrars.of(OTHER)
    taken_back = ([], []) if sent else ([TakeBack([91, 93], [11])], [TakeBack([92], [11])])
    # What was brought is recalled where that is said.
    assert own.told_later == [*taken_back[0], Recall([91, 93], HOSTS)]
    assert other.told_later == [*taken_back[1], Recall([92], HOSTS)]
