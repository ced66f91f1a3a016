"""The events about rows of ranks for an IDE. Many ranks stop at once, so stops are gathered for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from meshrt.debug.dap.router.members import Member
from meshrt.debug.dap.router.ranks import Key, Names
from meshrt.debug.dap.router.rows import Row, Rows
from meshrt.debug.dap.router.view import Peer
from meshrt.debug.dap.wire import Fields, event
from meshrt.errors import DebugAdapterError

__all__ = ["RowEvents"]

#: Seconds in which stops are gathered before the IDE is told of rows.
_WAVE = 0.05
#: Stack frames by which ranks are sorted into rows.
_LEVELS = 20


class RowEvents:
    """The rows of one session (`meshrt.debug.dap.router.members.Shown`). On the router's loop.

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
        #: The numbers of the rows that the IDE was told are stopped.
        self._told_stopped: set[int] = set()
        self._telling: asyncio.TimerHandle | None = None
        #: Ranks that have stopped since the IDE was last told.
        self._newly: set[Key] = set()
        #: The bodies of the ``stopped`` events of all ranks that are stopped.
        self._why: dict[Key, Fields] = {}

    def begin(self) -> None:
        """Tell the IDE of the present rows: not every IDE asks for them before something stops."""
        for row in self.look():
            self._peer.write(event("thread", reason="started", threadId=row.number))

    def look(self) -> list[Row]:
        """Return the present rows. The IDE knows these rows from here on."""
        rows = self._rows.sort({key: member.place for key, member in self._members.items() if member.is_shown})
        self._shown = {row.number: row for row in rows}
        return rows

    async def threads(self) -> list[Fields]:
        """Return the rows in the form of the answer to a ``threads`` request."""
        return [{"id": row.number, "name": row.name} for row in self.look()]

    def at(self, number: int) -> list[tuple[Member, int]] | None:
        """Return the ranks of a row that the IDE knows, and the stopped thread of each; None if it has no ranks."""
        row = self._shown.get(number)
        found = () if row is None else row.members
        # The IDE may not have been told yet that all ranks of a row have ended.
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
        """Do nothing: a row contains ranks, whatever threads they have."""

    def continued(self, member: Member, thread: int) -> None:
        """Do nothing: `runs` reports it."""

    def close(self) -> None:
        """Stop telling, as the session is over."""
        if self._telling is not None:
            self._telling.cancel()

    def stopped(self, member: Member, thread: int, why: Fields) -> None:
        """A rank has stopped. ``why`` is the event body for the IDE, without the number of the row."""
        self._peer.begin(self._look_where(member, thread, why))

    async def _look_where(self, member: Member, thread: int, why: Fields) -> None:
        """Ask a rank where it is stopped, and tell the IDE soon."""
        try:
            stack = await member.link.request("stackTrace", {"threadId": thread, "startFrame": 0, "levels": _LEVELS})
        except DebugAdapterError:
            return  # it has resumed or ended meanwhile
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
        """A rank has resumed or ended."""
        self._newly.discard(member.rank.key)
        self._why.pop(member.rank.key, None)
        self._tell_soon()

    def _tell_soon(self) -> None:
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(_WAVE, self._tell)

    def _tell(self) -> None:
        """Tell the IDE of rows with newly stopped ranks, of rows with other ranks than before, and of ended rows."""
        self._telling = None
        before = self._shown
        rows = self.look()
        for number in self._told_stopped - set(self._shown):
            # An IDE may keep showing the row that it was at after that row is gone, and mistake the next stop.
            self._peer.write(event("continued", threadId=number, allThreadsContinued=False))
        self._told_stopped &= set(self._shown)
        for number in set(before) - set(self._shown):
            self._peer.write(event("thread", reason="exited", threadId=number))
        newly, self._newly = self._newly, set()
        changed = [row for row in rows if row.number not in before or before[row.number].name != row.name]
        shown = told = False
        # Newly stopped rows first: some IDEs show the row that comes first.
        for row in sorted(rows, key=lambda row: newly.isdisjoint(row.members)):
            new = not newly.isdisjoint(row.members)
            if not (row.stopped and (new or row in changed)):
                continue
            why = next((self._why[key] for key in row.members if key in newly), self._why[row.members[0]])
            # The IDE shows the first new row; the others do not take the focus from it.
            body = {**why, "threadId": row.number, "preserveFocusHint": shown or not new}
            body["description"] = self._described(row, why)
            self._peer.write({"type": "event", "event": "stopped", "body": body})
            self._told_stopped.add(row.number)
            shown, told = shown or new, True
        if changed and not told:
            # After this event, as after a stop, the IDE asks for all rows; else it would keep showing the old ranks.
            self._peer.write(event("thread", reason="started", threadId=changed[0].number))

    def _described(self, row: Row, why: Fields) -> str:
        """Return why a row is stopped, and how many ranks it has: an IDE shows no name for a single row."""
        count = len(row.members)
        what = why.get("description") or why.get("reason") or "paused"
        return f"{f'{count} ranks' if count > 1 else self._names.of(row.members)}: {what}"
