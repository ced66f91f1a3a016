"""Ranks of a session in which they are threads: those that come late, and those that it is about to have at its end."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from msgspec.structs import replace

from meshrt.debug.dap.router import channels, joining, rank_threads, threads_view
from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.members import WHY_NOT
from meshrt.debug.dap.router.ranks import Key, Rank
from meshrt.debug.dap.router.threads_view import ThreadsView
from meshrt.debug.dap.router.view import Peer
from meshrt.debug.dap.wire import Message, event, failure, response
from meshrt.hooks.facts import Body
from tests.unit.debug.dap.router.fakes import FakeIde, FakeProgram, request, run, settled, until

RANKS = [Rank("m1", rank, f"rank {rank}") for rank in range(3)]


def view_of(ide: FakeIde, **more: Any) -> ThreadsView:
    return ThreadsView(cast(Peer, ide), Configuration.read({"meshView": "threads", **more}), 1, lambda _view: None)


async def ended(ide: FakeIde) -> None:
    await ide.left.wait()
    await asyncio.gather(*ide.tasks)


def refuses(_key: Key, asked: Message) -> Message:
    return response(asked) if asked["command"] == "initialize" else failure(asked, "not now")


class Engines:
    """Each rank has one; what it answers is its own: numbers of breakpoints, and threads."""

    def __init__(self) -> None:
        self._points = 0

    def __call__(self, _key: Key, asked: Message) -> Message:
        if asked["command"] == "threads":
            return response(asked, {"threads": [{"id": 1, "name": "MainThread"}, {"id": 2, "name": "meshrt-other"}]})
        if asked["command"] == "setBreakpoints":
            self._points += 1
            lines = [each["line"] for each in asked["arguments"]["breakpoints"]]
            return response(asked, {"breakpoints": [{"id": self._points, "verified": True, "line": lines[0]}]})
        return response(asked)


async def begun(ide: FakeIde, **more: Any) -> ThreadsView:
    """A session with breakpoints in line 5 that is configured."""
    view = view_of(ide, **more)
    view.attach(request(1, "attach"), {})
    await until(lambda: ide.answer(1))
    view.receive(request(2, "setBreakpoints", source={"path": "a.py"}, breakpoints=[{"line": 5}]))
    view.receive(request(3, "configurationDone"))
    await until(lambda: ide.answer(3))
    return view


def test_a_late_rank_is_told_of_once_and_its_breakpoint_is_that_of_the_ide() -> None:
    async def scene() -> None:
        ide = FakeIde(program := FakeProgram(*RANKS[:2], engine=Engines()))
        view = await begun(ide)
        (point,) = (ide.answer(2) or {})["body"]["breakpoints"]
        # The engine tells of its threads by itself, at any time.
        view.born(RANKS[2])
        await until(lambda: RANKS[2].key in program.opened.values())
        program.say(RANKS[2].key, event("thread", reason="started", threadId=1))
        await until(lambda: ide.events("thread"))
        program.say(RANKS[2].key, event("thread", reason="started", threadId=1))
        program.say(RANKS[2].key, event("stopped", threadId=1, reason="breakpoint", hitBreakpointIds=[3]))
        await until(lambda: ide.events("stopped"))
        (stop,) = ide.events("stopped")
        assert stop["hitBreakpointIds"] == [point["id"]]
        assert ide.events("thread") == [{"reason": "started", "threadId": stop["threadId"]}]
        # It is what the IDE has in its list, and goes from there once.
        view.receive(request(4, "threads"))
        await until(lambda: ide.answer(4))
        shown = {each["id"]: each["name"] for each in (ide.answer(4) or {})["body"]["threads"]}
        assert shown[stop["threadId"]] == "rank 2" and len(shown) == 6
        program.say(RANKS[2].key, event("thread", reason="started", threadId=2))
        program.say(RANKS[2].key, event("thread", reason="exited", threadId=2))
        program.say(RANKS[2].key, event("thread", reason="exited", threadId=2))
        channel = max(program.opened)
        program.tell("dap.closed", channel=channel, why="it was killed")
        await settled()
        gone = [each["threadId"] for each in ide.events("thread") if each["reason"] == "exited"]
        assert sorted(gone) == sorted(number for number, name in shown.items() if name.startswith("rank 2"))
        view.gone()

    run(scene)


def test_a_rank_that_does_not_come_free_keeps_no_ide_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_view, "_GOODBYE", 0.05)

    async def scene() -> None:
        ide = FakeIde(program := FakeProgram(*RANKS[:2], engine=Engines()))
        view = await begun(ide)
        view.receive(request(4, "disconnect"))
        await until(lambda: (RANKS[1].key, "disconnect") in program.asked)
        program.tell("dap.closed", channel=1, why="")
        await ended(ide)
        assert (ide.answer(4) or {})["success"] and program.closed == [2]
        assert ide.events("output")[-1]["output"] == "meshrt: rank 1: detached; no answer to the disconnect yet\n"

    run(scene)


def test_ranks_become_rows_when_there_are_too_many_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_threads, "ROWS_FROM", 2)

    async def scene() -> None:
        frames = {"stackFrames": [{"id": 1, "name": "step", "line": 5, "source": {"path": "a.py"}}]}
        engines = Engines()

        def engine(key: Key, asked: Message) -> Message:
            return response(asked, frames) if asked["command"] == "stackTrace" else engines(key, asked)

        ide = FakeIde(program := FakeProgram(*RANKS[:2], engine=engine))
        view = await begun(ide)
        view.receive(request(4, "threads"))
        program.say(RANKS[0].key, event("stopped", threadId=1, reason="breakpoint", hitBreakpointIds=[1]))
        await until(lambda: ide.answer(4) and ide.events("stopped"))
        threads = {each["id"] for each in (ide.answer(4) or {})["body"]["threads"]}
        (stop,) = ide.events("stopped")
        view.born(RANKS[2])
        # All threads have gone, and what stood there is a row now, under a number that was none of theirs.
        await until(lambda: len(ide.events("stopped")) == 2)
        assert {each["threadId"] for each in ide.events("thread") if each["reason"] == "exited"} == threads
        assert [each["threadId"] for each in ide.events("continued")] == [stop["threadId"]]
        row = ide.events("stopped")[1]
        assert row["threadId"] not in threads and row["description"] == "rank 0: breakpoint"
        assert row["hitBreakpointIds"] == stop["hitBreakpointIds"] and not row["preserveFocusHint"]
        assert any("more than 2 ranks" in each["output"] for each in ide.events("output"))

        async def shown(number: int) -> list[str]:
            view.receive(request(number, "threads"))
            await until(lambda: ide.answer(number))
            return [each["name"] for each in (ide.answer(number) or {})["body"]["threads"]]

        await settled()
        assert await shown(5) == ["rank 0 at a.py:5 (step)", "2 ranks 1-2 running"]
        # What a person looks at goes on being asked for, and so it stays when there are fewer ranks again.
        view.receive(request(6, "stackTrace", threadId=row["threadId"]))
        view.receive(request(7, "stackTrace", threadId=stop["threadId"]))
        await until(lambda: ide.answer(6) and ide.answer(7))
        assert (ide.answer(6) or {})["body"]["stackFrames"][0]["line"] == 5
        assert "no longer exists" in (ide.answer(7) or {})["message"]
        program.tell("dap.closed", channel=max(program.opened), why="it was killed")
        await settled()
        assert await shown(8) == ["rank 0 at a.py:5 (step)", "rank 1 running"]
        view.gone()

    run(scene)


def test_threads_that_are_asked_for_while_they_become_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_threads, "ROWS_FROM", 2)

    async def scene() -> None:
        engines, held = Engines(), []

        def engine(key: Key, asked: Message) -> Message:
            if asked["command"] == "threads":
                held.append((key, asked))
                return event("nothing")
            return engines(key, asked)

        ide = FakeIde(program := FakeProgram(*RANKS[:2], engine=engine))
        view = await begun(ide)
        view.receive(request(4, "threads"))
        program.say(RANKS[0].key, event("stopped", threadId=1, reason="pause"))
        await until(lambda: len(held) == 2 and ide.events("stopped"))
        view.born(RANKS[2])
        await until(lambda: len(ide.events("stopped")) == 2)
        for key, asked in held:
            program.say(key, engines(key, asked))
        await until(lambda: ide.answer(4))
        # The answer is of rows, and what was told of a thread before is taken back.
        rows = {each["id"]: each["name"] for each in (ide.answer(4) or {})["body"]["threads"]}
        assert list(rows.values()) == ["rank 0 at :0 (?)", "2 ranks 1-2 running"]
        first, second = (each["threadId"] for each in ide.events("stopped"))
        assert second in rows and first not in rows
        assert [each["threadId"] for each in ide.events("continued")] == [first]
        assert [each["threadId"] for each in ide.events("thread") if each["reason"] == "exited"][:1] == [first]
        view.gone()

    run(scene)


def test_a_rank_that_is_started_again_while_it_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_AT_ONCE", 1)

    async def scene() -> None:
        ide = FakeIde(program := FakeProgram(*RANKS[:2], opens=False, engine=Engines()))
        view = view_of(ide)
        view.attach(request(1, "attach"), {})
        await program.is_asked.wait()
        view.born(replace(RANKS[1], life=1))
        program.tell("dap.opened", channel=1)
        await until(lambda: 2 in program.opened)
        program.tell("dap.opened", channel=2)
        await until(lambda: ide.answer(1) and ide.events("thread"))
        assert list(program.opened.values()) == [RANKS[0].key, RANKS[1].key] and not program.closed

        async def shown(number: int) -> list[str]:
            view.receive(request(number, "threads"))
            await until(lambda: ide.answer(number))
            return [each["name"] for each in (ide.answer(number) or {})["body"]["threads"]]

        assert await shown(2) == ["rank 0", "rank 0: other", "rank 1", "rank 1: other"]
        # One that is met in its next life first: what ends then is the one before, with all that was of it.
        view.born(replace(RANKS[1], life=2))
        gone = [each["reason"] for each in ide.events("thread")].count("exited")
        await until(lambda: 3 in program.opened)
        program.tell("dap.opened", channel=3)
        await until(lambda: ide.events("thread")[-1]["reason"] == "started")
        program.tell("dap.closed", channel=2, why="it was killed")
        await settled()
        assert gone == 2 and await shown(3) == ["rank 0", "rank 0: other", "rank 1", "rank 1: other"]
        view.gone()

    run(scene)


def test_one_that_answers_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "SILENT_SECONDS", 0.05)

    async def scene() -> None:
        engines = Engines()

        def engine(key: Key, asked: Message) -> Message:
            silent = key == RANKS[1].key and asked["command"] == "pause"
            return event("output", output="") if silent else engines(key, asked)

        ide = FakeIde(program := FakeProgram(*RANKS[:2], engine=engine))
        view = await begun(ide)
        view.receive(request(4, "evaluate", expression="mesh pause", context="repl"))
        view.receive(request(5, "threads"))
        await until(lambda: ide.answer(4) and ide.answer(5))
        assert (ide.answer(4) or {})["body"]["result"] == "ranks 0-1: asked to pause\nrank 1: no answer yet"
        threads: list[Body] = (ide.answer(5) or {})["body"]["threads"]
        view.receive(request(6, "pause", threadId=next(each["id"] for each in threads if each["name"] == "rank 1")))
        await until(lambda: ide.answer(6))
        assert (ide.answer(6) or {})["success"]
        said = [each["output"] for each in ide.events("output")]
        assert f"meshrt: rank 1 does not answer: {WHY_NOT}; pause is done when the rank answers\n" in said
        assert program.asked.count((RANKS[1].key, "pause")) == 2
        # Whatever it says itself, it is named.
        program.tell("dap.said", channel=2, text="rank 10 is no name")
        program.tell("dap.waiting", channel=2, text="stands at a prompt")
        await settled()
        said = [each["output"] for each in ide.events("output")[-2:]]
        assert said == ["meshrt: rank 1: rank 10 is no name\n", "meshrt: rank 1 stands at a prompt\n"]
        view.gone()

    run(scene)


@pytest.mark.parametrize("rows", [False, True], ids=["threads", "rows"])
def test_one_that_is_silent_keeps_nobody_waiting_and_is_shown_as_such(
    monkeypatch: pytest.MonkeyPatch, rows: bool
) -> None:
    monkeypatch.setattr(joining, "_PATIENCE", 60.0)
    monkeypatch.setattr(joining, "_QUIET", 0.01)
    monkeypatch.setattr(channels, "SILENT_SECONDS", 0.05)
    # It has the only turn, and gives it up.
    monkeypatch.setattr(joining, "_AT_ONCE", 1)
    if rows:
        monkeypatch.setattr(rank_threads, "ROWS_FROM", 1)

    async def scene() -> None:
        program = FakeProgram(*RANKS, engine=Engines())
        program.silent[RANKS[1].key] = awakes = asyncio.Event()
        view = await begun(ide := FakeIde(program))

        async def shown(number: int) -> list[str]:
            await until(lambda: len(view._members) == 3 and all(each.is_shown for each in view._members.values()))
            view.receive(request(number, "threads"))
            await until(lambda: ide.answer(number))
            found = {each["name"]: each["id"] for each in (ide.answer(number) or {})["body"]["threads"]}
            if number == 4:
                view.receive(request(5, "pause", threadId=found["rank 1 does not answer"]))
            return [name for name in found if "other" not in name]

        silent = ["rank 0", "rank 1 does not answer", "rank 2"]
        assert await shown(4) == (["2 ranks 0,2 running", "rank 1 does not answer"] if rows else silent)
        await until(lambda: ide.answer(5))
        assert (ide.answer(5) or {})["message"].startswith("no answer from rank 1 yet")
        awakes.set()
        told = len(ide.events("thread"))
        await until(lambda: view._members[RANKS[1].key].ready and len(ide.events("thread")) > told)
        assert await shown(6) == (["3 ranks 0-2 running"] if rows else ["rank 0", "rank 1", "rank 2"])
        view.gone()

    run(scene)


def test_what_an_ide_costs_is_said_once_also_if_all_ranks_come_later() -> None:
    async def scene() -> None:
        ide = FakeIde(program := FakeProgram(price="calls are slow", engine=Engines()))
        view = await begun(ide)
        for rank in RANKS:
            view.born(rank)
        await until(lambda: len(ide.events("thread")) == len(RANKS))
        assert len(program.opened) == len(RANKS)
        assert [each["output"] for each in ide.events("output")].count("meshrt: calls are slow\n") == 1
        view.gone()

    run(scene)


def test_a_rank_that_stands_again_before_others_have_gone_on_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "SILENT_SECONDS", 60.0)

    async def scene() -> None:
        late: list[Message] = []

        def engine(key: Key, asked: Message) -> Message:
            if asked["command"] == "continue" and key == RANKS[1].key:
                late.append(asked)
                return event("output", output="")
            body = {"stackFrames": [{"id": 7, "name": "step", "line": 5}]}
            return response(asked, body if asked["command"] == "stackTrace" else {})

        def stop(rank: Rank) -> None:
            program.say(rank.key, event("stopped", threadId=1, reason="breakpoint"))

        ide = FakeIde(program := FakeProgram(*RANKS[:2], engine=engine))
        view = await begun(ide)
        stop(RANKS[0])
        stop(RANKS[1])
        await until(lambda: len(ide.events("stopped")) == 2)
        number = ide.events("stopped")[0]["threadId"]
        view.receive(request(4, "continue", threadId=number))
        await until(lambda: (RANKS[0].key, "continue") in program.asked)
        await settled()
        stop(RANKS[0])
        await until(lambda: len(ide.events("stopped")) == 3)
        view.receive(request(5, "stackTrace", threadId=number))
        await until(lambda: ide.answer(5))
        (frame,) = (ide.answer(5) or {})["body"]["stackFrames"]
        assert ide.answer(4) is None, "the other one is waited for"
        program.say(RANKS[1].key, response(late.pop()))
        await until(lambda: ide.answer(4))
        view.receive(request(6, "scopes", frameId=frame["id"]))
        await until(lambda: ide.answer(6))
        assert (ide.answer(6) or {})["success"]
        view.gone()

    run(scene)


def test_a_step_that_is_refused_keeps_no_eyes_off_the_next_stop() -> None:
    async def scene() -> None:
        def engine(key: Key, asked: Message) -> Message:
            refused = asked["command"] == "next" and key == RANKS[1].key
            return failure(asked, "not now") if refused else response(asked)

        def stop(rank: Rank) -> None:
            program.say(rank.key, event("stopped", threadId=1, reason="breakpoint"))

        ide = FakeIde(program := FakeProgram(*RANKS[:2], engine=engine))
        view = await begun(ide, meshStep="all")
        stop(RANKS[0])
        stop(RANKS[1])
        await until(lambda: len(ide.events("stopped")) == 2)
        # Of the two it is the chosen one that a person waits for.
        view.receive(request(4, "next", threadId=ide.events("stopped")[0]["threadId"]))
        await until(lambda: ide.answer(4))
        assert "meshrt: rank 1: not now\n" in [each["output"] for each in ide.events("output")]
        for rank in RANKS[:2]:
            program.say(rank.key, event("continued", threadId=1))
        stop(RANKS[1])
        await until(lambda: len(ide.events("stopped")) == 3)
        assert not ide.events("stopped")[2]["preserveFocusHint"]
        view.gone()

    run(scene)


def test_an_engine_that_refuses_is_given_up() -> None:
    async def scene() -> None:
        ide = FakeIde(program := FakeProgram(*RANKS[:2], engine=refuses))
        view_of(ide).attach(request(1, "attach"), {})
        await ended(ide)
        assert sorted(program.opened) == [1, 2] and sorted(program.closed) == [1, 2]
        (answer,) = ide.written
        assert not answer["success"] and answer["message"] == "rank 0: not now"

    run(scene)


def test_a_rank_whose_turn_comes_when_the_ide_has_left_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_AT_ONCE", 1)

    async def scene() -> None:
        ide = FakeIde(program := FakeProgram(*RANKS[:2], opens=False))
        view = view_of(ide)
        view.attach(request(1, "attach"), {})
        await program.is_asked.wait()
        view.receive(request(2, "disconnect"))
        await ended(ide)
        assert program.opened == {1: RANKS[0].key} and program.closed == [1]
        assert {"request_seq": 2, "success": True}.items() <= ide.written[0].items()

    run(scene)
