"""One question to many ranks: every rank is reported once, whatever becomes of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import msgpack
import pytest

from meshrt import LocalEngine, MeshError, UsageError, proc_mesh
from meshrt.errors import ProtocolError, SpawnError
from meshrt.hooks.operations import Data, Operation
from meshrt.host.gather import _SILENT
from meshrt.mesh.proc_mesh import ProcMesh
from meshrt.mesh.program import start_root
from meshrt.wire.frames import CONTROL_MAX
from meshrt.wire.peer import LATER
from tests.support.actors import Echo
from tests.support.asking import Question, everybody
from tests.support.footprint import resident_bytes
from tests.support.pausing import pause, paused
from tests.support.questions import Stuck, serve_questions
from tests.support.waiting import wait_until

WAIT = 30

ENGINES = [
    pytest.param(None, id="default"),
    *(pytest.param(LocalEngine(agents), id=f"{agents}-agents") for agents in (2, 4)),
]


def started(count: int, engine: Any = None) -> ProcMesh:
    mesh = proc_mesh(n=count, engine=engine, setup=serve_questions)
    mesh.spawn("echo", Echo).rank.call().get(WAIT)
    return mesh


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_equal_answers_are_one_group(engine: LocalEngine | None) -> None:
    started(8, engine)

    question: Question

    def came_together() -> bool:
        # An agent does not wait long for ranks that are late: their answers are further groups.
        nonlocal question
        question = Question("test.parity", {"a": [1, 2]})
        question.wait()
        return len(question.groups) == 2

    wait_until(came_together, WAIT)
    groups = question.groups
    by_answer = {group.same["odd"]: group for group in groups}
    assert len(groups) == len(by_answer) == 2
    assert by_answer[0].ranks == (0, 2, 4, 6) and by_answer[1].ranks == (1, 3, 5, 7)
    assert all(group.kind == "answered" for group in groups)
    assert by_answer[1].per == {rank: {"rank": rank, "was": {"a": [1, 2]}} for rank in (1, 3, 5, 7)}
    assert question.reports[-1].done


@pytest.mark.slow
@pytest.mark.parametrize("preload", [[], ["json"]])
def test_ranks_that_are_not_forked_yet_answer_too(preload: list[str]) -> None:
    mesh = proc_mesh(n=48, preload=preload)
    groups = Question("stopped", {"actors": []}, targets={mesh.mesh_id: range(48)}).wait()
    assert {group.kind for group in groups} == {"answered"}
    assert sorted(rank for group in groups for rank in group.ranks) == list(range(48))


def test_several_meshes_and_parts_of_them() -> None:
    started(3)
    started(4)
    first, second = everybody()
    question = Question("test.parity", targets={first: [2, 0], second: [3], "unknown": [0, 1]})
    groups = question.wait()
    assert {(group.mesh_id, group.kind, group.ranks) for group in groups} == {
        (first, "answered", (0, 2)),
        (second, "answered", (3,)),
        ("unknown", "gone", (0, 1)),
    }


def said(question: Question, ranks: int) -> list[Any]:
    """What so many ranks have answered, each answer once."""
    groups = question.wait()
    assert sorted(rank for group in groups for rank in group.ranks) == list(range(ranks))
    return [group.same for group in groups]


def test_answers_of_any_form() -> None:
    started(2)
    assert said(Question("test.plain"), 2) == [{"answer": 1}]
    assert said(Question("test.nothing"), 2) == [None]
    (refused,) = Question("test.refuse").wait()
    assert (refused.kind, refused.same) == ("refused", "LookupError: not here")
    (unknown,) = Question("test.unknown").wait()
    assert unknown.kind == "refused" and "test.unknown" in unknown.same


def test_nobody_is_asked() -> None:
    started(1)
    question = Question("test.parity", targets={})
    assert question.wait() == [] and len(question.reports) == 1


def test_a_rank_that_never_was() -> None:
    started(2)
    (mesh,) = everybody()
    with pytest.raises(UsageError, match="no rank 2"):
        Question("test.parity", targets={mesh: [1, 2]})


def test_a_question_that_is_too_long() -> None:
    started(1)
    with pytest.raises(ProtocolError, match="too long"):
        Question("test.parity", {"text": "x" * (1 << 20)})
    assert Question("test.parity").wait()[0].kind == "answered"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_many_long_answers_travel_in_several_messages(engine: LocalEngine | None) -> None:
    """Together 8 x 600 KB: no control message holds them."""
    started(8, engine)
    groups = Question("test.long", {"same": 300_000, "per": 300_000}).wait()
    assert sorted(rank for group in groups for rank in group.ranks) == list(range(8))
    assert all(group.same == "x" * 300_000 for group in groups)
    assert all(group.per[rank] == "y" * 300_000 for group in groups for rank in group.ranks)


def test_an_answer_that_is_too_long_is_a_refusal() -> None:
    started(2)
    for group in Question("test.long", {"same": 1 << 20, "per": 0}).wait():
        assert group.kind == "refused" and "too long" in group.same
    # One that just fits between rank and agent, and not with what the agent adds.
    around = len(msgpack.packb({"t": "ok", "id": -1, "body": {"same": "", "per": ""}})) + 4
    question = Question("test.long", {"same": CONTROL_MAX - around, "per": 0})
    assert all(group.kind == "refused" and "the answer is too long" in group.same for group in question.wait())
    assert question.kinds() == {"refused": [0, 1]}


def test_answers_that_come_later() -> None:
    started(4)
    assert said(Question("test.later", {"thread": 1}), 4) == ["from a thread"]
    assert said(Question("test.later", {"seconds": 0.01}), 4) == ["late"]


def test_a_slow_answer_is_not_silence() -> None:
    """A control thread that has taken the question on is not asked for its stacks, and is waited for."""
    started(2)
    slow = Question("test.later", {"seconds": LATER + 3 * _SILENT}, stack_suffices=True)
    assert said(slow, 2) == ["late"]
    assert not slow.reports[0].done and slow.reports[0].groups == []


def test_who_does_not_answer_in_time_is_silent() -> None:
    started(2)
    question = Question("test.later", seconds=0.5, stack_suffices=True)
    (group,) = question.wait()
    assert (group.kind, group.ranks, group.same) == ("silent", (0, 1), {"state": "", "stack": ""})


def test_the_time_of_a_question_begins_anew_with_each_answer() -> None:
    """A thousand ranks on few processors need longer than one rank has time to answer."""
    started(4)
    question = Question("test.later", {"turns": 1.0}, seconds=3)
    question.wait()
    assert question.kinds() == {"answered": [0, 1, 2, 3]}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_rank_that_dies_meanwhile(engine: LocalEngine | None) -> None:
    mesh = started(4, engine)
    pids = mesh.spawn("pids", Echo).pid.call().get(WAIT).values()
    question = Question("test.later")
    wait_until(lambda: question.reports, WAIT)
    os.kill(pids[2], signal.SIGKILL)
    wait_until(lambda: question.groups, WAIT)
    (group,) = question.groups
    assert (group.kind, group.ranks, group.same) == ("gone", (2,), "was killed by SIGKILL")
    for rank in (0, 1, 3):
        os.kill(pids[rank], signal.SIGTERM if rank else signal.SIGKILL)
    assert question.kinds().keys() <= {"gone"}
    question.wait()
    assert question.kinds() == {"gone": [0, 1, 2, 3]}
    again = Question("test.parity", targets={group.mesh_id: [2]})
    assert [(each.kind, each.same) for each in again.wait()] == [("gone", "was killed by SIGKILL")]


@pytest.mark.nightly
def test_an_agent_that_dies_meanwhile() -> None:
    started(4, LocalEngine(agents=2))
    question = Question("test.later", seconds=5)
    wait_until(lambda: question.reports, WAIT)
    (record,) = start_root().registry.running()
    record.agent_of[3].kill()
    wait_until(lambda: question.kinds() == {"gone": [2, 3]}, WAIT)
    question.wait()
    assert question.kinds() == {"gone": [2, 3], "silent": [0, 1]}


def test_an_agent_that_is_stopped() -> None:
    """Its ranks are silent in the end; the root does not wait for it for ever."""
    started(4, LocalEngine(agents=2))
    (record,) = start_root().registry.running()
    agent = record.agent_of[0]
    with paused(agent.pid):
        question = Question("test.parity", seconds=0.4)
        question.wait()
        assert question.kinds() == {"answered": [2, 3], "silent": [0, 1]}
        assert {group.same["state"] for group in question.groups if group.kind == "silent"} == {"host"}
    assert Question("test.parity").wait()[0].kind == "answered"


@pytest.mark.slow
def test_questions_to_an_agent_that_stays_stopped_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = started(4, LocalEngine(agents=2))
    (record,) = start_root().registry.running()
    agent = record.agent_of[0]
    long = {"text": "x" * (CONTROL_MAX // 2)}
    with paused(agent.pid):
        for _ in range(20):
            question = Question("test.parity", long, seconds=0.05)
            question.wait()
            assert question.kinds()["silent"][:2] == [0, 1]
        assert agent.full and agent._link.backlog_bytes < 6 << 20
        measured = asyncio.run_coroutine_threadsafe(
            start_root().services.measure({mesh.mesh_id: range(4)}, 20), start_root().loop.running
        ).result(WAIT)
        assert measured.silent == [agent.host] and {rank for _, rank in measured.ranks} == {2, 3}
        asked = asyncio.run_coroutine_threadsafe(_asked(mesh.mesh_id), start_root().loop.running)
        with pytest.raises(MeshError, match=f"test.pid was not sent to rank 0 .* on {agent.host}"):
            asked.result(WAIT)
        monkeypatch.setattr("meshrt.mesh.spawning._PATIENCE", 0.1)
        with pytest.raises(SpawnError, match=f"host {agent.host} cannot start more ranks: its agent does not answer"):
            mesh.slice(n=0).hosts.spawn_procs()
    wait_until(lambda: not agent.full, WAIT)
    assert Question("test.parity").wait()[0].kind == "answered"


@pytest.mark.nightly
def test_questions_to_a_rank_that_stays_stopped_do_not_pile_up_in_its_agent() -> None:
    mesh = started(2)
    (record,) = start_root().registry.running()
    agent, pid = record.agent_of[0].pid, record.pids[0]
    targets, long = {mesh.mesh_id: [0]}, {"text": "x" * (CONTROL_MAX // 2)}
    with paused(pid):
        before = resident_bytes(agent)
        for _ in range(40):
            question = Question("test.parity", long, targets=targets)
            assert [(group.kind, group.same["state"]) for group in question.wait()] == [("silent", "stopped")]
        assert resident_bytes(agent) < before + (12 << 20)
        asked = asyncio.run_coroutine_threadsafe(_asked(mesh.mesh_id), start_root().loop.running)
        with pytest.raises(MeshError, match=r"test.pid was not sent to rank 0: the rank does not read messages"):
            asked.result(WAIT)
        assert Question("test.parity", targets={mesh.mesh_id: [1]}).wait()[0].kind == "answered"
    assert asyncio.run_coroutine_threadsafe(_answered(mesh.mesh_id), start_root().loop.running).result(WAIT) == pid
    assert Question("test.parity", targets=targets).wait()[0].kind == "answered"


class Pid(Data, frozen=True):
    pid: int


class WhichPid(Operation[Pid], frozen=True, tag="test.pid"):
    """See `serve_questions`."""


async def _asked(mesh_id: str) -> Pid:
    return await start_root().services.ask_rank(mesh_id, 0, WhichPid())


async def _answered(mesh_id: str) -> Any:
    """Ask until the rank has read what it was asked before."""
    async with asyncio.timeout(WAIT):
        while True:
            with contextlib.suppress(MeshError):
                return (await _asked(mesh_id)).pid


def test_a_mesh_that_is_stopped_meanwhile() -> None:
    mesh = started(3)
    question = Question("test.later")
    wait_until(lambda: question.reports, WAIT)
    mesh.stop(0)
    (group,) = question.wait()
    assert (group.kind, group.ranks, group.same) == ("gone", (0, 1, 2), "was stopped")


def test_one_that_is_left_reports_no_more() -> None:
    started(2)
    left = Question("test.later", {"seconds": 2})
    left.leave()
    stays = Question("test.later", {"seconds": 2})
    assert said(stays, 2) == ["late"]
    assert not left.done and not left.groups


def test_many_questions_at_once() -> None:
    started(6, LocalEngine(agents=2))
    questions = [Question("test.parity", {"number": number}) for number in range(30)]
    for number, question in enumerate(questions):
        groups = question.wait()
        assert {group.per[rank]["was"]["number"] for group in groups for rank in group.ranks} == {number}
        assert question.kinds() == {"answered": [0, 1, 2, 3, 4, 5]}


def test_ranks_that_are_just_starting_are_waited_for() -> None:
    mesh = proc_mesh(n=4, preload=["json"])
    assert Question("stopped", {"actors": []}).wait()[0].kind == "answered"
    mesh.stop(0)


def test_a_stopped_and_a_busy_rank(tmp_path: Path) -> None:
    mesh = started(4)
    stuck = mesh.spawn("stuck", Stuck)
    pids = stuck.pid.call().get(WAIT).values()
    stuck.slice(n=1).hold_gil.broadcast(str(tmp_path / "inside"))
    wait_until((tmp_path / "inside").exists, WAIT)
    wait_until(lambda: 1 not in asked().kinds().get("answered", []), WAIT, "it has taken the GIL")
    pause(pids[2])
    question = Question("test.parity", stack_suffices=True, seconds=25)
    others = Question("test.parity", stack_suffices=True, seconds=25)
    for each in (question, others):
        each.wait(20)
        assert each.kinds() == {"answered": [0, 3], "silent": [1, 2]}
        silent = {group.ranks[0]: group.same for group in each.groups if group.kind == "silent"}
        assert silent[2] == {"state": "stopped", "stack": ""}
        assert silent[1]["state"] == "busy" and "in hold_gil" in silent[1]["stack"]
    # A crash that comes later is told as one; the stacks that were asked for are none.
    os.kill(pids[1], signal.SIGABRT)
    os.kill(pids[2], signal.SIGKILL)
    (record,) = start_root().registry.running()
    wait_until(lambda: len(record.fates) == 2, WAIT)
    assert record.fates[1].stack.startswith("Fatal Python error: Aborted") and not record.fates[2].stack


def asked() -> Question:
    """Ask all ranks, for a short time."""
    question = Question("test.parity", seconds=0.8)
    question.wait()
    return question


def asked_of_one_that_holds_its_gil() -> Question:
    """Ask until rank 0 does not answer: it may be about to take the GIL for good."""
    while (question := asked()).kinds() == {"answered": [0, 1]}:
        pass
    assert question.kinds() == {"answered": [1], "silent": [0]}
    return question


def test_a_busy_rank_may_still_answer(tmp_path: Path) -> None:
    """Without ``stack_suffices`` its answer counts, if it comes in time."""
    mesh = started(2)
    pids = mesh.spawn("pids", Echo).pid.call().get(WAIT).values()
    stuck = mesh.slice(n=0).spawn("stuck", Stuck)
    stuck.hold_gil.broadcast(str(tmp_path / "inside"))
    wait_until((tmp_path / "inside").exists, WAIT)
    question = asked_of_one_that_holds_its_gil()
    assert "in hold_gil" in next(group.same["stack"] for group in question.groups if group.kind == "silent")
    os.kill(pids[0], signal.SIGKILL)
