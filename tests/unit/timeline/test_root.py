"""The root's side of recordings: none is left behind that nobody could end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshrt.errors import ProtocolError, UsageError
from meshrt.hooks.facts import Answered, Gathered, Unanswered
from meshrt.hooks.fate import Fate
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.hooks.snapshot import MeshFacts
from meshrt.selection import Shape
from meshrt.timeline.operations import Begin, Missing, Part, Parts, Ranks, Take
from meshrt.timeline.root import Timelines

Told = Answered[None, Part] | Unanswered
CLIENT = cast(ToolClient, SimpleNamespace(id=7))


class Services:
    """A mesh of two ranks that answer when they are let."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.dropped: list[tuple[int, str]] = []
        self.report: Any = None
        self.refuses = False

        self.ended: dict[int, Fate] = {}

    def meshes(self) -> list[MeshFacts]:
        alive = tuple(rank for rank in (0, 1) if rank not in self.ended)
        return [MeshFacts("m", "", Shape.from_extent({"n": 2}), alive=alive, pids={0: 100, 1: 101}, ended=self.ended)]

    def pending_calls(self) -> dict[int, Any]:
        return {}

    def gather(self, _targets: Any, operation: Any, _seconds: float, report: Any, **_how: Any) -> int:
        if self.refuses:
            raise ProtocolError("too long")
        self.asked.append(operation.name())
        self.report = report
        return 1

    def leave_gather(self, _number: int) -> None:
        pass

    def tell_rank(self, _mesh_id: str, rank: int, operation: Any) -> None:
        self.dropped.append((rank, operation.name()))


def test_a_recording_that_could_not_begin_is_forgotten() -> None:
    services = Services()
    services.refuses = True
    timelines = Timelines(cast(RootServices, services))
    with pytest.raises(ProtocolError):
        asyncio.run(timelines.begin(CLIENT, Begin()))
    assert services.dropped == [(0, "timeline.drop"), (1, "timeline.drop")]
    timelines.rank_born("m", 0)
    assert len(services.dropped) == 2, "it is not begun on ranks that come later"


def test_a_terminal_that_leaves_while_a_recording_begins_leaves_nothing_behind() -> None:
    services = Services()
    timelines = Timelines(cast(RootServices, services))

    async def leave() -> None:
        beginning = asyncio.ensure_future(timelines.begin(CLIENT, Begin()))
        await asyncio.sleep(0)  # it has asked the ranks
        assert services.asked == ["timeline.begin"]
        timelines.client_gone(CLIENT)
        services.report(Gathered([], True))
        with pytest.raises(UsageError, match="was dropped before it had begun"):
            await beginning

    asyncio.run(leave())
    assert services.dropped == [(0, "timeline.drop"), (1, "timeline.drop")]


def test_ranks_that_end_while_it_records_are_named_with_the_reason() -> None:
    async def gone(before: dict[int, Fate], after: dict[int, Fate]) -> list[tuple[int, str]]:
        services = Services()
        services.ended = before
        timelines = Timelines(cast(RootServices, services))
        begun = asyncio.ensure_future(timelines.begin(CLIENT, Begin()))
        await asyncio.sleep(0)
        services.report(Gathered([], done=True))
        name = (await begun).recording
        services.ended = before | after
        (mesh,) = (await timelines.ranks(CLIENT, Ranks(name))).meshes
        return [*mesh.gone]

    died, killed = Fate("died", exit_code=3), Fate("died", signal=9)
    assert asyncio.run(gone({}, {0: died, 1: killed})) == [(0, str(died)), (1, str(killed))]
    assert asyncio.run(gone({0: died}, {1: killed})) == [(1, str(killed))]


def test_a_part_of_each_rank_that_answers_and_why_others_have_none() -> None:
    part = Part(1, 100, [], [], [], [], [], 0, False)

    async def scene() -> Parts:
        services = Services()
        timelines = Timelines(cast(RootServices, services))
        begun = asyncio.ensure_future(timelines.begin(CLIENT, Begin()))
        await asyncio.sleep(0)
        services.report(Gathered([], done=True))
        name = (await begun).recording
        taken = asyncio.ensure_future(timelines.take(CLIENT, Take(name, "m", [0, 1], 1000, {})))
        await asyncio.sleep(0)
        told: list[Told] = [Answered("m", (0,), None, {0: part}), Unanswered("m", (1,), "silent", "")]
        services.report(Gathered(told, done=True))
        return await taken

    assert asyncio.run(scene()) == Parts({"0": part}, [Missing("m", 1, "no answer in time")])
