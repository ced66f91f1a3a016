"""What is told of rows of ranks, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from meshrt.debug.dap.router.members import Member
from meshrt.debug.dap.router.ranks import Key, Names, Rank
from meshrt.debug.dap.router.row_events import RowEvents
from meshrt.debug.dap.router.rows import RUNNING
from meshrt.debug.dap.wire import Message

STOP = {"reason": "step", "allThreadsStopped": False}


class Engine:
    """Of one rank, that stands at a line."""

    def __init__(self) -> None:
        self.line = 17
        self.standing = {1: STOP}

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
        ("m", rank): Member(Rank("m", rank, f"rank {rank}", 0, ""), cast(Any, Engine()), Names(), ready=rank > 0)
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
