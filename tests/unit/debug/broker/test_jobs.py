"""Requests to many ranks: their numbers, and how many results a report has."""

from __future__ import annotations

import pytest

from meshrt.debug.broker import jobs
from meshrt.debug.broker.jobs import Job, Jobs
from meshrt.debug.protocol import SessionKey
from tests.unit.debug.root_fakes import FakeRoot, FakeTerminal


@pytest.fixture
def root() -> FakeRoot:
    return FakeRoot()


def key(rank: int) -> SessionKey:
    return SessionKey("m1", "a", rank)


def expecting(made: Jobs, client: FakeTerminal, *ranks: int) -> Job:
    job = made.new(client, len(ranks))
    for rank in ranks:
        job.expect(key(rank), "a")
    return job


def test_numbers_are_those_of_all_terminals(root: FakeRoot) -> None:
    made, me, other = Jobs(root), FakeTerminal(), FakeTerminal()
    first = [expecting(made, client, 0).number for client in (me, other, me)]
    assert first == sorted(set(first))


def test_only_its_own_terminal_leaves_a_job(root: FakeRoot) -> None:
    made, me, other = Jobs(root), FakeTerminal(), FakeTerminal()
    job = expecting(made, me, 0)
    left = []
    for client in (other, me, me):
        made.leave(client, job.number)
        left.append(job.left)
    assert left == [False, True, True]


def test_a_terminal_that_closes_leaves_its_jobs(root: FakeRoot) -> None:
    made, me, other = Jobs(root), FakeTerminal(), FakeTerminal()
    mine, others = [expecting(made, me, rank) for rank in range(2)], expecting(made, other, 0)
    made.client_gone(me)
    made.client_gone(me)
    assert ([job.left for job in mine], others.left) == ([True, True], False)


def test_a_job_that_is_done_was_not_left(root: FakeRoot) -> None:
    made, me = Jobs(root), FakeTerminal()
    job = expecting(made, me, 0)
    assert not job.start().done
    job.answer(key(0), "answered", "1")
    (report,) = me.of("debug.report")
    assert (report["job"], report["done"], job.left) == (job.number, True, False)
    made.leave(me, job.number)
    assert not job.left


def test_who_ends_the_wait_cancels_what_still_runs(root: FakeRoot) -> None:
    made, me = Jobs(root), FakeTerminal()
    one, other = expecting(made, me, 0), expecting(made, me, 1)
    for job in (one, other):
        job.cancels += [lambda: 2, lambda: 1]
    assert made.leave(me, one.number) == 0
    assert made.leave(me, one.number, cancel=True) == 0  # it was left
    assert made.leave(me, other.number, cancel=True) == 3


def test_long_results_are_sent_in_several_reports(root: FakeRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "REPORT_CHARACTERS", 10)
    me = FakeTerminal()
    job = expecting(Jobs(root), me, 0, 1, 2)
    job.start()
    for rank in range(3):
        job.answer(key(rank), "answered", str(rank) * 8)
    assert [(len(body["answers"]), body["done"]) for body in me.of("debug.report")] == [
        (1, False),
        (1, False),
        (1, True),
    ]
