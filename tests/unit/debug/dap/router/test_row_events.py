"""Rows of ranks: which ranks are one row, what is told of rows, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from meshrt.debug.dap.router.members import RUNNING, Member, Place
from meshrt.debug.dap.router.ranks import Key, Names, Rank
from meshrt.debug.dap.router.row_events import RowEvents, Rows
from meshrt.debug.dap.wire import Message

TRAIN: Place = (("/src/main.py", 3, "main"), ("/src/train.py", 9, "step"))
LOAD: Place = (("/src/main.py", 3, "main"), ("/src/load.py", 5, "next"))
PLACES = st.sampled_from([RUNNING, TRAIN, LOAD])
KEYS = st.tuples(st.sampled_from(["m1", "m2"]), st.integers(0, 9))
STOP = {"reason": "step", "allThreadsStopped": False}


class Engine:
    """Of one rank, that stands at a line."""

    def __init__(self) -> None:
        self.line = 17
        self.stops = {1: STOP}

    async def request(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        assert command == "stackTrace", arguments
        return {"stackFrames": [{"name": "step", "line": self.line, "source": {"path": "/src/train.py"}}]}


class Editor:
    """What it has been told since it was last asked, each as few words."""

    def __init__(self) -> None:
        self._told: asyncio.Queue[Message] = asyncio.Queue()
        self._work: asyncio.Task[None] | None = None

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = asyncio.get_running_loop().create_task(work)

    async def done(self) -> None:
        assert self._work is not None
        await self._work

    def write(self, message: Message) -> None:
        self._told.put_nowait(message)

    async def told(self, count: int) -> list[tuple[str, int, str]]:
        async with asyncio.timeout(30):
            heard = [await self._told.get() for _ in range(count)]
        return [
            (each["event"], each["body"]["threadId"], each["body"].get("description") or each["body"].get("reason", ""))
            for each in heard
        ]


async def stop_at(editor: Editor, events: RowEvents, member: Member, line: int) -> None:
    engine = cast(Engine, member.link)
    engine.line = line
    events.stopped(member, 1, STOP)
    await editor.done()


async def course() -> None:
    editor = Editor()
    members: dict[Key, Member] = {
        ("m", rank): Member(Rank("m", rank, f"rank {rank}"), cast(Any, Engine()), Names(), ready=rank > 0)
        for rank in range(3)
    }
    events = RowEvents(cast(Any, editor), members, Names(), 1)
    events.begin()
    assert await editor.told(1) == [("thread", 1, "started")]
    # One that joins later: the row has another name.
    members["m", 0].ready = True
    events.came(members["m", 0])
    assert await editor.told(1) == [("thread", 1, "started")]
    for member in members.values():
        await stop_at(editor, events, member, 17)
    assert await editor.told(2) == [("thread", 1, "exited"), ("stopped", 2, "3 ranks: step")]
    # The row that one has stepped out of is the larger one, and not what a person waits for.
    await stop_at(editor, events, members["m", 2], 18)
    assert await editor.told(2) == [("stopped", 3, "rank 2: step"), ("stopped", 2, "2 ranks: step")]
    # Rows that are no more are let go of, before others take their place.
    for rank in (0, 1):
        await stop_at(editor, events, members["m", rank], 18)
    assert await editor.told(3) == [("continued", 2, ""), ("thread", 2, "exited"), ("stopped", 3, "3 ranks: step")]
    for member in members.values():
        member.place = RUNNING
        events.runs(member)
    assert await editor.told(3) == [("continued", 3, ""), ("thread", 3, "exited"), ("thread", 4, "started")]
    # As long as one of its ranks lives there is a row, and no longer, whatever the IDE has been told.
    first = members.pop(("m", 0))
    events.left(first)
    assert [member.rank.rank for member, _ in events.at(4) or ()] == [1, 2]
    for member in members.values():
        events.left(member)
    members.clear()
    assert events.at(4) is None and events.at(3) is None
    events.close()


def test_what_is_told_of_rows() -> None:
    asyncio.run(course())


def test_a_row_for_each_class() -> None:
    rows = Rows(Names(), 1)
    shown = rows.sort({("m1", rank): LOAD if rank == 2 else RUNNING if rank > 5 else TRAIN for rank in range(40)})
    assert [row.name for row in shown] == [
        "5 ranks 0-1,3-5 at train.py:9 (step)",
        "rank 2 at load.py:5 (next)",
        "34 ranks 6-39 running",
    ]
    # A row keeps its number as long as its class has ranks.
    again = rows.sort({("m1", rank): LOAD if rank == 2 else TRAIN for rank in range(40)})
    assert [row.number for row in again] == [shown[0].number, shown[1].number]
    assert again[0].members == tuple(("m1", rank) for rank in range(40) if rank != 2)
    assert rows.sort({("m1", 0): RUNNING})[0].number not in {row.number for row in shown}


def test_ranks_of_two_meshes_are_told_apart() -> None:
    names = Names()
    for mesh, called in (("m1", "trainers"), ("m2", "")):
        names.meet(Rank(mesh, 0, "rank 0", mesh_name=called))
    shown = Rows(names, 7).sort({("m1", 0): TRAIN, ("m1", 1): TRAIN, ("m2", 0): TRAIN})
    assert [row.name for row in shown] == [
        "trainers 2 ranks 0-1 at train.py:9 (step)",
        "m2 rank 0 at train.py:9 (step)",
    ]
    assert [row.number for row in shown] == [7, 8]
    everyone = [("m2", 4), ("m1", 0), ("m1", 1), ("m2", 5), ("m1", 7)]
    assert names.of(everyone) == "trainers ranks 0-1,7, m2 ranks 4-5"
    names.meet(Rank("m3", 0, "rank 0", mesh_name="trainers"))
    assert names.of([("m1", 0), ("m1", 1), ("m3", 0)]) == "m1 ranks 0-1, m3 rank 0", "a name that two have is none"
    names = Names()
    for mesh in ("m1", "m2"):
        names.meet(Rank(mesh, 0, "rank 0", mesh_name={"m1": "trainers"}.get(mesh, "")))
    assert names.numbers(everyone[:2]) == "trainers 0, m2 4" and names.of([("m1", 3)]) == "trainers rank 3"


@given(st.lists(st.dictionaries(KEYS, PLACES), max_size=4))
def test_every_rank_is_in_one_row(looks: list[dict[tuple[str, int], Place]]) -> None:
    rows = Rows(Names(), 1)
    for places in looks:
        shown = rows.sort(places)
        assert sorted(key for row in shown for key in row.members) == sorted(places)
        assert len({row.number for row in shown}) == len(shown)
        for row in shown:
            assert {places[key] for key in row.members} == {row.place}
