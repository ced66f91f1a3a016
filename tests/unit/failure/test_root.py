"""The root's side of failures, without a program: how often its file is written, and what is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.failure import files
from meshrt.failure import root as module
from meshrt.failure.root import Failures
from meshrt.hooks.fate import Fate
from tests.unit.failure.records import raised


class Services:
    """What it needs of the root, which has no meshes; timers are called by the test."""

    run_id = "run"

    def __init__(self) -> None:
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.unseen: list[str] = []

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        self.later.append((seconds, function))

    def meshes(self) -> list[Any]:
        return []

    def mesh(self, _mesh_id: str) -> None:
        return None

    def interrupted(self, _mesh_id: str) -> int:
        return 0


class Clock:
    """The time, seconds; a write takes ``writing`` of them."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.writing = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made, write = Clock(), files.write

    def slowly(*arguments: Any) -> Path:
        made.now += made.writing
        return write(*arguments)

    monkeypatch.setattr(files, "write", slowly)
    replaced = SimpleNamespace(monotonic=made.monotonic, monotonic_ns=lambda: int(made.now * 1e9), time_ns=lambda: 0)
    monkeypatch.setattr(module, "time", replaced)
    return made


def failures_of(tmp_path: Path) -> tuple[Failures, Any]:
    services: Any = Services()
    return Failures(services, tmp_path), services


def test_the_pause_between_two_writes_is_a_multiple_of_what_one_takes(tmp_path: Path, clock: Clock) -> None:
    """Failures that come for minutes are thousands: to write all of them for each new one would take all the time."""
    failures, services = failures_of(tmp_path)
    failures._add(raised(0, 1))
    failures._add(raised(1, 2))
    failures._add(raised(2, 3))
    assert [seconds for seconds, _ in services.later] == [0.1], "one write for all that come meanwhile"
    clock.writing = 0.5
    services.later.pop()[1]()
    failures._add(raised(3, 4))
    assert [seconds for seconds, _ in services.later] == [pytest.approx(10.0)]
    failures.finish()
    assert len(files.read(files.path_of(tmp_path, 1)).records) == 4, "the end of the program waits for no pause"


def test_a_call_whose_answer_comes_behind_the_end_of_its_rank_is_not_what_it_was_doing(
    tmp_path: Path, clock: Clock
) -> None:
    """The end is told by the host agent, and may be read before what the rank has written last."""
    failures, _ = failures_of(tmp_path)
    built, lost = (SimpleNamespace(actor="a", endpoint=name, failing=False, done=lambda: False) for name in "bl")
    calls: Any = [built, lost]
    failures.lost("m", 2, Fate("died", exit_code=7, pid=5), calls)
    (incident,) = failures._incidents
    assert [*incident.records[0].doing] == ["a.b()", "a.l()"] and failures._owed == {}, "there was nobody to ask"
    failures._collected = False
    failures.lost("m", 2, Fate("died", exit_code=7, pid=5), calls)
    built.done = lost.done = lambda: True
    lost.failing = True
    failures._done(incident)
    assert [*incident.records[0].doing] == ["a.l()"] and failures._owed == {}, "no answer is kept"


def test_what_is_kept_of_many_failures(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FULL", 3)
    monkeypatch.setattr(module, "_MOST", 5)
    failures, _ = failures_of(tmp_path)
    for rank in range(7):
        failures._add(raised(rank, rank))
    (incident,) = failures._incidents
    assert [record.rank for record in incident.records] == [0, 1, 2, 3, 4] and incident.left_out == 2
    errors = [record.exception for record in incident.records]
    assert [bool(error and error.frames[0].locals) for error in errors] == [True] * 3 + [False] * 2
    assert errors[0] is errors[1] is errors[2] and errors[3] is errors[4], "what is equal is kept once"


def test_failures_that_do_not_end_fill_one_incident_after_the_other(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that handles its failures goes on for days: what ends it has to have its place, and memory an end."""
    for name, value in (("_MOST", 8), ("_ENDS", 2)):
        monkeypatch.setattr(module, name, value)
    failures, services = failures_of(tmp_path)
    for rank in range(63):
        record = raised(rank, rank, waited_for=rank != 20)
        failures._add(record)
        if rank == 4:
            services.unseen.append(record.id)
        clock.now += 1.0
    before, now = failures._incidents
    assert [record.rank for record in before.records] == [0, 1, 4, 7, 20] and before.left_out == 61 - 9
    assert [record.rank for record in now.records] == [61, 62] and now.left_out == 0
    services.when_told, services.call_soon = (lambda _what: 0), (lambda function: function())
    assert "rank 4" in failures.report(None)
    assert [record.rank for record in before.records] == [*range(8), 20], "what was put away is in the report, too"
    before.outcome = ""
    failures.finish()
    written = [files.read(path) for path in files.files_of(tmp_path)]
    assert [len(incident.records) for incident in written] == [9, 2], "the file has what memory has not"
    assert [incident.outcome for incident in written] == ["handled", "handled"]


def test_what_the_script_ends_by_has_a_place_in_an_incident_that_is_full(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FULL", 1)
    monkeypatch.setattr(module, "_MOST", 2)
    failures, services = failures_of(tmp_path)
    services.call_soon = lambda function: function()
    for rank in range(5):
        failures.own(raised(rank, rank), needed=rank == 4)
    (incident,) = failures._incidents
    assert [record.rank for record in incident.records] == [0, 1, 4] and incident.left_out == 2
    error = incident.records[-1].exception
    assert error is not None and error.frames[0].locals, "in full"


def test_what_a_thread_has_raised_just_before_the_end_is_reported(tmp_path: Path) -> None:
    """The loop, which adds its record, may have other things to do first."""
    failures, services = failures_of(tmp_path)
    failures._add(raised(0, 1))
    told: list[Callable[[], None]] = []
    services.when_told = lambda _what: 0

    def call_soon(function: Callable[[], None]) -> None:
        told.append(function)
        if len(told) == 2:  # behind the record: only who waits for the loop gets so far
            threading.Thread(target=lambda: [each() for each in told]).start()

    services.call_soon = call_soon
    services.unseen.append(failures.thread_raised(ValueError("bad shard"), "thread 'loader'"))
    assert "ValueError: bad shard" in failures.report(None)
