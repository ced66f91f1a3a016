"""What an IDE is told of rows of ranks: stops are gathered for a moment, as many ranks stop at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from meshrt.debug.dap.router.members import Member
from meshrt.debug.dap.router.ranks import Key, Names
from meshrt.debug.dap.router.rows import Row, Rows
from meshrt.debug.dap.router.view import Peer
from meshrt.debug.dap.wire import event
from meshrt.errors import DebugAdapterError

__all__ = ["RowEvents"]

#: Seconds in which stops are gathered before rows are told.
_WAVE = 0.05
#: Stack frames by which ranks are sorted into rows.
_LEVELS = 20


class RowEvents:
    """Those of one session (`meshrt.debug.dap.router.members.Shown`). On the router's loop.

    Args:
        members: The ranks, by key.
        first: The first number of a row.
    """

    def __init__(self, peer: Peer, members: Mapping[Key, Member], names: Names, first: int) -> None:
        self._peer = peer
        self._members = members
        self._names = names
        self._rows = Rows(names, first)
        #: The rows as the IDE knows them, by number.
        self._shown: dict[int, Row] = {}
        #: The numbers of those that it has been told stand.
        self._standing: set[int] = set()
        self._telling: asyncio.TimerHandle | None = None
        #: Ranks that have stopped since it was told, and the events that said so, of all that stand.
        self._newly: set[Key] = set()
        self._why: dict[Key, dict[str, Any]] = {}

    def begin(self) -> None:
        """Tell of the rows that there are: not every IDE asks for them before something stops."""
        for row in self.look():
            self._peer.write(event("thread", reason="started", threadId=row.number))

    def look(self) -> list[Row]:
        """Return the rows as they are now: the IDE knows them from here on."""
        rows = self._rows.sort({key: member.place for key, member in self._members.items() if member.is_shown})
        self._shown = {row.number: row for row in rows}
        return rows

    async def threads(self) -> list[dict[str, Any]]:
        """Return the rows, as the request for threads is answered."""
        return [{"id": row.number, "name": row.name} for row in self.look()]

    def at(self, number: int) -> list[tuple[Member, int]] | None:
        """Return the ranks of a row that the IDE knows, and the thread that stands in each; None: there are none."""
        row = self._shown.get(number)
        found = () if row is None else row.members
        # Of a row whose ranks have all ended the IDE may not have been told yet.
        return [(member, member.thread) for key in found if (member := self._members.get(key))] or None

    def silent(self, member: Member) -> None:
        """A rank that is to be attached to does not answer."""
        self._tell_soon()

    def came(self, member: Member) -> None:
        """A rank is attached to later than the others."""
        self._tell_soon()

    def left(self, member: Member) -> None:
        """A rank has ended."""
        self.runs(member)

    def thread(self, member: Member, reason: str, thread: int) -> None:
        """Rows are of ranks, whatever threads these have."""

    def continued(self, member: Member, thread: int) -> None:
        """`runs` says so."""

    def close(self) -> None:
        """The session is over."""
        if self._telling is not None:
            self._telling.cancel()

    def stopped(self, member: Member, thread: int, why: dict[str, Any]) -> None:
        """A rank stands; ``why`` is the body of the event, as the IDE is to have it, but for the row."""
        self._peer.begin(self._look_where(member, thread, why))

    async def _look_where(self, member: Member, thread: int, why: dict[str, Any]) -> None:
        """Find out where a rank stands, and tell of it."""
        try:
            stack = await member.link.request("stackTrace", {"threadId": thread, "startFrame": 0, "levels": _LEVELS})
        except DebugAdapterError:
            return  # it went on, or has ended, meanwhile
        if not member.link.standing:
            return
        frames = [
            (str((frame.get("source") or {}).get("path", "")), int(frame["line"]), str(frame["name"]))
            for frame in reversed(stack.get("stackFrames") or ())
        ]
        member.place = tuple(frames) or (("", 0, "?"),)
        self._newly.add(member.rank.key)
        self._why[member.rank.key] = why
        self._tell_soon()

    def runs(self, member: Member) -> None:
        """A rank stands no more, or has ended."""
        self._newly.discard(member.rank.key)
        self._why.pop(member.rank.key, None)
        self._tell_soon()

    def _tell_soon(self) -> None:
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(_WAVE, self._tell)

    def _tell(self) -> None:
        """Tell of rows in which ranks have newly stopped, of those with others than before, and of those that went."""
        self._telling = None
        before = self._shown
        rows = self.look()
        for number in self._standing - set(self._shown):
            # An IDE may hold on to the row that it was at, though it has gone, and take the next stop for another one.
            self._peer.write(event("continued", threadId=number, allThreadsContinued=False))
        self._standing &= set(self._shown)
        for number in set(before) - set(self._shown):
            self._peer.write(event("thread", reason="exited", threadId=number))
        newly, self._newly = self._newly, set()
        changed = [row for row in rows if row.number not in before or before[row.number].name != row.name]
        shown = told = False
        # Those that draw the eyes first: what comes first is what some IDEs go to.
        for row in sorted(rows, key=lambda row: newly.isdisjoint(row.members)):
            new = not newly.isdisjoint(row.members)
            if not (row.stands and (new or row in changed)):
                continue
            why = next((self._why[key] for key in row.members if key in newly), self._why[row.members[0]])
            # The first that is new is shown; the others do not take a person's eyes off it.
            body = {**why, "threadId": row.number, "preserveFocusHint": shown or not new}
            body["description"] = self._described(row, why)
            self._peer.write({"type": "event", "event": "stopped", "body": body})
            self._standing.add(row.number)
            shown, told = shown or new, True
        if changed and not told:
            # The IDE asks for all rows behind that, as behind a stop; else it goes on showing the ranks of before.
            self._peer.write(event("thread", reason="started", threadId=changed[0].number))

    def _described(self, row: Row, why: dict[str, Any]) -> str:
        """Why a row stands, and how many ranks do: of a single row an IDE shows no name."""
        count = len(row.members)
        what = why.get("description") or why.get("reason") or "paused"
        return f"{f'{count} ranks' if count > 1 else self._names.of(row.members)}: {what}"
