"""What an IDE is shown if there are too many ranks for a thread each: a row for each class of ranks with equal stacks.

`Rows` sorts ranks into rows, and is pure. `RowEvents` tells the IDE of them. Many ranks stop at once, so stops are
gathered for a moment.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from meshrt.debug.dap.router.members import RUNNING, SILENT, Member, Place
from meshrt.debug.dap.router.ranks import Key, Names
from meshrt.debug.dap.router.view import Peer
from meshrt.debug.dap.wire import Fields, event
from meshrt.errors import DebugAdapterError
from meshrt.program.groups import by_key
from meshrt.selection import fold_ranks

__all__ = ["Row", "RowEvents", "Rows"]

#: Seconds in which stops are gathered before the IDE is told of rows.
_WAVE = 0.05
#: Stack frames by which ranks are sorted into rows.
_LEVELS = 20


@dataclass(frozen=True, slots=True)
class Row:
    """A class of ranks with equal stacks."""

    number: int
    place: Place
    #: The first rank answers for all.
    members: tuple[Key, ...]
    name: str

    @property
    def stopped(self) -> bool:
        """Whether its ranks are stopped."""
        return self.place not in (RUNNING, SILENT)


class Rows:
    """The rows of one session. A row keeps its number as long as there is a rank in its class.

    Args:
        names: How ranks are called.
        first: The first number of a row.
    """

    def __init__(self, names: Names, first: int) -> None:
        self._names = names
        self._numbers = itertools.count(first)
        self._known: dict[tuple[str, Place], int] = {}

    def sort(self, places: Mapping[Key, Place]) -> list[Row]:
        """Return the rows, stopped ones first, then by size with the largest class first.

        Args:
            places: The place of each rank, by mesh id and base rank.
        """
        classes = by_key(((key[0], place), key) for key, place in places.items())
        self._known = {key: self._known.get(key) or next(self._numbers) for key in classes}
        rows = [
            Row(
                self._known[key],
                key[1],
                tuple(sorted(members)),
                self._name(key[0], key[1], [rank for _, rank in members]),
            )
            for key, members in classes.items()
        ]
        return sorted(rows, key=lambda row: (not row.stopped, row.place == SILENT, -len(row.members), row.name))

    def _name(self, mesh: str, place: Place, ranks: list[int]) -> str:
        count = f"{len(ranks)} ranks" if len(ranks) > 1 else "rank"
        if place == SILENT:
            where = "do not answer" if len(ranks) > 1 else "does not answer"
        elif place == RUNNING:
            where = "running"
        else:
            where = f"at {place[-1][0].rpartition('/')[2]}:{place[-1][1]} ({place[-1][2]})"
        return f"{self._names.mesh(mesh)}{count} {fold_ranks(sorted(ranks))} {where}"


class RowEvents:
    """The rows of one session, in the place of `meshrt.debug.dap.router.thread_events`. On the router's loop.

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

    def came(self, member: Member) -> None:
        """A rank is attached to later than the others, or is to be and does not answer."""
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
        if not member.link.stops:
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
