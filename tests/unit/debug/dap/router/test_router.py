"""Which ranks sessions hear of, and whose is whose: keys are the mesh and the rank, whatever pids there are."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace

from meshrt.debug.dap.router import router as module
from meshrt.debug.dap.router.admission import UnixAdmission
from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.ranks import Rank
from meshrt.debug.dap.router.router import Router
from meshrt.debug.dap.router.view import Peer
from meshrt.debug.dap.wire import event
from meshrt.hooks.facts import Body
from meshrt.transport.tools import Program
from tests.unit.debug.dap.router.fakes import FakeIde, FakeProgram, request, run, settled, until

RANKS = [Rank("m1", rank, f"hosts={rank // 2},gpus={rank % 2}") for rank in range(4)]


def routed(monkeypatch: pytest.MonkeyPatch, program: FakeProgram) -> Router:
    monkeypatch.setattr(module, "ProgramLink", program.linked)
    return Router(cast(Program, program), "", UnixAdmission(), lambda: None)


async def attached(router: Router, program: FakeProgram, **more: Any) -> FakeIde:
    """An IDE whose session of the mesh is configured."""
    ide = FakeIde(program, router.channels)
    view = router.view_of(cast(Peer, ide), Configuration.read(more))
    view.attach(request(1, "attach"), {"supportsStartDebuggingRequest": True})
    await until(lambda: ide.answer(1))
    view.receive(request(2, "configurationDone"))
    await until(lambda: ide.answer(2))
    return ide


async def attached_to_a_rank(router: Router, program: FakeProgram, configuration: Body) -> None:
    """Open the session that was announced with ``configuration``."""
    ide = FakeIde(program, router.channels)
    view = router.view_of(cast(Peer, ide), Configuration.read(configuration))
    view.attach(request(1, "attach", **configuration), {})
    await until(lambda: ide.answer(1))


def test_each_rank_has_a_session_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        program = FakeProgram(*RANKS)
        router = routed(monkeypatch, program)
        ide = await attached(router, program)
        assert [each["name"] for each in ide.announced] == [rank.name for rank in RANKS]
        numbers = [each["subProcessId"] for each in ide.announced]
        assert len(set(numbers)) == 4
        # Whether an IDE keeps all keys or those of debugpy only, its session is that of the rank that was announced.
        for rank, announced in zip(RANKS, ide.announced, strict=True):
            kept = {key: value for key, value in announced.items() if key != "meshRank"}
            for configuration in (announced, kept):
                await attached_to_a_rank(router, program, configuration)
                assert program.opened[max(program.opened)] == rank.key

    run(scene)


def test_each_rank_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        program = FakeProgram(*RANKS)
        router = routed(monkeypatch, program)
        ide = await attached(router, program, meshView="threads")
        assert sorted(program.opened.values()) == [rank.key for rank in RANKS]
        for rank in RANKS:
            program.say(rank.key, event("stopped", threadId=1, reason="breakpoint"))
        await until(lambda: len(ide.events("stopped")) == 4)
        assert len({each["threadId"] for each in ide.events("stopped")}) == 4

    run(scene)


@pytest.mark.parametrize("view", ["sessions", "threads"])
def test_each_life_of_a_rank_is_met_once(monkeypatch: pytest.MonkeyPatch, view: str) -> None:
    async def scene() -> None:
        program = FakeProgram(*RANKS[:2])
        router = routed(monkeypatch, program)
        ide = await attached(router, program, meshView=view, meshName="trainer")

        def met() -> list[str]:
            """The ranks, in the order in which the session has met them."""
            found = [tuple(each["meshRank"]) for each in ide.announced] or list(program.opened.values())
            return [f"{mesh}.{rank}" for mesh, rank in found]

        # Others come. Of many events at once, not each is a question.
        looks = program.looks
        program.ranks = list(RANKS)
        for rank in (*RANKS, *RANKS):
            program.tell("dap.actor", mesh=rank.mesh, rank=rank.rank)
        await until(lambda: len(met()) == 4)
        await settled()
        assert met() == ["m1.0", "m1.1", "m1.2", "m1.3"] and program.looks <= looks + 2

        # One ends, and is started again, with the pid that it had.
        if view == "threads":
            program.tell("dap.closed", channel=3, why="it was killed")
        program.ranks[2] = replace(RANKS[2], life=1)
        program.tell("dap.born", mesh="m1", rank=2)
        await until(lambda: len(met()) == 5)
        program.tell("dap.actor", mesh="m1", rank=2)
        await until(lambda: program.looks >= looks + 3)
        await settled()
        assert met()[4:] == ["m1.2"]

    run(scene)


def test_actors_matter_to_those_alone_who_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        program = FakeProgram(*RANKS[:1])
        router = routed(monkeypatch, program)
        ide = await attached(router, program)
        program.ranks = RANKS[:2]
        looks = program.looks
        program.tell("dap.actor", mesh="m1", rank=1)
        await settled()
        assert program.looks == looks
        program.tell("dap.born", mesh="m1", rank=1)
        await until(lambda: len(ide.announced) == 2)

    run(scene)
