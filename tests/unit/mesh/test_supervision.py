"""Who is asked about a failure, and when nobody is."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.actor.faults import Decided, Fault, Supervise
from meshrt.errors import MeshError, MeshFailure, ProtocolError, RankPlace, RemoteException
from meshrt.hooks.fate import Fate
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.record import Owner
from meshrt.mesh.registry import Registry
from meshrt.mesh.services import Services
from meshrt.mesh.supervision import Supervision
from meshrt.wire.operations import Told

DIED = Fate("died", signal=9)


class Root:
    """What supervision finds in the root: its registry, services and alarm. Time goes on with `later`."""

    def __init__(self) -> None:
        self.meshes: dict[str, Any] = {}
        self.own: dict[str, Any] = {}
        self.delayed: list[Callable[[], None]] = []
        #: Who was asked, and what is to have the answer.
        self.asked: list[tuple[str, Future[Decided]]] = []
        self.announced: list[str] = []
        self.told: list[MeshFailure] = []
        self.unseen: deque[str] = deque()
        self.holds = self.silent = False
        #: How often a question was too long, because of what ranks have printed.
        self.in_full = 0
        me: Any = self
        self.supervision = Supervision(me, me, me)

    def mesh(self, name: str, owner: Owner | None = None) -> Any:
        self.meshes[name] = SimpleNamespace(
            mesh_id=name,
            name=name,
            owner=owner,
            fates={},
            stopped=None,
            singleton=False,
            owner_of=lambda _actor, _rank: self.meshes[name].owner,
            owners_at=lambda _rank: [self.meshes[name].owner],
            rank_place=lambda rank: RankPlace(name, "", rank),
            place=lambda rank: f"rank {rank}",
        )
        return self.meshes[name]

    def on_report(self, *_handler: object) -> None:
        """Ranks are told nothing."""

    def call_later(self, _seconds: float, function: Callable[[], None]) -> None:
        self.delayed.append(function)

    def ask_rank(self, mesh_id: str, rank: int, asked: Supervise) -> Future[Decided]:
        if any(fault.fate is not None and fault.fate.log_tail for fault in asked.faults):
            self.in_full += 1
            raise ProtocolError("a control message of 2 MiB is too long")
        answer: Future[Decided] = Future()
        self.asked.append((f"{asked.actor} on rank {rank} of {mesh_id}", answer))
        return answer

    def held(self) -> bool:
        return self.holds

    def announce(self, text: str) -> None:
        self.announced.append(text)

    def noted(self, lost: object) -> None:
        """A rank was told."""

    def add(self, failure: MeshFailure, _unseen: Callable[[], None], *, quiet: bool = False) -> None:
        self.told.append(failure)

    def later(self) -> None:
        delayed, self.delayed = self.delayed, []
        for function in delayed:
            function()


@pytest.fixture
def root() -> Root:
    """A mesh ``inner`` that an actor of ``outer`` has made, which the script has made."""
    made = Root()
    made.mesh("outer")
    made.mesh("inner", Owner("outer", 3, "boss"))
    return made


def lose(root: Root, *ranks: int) -> None:
    for rank in ranks:
        root.supervision.lost(root.meshes["inner"], rank, DIED)


def whole(root: Root) -> list[tuple[int, ...]]:
    return [failure.ranks for failure in root.told]


def notes(root: Root) -> list[str]:
    return list(getattr(root.told[0].error, "__notes__", ()))


def test_what_fails_together_is_asked_about_once_and_handled(root: Root) -> None:
    lose(root, 1, 0)
    assert not root.asked
    root.later()
    ((who, answer),) = root.asked
    assert who == "boss on rank 3 of outer"
    answer.set_result(Decided(True))
    root.later()  # the time to decide is over, and so is the matter
    root.supervision.settle(0)
    root.supervision.finish()
    assert root.told == [] and root.announced == ["2 failures of inner: handled by boss.__supervise__()"]


def test_it_goes_up_with_a_note_of_what_was_raised(root: Root) -> None:
    root.meshes["outer"].owner = Owner("top", 0, "head")
    root.mesh("top")
    lose(root, 1)
    root.later()
    root.asked[0][1].set_result(Decided(False, "raised in __supervise__(): LookupError: no spare"))
    assert [who for who, _ in root.asked] == ["boss on rank 3 of outer", "head on rank 0 of top"]
    root.asked[1][1].set_exception(MeshError("it is gone"))
    assert whole(root) == [(1,)]
    assert notes(root) == ["boss on outer rank 3 (creator of inner) raised in __supervise__(): LookupError: no spare"]


def test_an_owner_that_has_stopped_the_mesh_is_not_asked(root: Root) -> None:
    lose(root, 1)
    thread = RemoteException("OSError", "no disk", "", failure="7.1")
    root.supervision.stray("inner", Fault(RankPlace("inner", "", 0), remote=thread, what="thread 'loader'"))
    root.meshes["inner"].stopped = object()
    root.later()
    root.supervision.finish()
    assert root.asked == [] and root.told == []
    assert list(root.unseen) == ["7.1"]  # no caller was told of an exception


def test_what_the_end_of_the_program_has_stopped_is_told(root: Root) -> None:
    lose(root, 1)
    root.meshes["inner"].stopped = object()
    root.silent = True
    root.later()
    root.supervision.finish()
    assert whole(root) == [(1,)]


def test_an_owner_that_stops_the_mesh_when_it_is_asked_has_not_handled_it(root: Root) -> None:
    lose(root, 1)
    root.later()
    root.meshes["inner"].stopped = object()
    root.asked[0][1].set_result(Decided(False))
    assert whole(root) == [(1,)]


def test_an_owner_that_has_ended_is_passed_by(root: Root) -> None:
    root.meshes["outer"].fates[3] = DIED
    lose(root, 1)
    root.later()
    assert root.asked == [] and whole(root) == [(1,)]


def test_what_nobody_was_told_of_is_not_remembered_for_ever(root: Root) -> None:
    clock, waits = SimpleNamespace(now=lambda: 0.0), SimpleNamespace(all=list)
    driver: Any = SimpleNamespace(clock=clock, waits=waits, interject=lambda _function: False)
    terminal: Any = SimpleNamespace(announce=lambda _text: None)
    services = Services("cafe", Path(), Registry(), driver, terminal, RootLoop(), lambda _what: 0, {})
    made: Any = root
    supervision = Supervision(made, services, made)
    most = services.unseen.maxlen or 0
    for number in range(most + 1):
        remote = RemoteException("E", "", "", failure=str(number))
        supervision.stray("forgotten", Fault(RankPlace("m", "a", 0), remote=remote))
    assert len(services.unseen) == most and services.unseen[-1] == str(most)


def test_at_the_end_of_the_program_the_script_has_what_is_not_decided(root: Root) -> None:
    lose(root, 1)
    root.later()
    root.supervision.finish()
    assert whole(root) == [(1,)]
    root.asked[0][1].set_result(Decided(True))  # too late
    assert root.announced == [] and len(root.told) == 1


def test_the_time_to_decide_stands_still_while_a_person_holds_a_rank(root: Root) -> None:
    lose(root, 1)
    root.later()
    root.holds = True
    for _ in range(3):
        root.later()
        assert root.told == []
    root.holds = False
    root.later()
    assert whole(root) == [(1,)]
    assert notes(root) == ["boss on outer rank 3 (creator of inner) made no decision within 10 s"]


@pytest.mark.parametrize(("ranks", "in_full"), [(2, 1), (20, 0)])
def test_what_ranks_have_printed_is_left_out_of_a_question_that_is_too_long(
    root: Root, ranks: int, in_full: int
) -> None:
    for rank in range(ranks):
        root.supervision.lost(root.meshes["inner"], rank, Fate("died", signal=9, log_tail=["a line"]))
    root.later()
    assert len(root.asked) == 1 and root.in_full == in_full


def test_the_end_of_a_rank_is_told_to_each_that_has_spawned_an_actor_there(root: Root) -> None:
    record = root.meshes["inner"]
    record.owners_at = lambda rank: [Owner("outer", rank, "spawner"), Owner("outer", 3, "boss")][: 1 + rank]
    lose(root, 0, 1)
    root.later()
    assert sorted(who for who, _ in root.asked) == [
        "boss on rank 3 of outer",
        "spawner on rank 0 of outer",
        "spawner on rank 1 of outer",
    ]


def test_the_maker_of_the_processes_is_asked_before_the_script(root: Root) -> None:
    root.meshes["inner"].owners_at = lambda rank: [Owner("outer", 1, "spawner")]
    lose(root, 0)
    root.later()
    root.asked[0][1].set_result(Decided(False))
    assert [who for who, _ in root.asked] == ["spawner on rank 1 of outer", "boss on rank 3 of outer"]
    root.asked[1][1].set_result(Decided(False))
    assert whole(root) == [(0,)]


@pytest.mark.parametrize(("told", "asked", "script"), [(True, False, 0), (True, True, 1), (False, False, 1)])
def test_an_owner_without_the_method_whom_a_call_has_told_has_decided(
    root: Root, told: bool, asked: bool, script: int
) -> None:
    lose(root, 0)
    root.later()
    if told:
        root.supervision._told("outer", 3, Told("inner", 0, DIED.pid))
    root.supervision._told("other", 0, Told("inner", 0, DIED.pid))  # that is for the other one alone
    root.asked[0][1].set_result(Decided(False, asked=asked))
    assert len(root.told) == script


@pytest.mark.parametrize(("told", "script"), [("1", 0), ("other", 1), ("", 1)])
def test_the_error_of_one_rank_tells_an_owner_of_an_init_that_has_failed_on_several(
    root: Root, told: str, script: int
) -> None:
    def fails(actor: str, rank: int, number: str) -> None:
        remote = RemoteException("ValueError", "no device", "", failure=number)
        fault = Fault(RankPlace("inner", actor, rank), remote=remote, what="__init__")
        root.supervision.stray("inner", fault, answered=True)

    fails("other", 0, "other")
    root.later()
    root.asked[0][1].set_result(Decided(True))
    fails("worker", 0, "0")
    fails("worker", 1, "1")
    root.later()
    if told:
        root.supervision._told("outer", 3, Told("inner", 0, 0, told))
    root.asked[1][1].set_result(Decided(False, asked=False))
    assert len(root.told) == script


def test_what_an_owner_raises_is_said_although_one_above_handles_it(root: Root) -> None:
    root.meshes["outer"].owner = Owner("top", 0, "head")
    root.mesh("top")
    lose(root, 1)
    root.later()
    root.asked[0][1].set_result(Decided(False, "raised in __supervise__(): E", traceback="Traceback ...\nE"))
    root.asked[1][1].set_result(Decided(True))
    assert root.announced[0].startswith(
        "boss on outer rank 3 raised in __supervise__(), which was called for a failure of inner\n"
    )
    assert root.told == []


def test_what_fails_in_the_process_of_the_script_is_told_together_and_at_the_end_at_once(root: Root) -> None:
    root.own["mine"] = None
    for rank in (1, 0):
        root.supervision.stray("mine", Fault(RankPlace("mine", "a", rank), remote=RemoteException("E", "", "")))
    root.later()
    assert [failure.ranks for failure in root.told] == [(0, 1)]
    root.supervision.stray("mine", Fault(RankPlace("mine", "a", 0), remote=RemoteException("E", "", "")))
    root.supervision.finish()
    root.later()
    assert [failure.ranks for failure in root.told] == [(0, 1), (0,)]


def test_the_end_waits_for_what_is_just_being_given_to_the_script(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    root.meshes["inner"].owner = None
    begun, go_on = threading.Event(), threading.Event()

    def slow(failure: MeshFailure, _unseen: Callable[[], None], *, quiet: bool = False) -> None:
        begun.set()
        go_on.wait(10)
        root.told.append(failure)

    monkeypatch.setattr(root, "add", slow)
    lose(root, 1)
    loop = threading.Thread(target=root.later)
    loop.start()
    begun.wait(10)
    threading.Timer(0.1, go_on.set).start()
    root.supervision.finish()
    assert whole(root) == [(1,)]
    loop.join()


def test_what_the_end_has_given_to_the_script_is_not_given_once_more(root: Root) -> None:
    lose(root, 1)
    root.supervision.finish()
    root.later()
    assert whole(root) == [(1,)] and root.asked == []
