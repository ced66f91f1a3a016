"""What an IDE is told of ranks that are threads, each by itself. Of very many: `meshrt.debug.dap.router.row_events`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from meshrt.debug.dap.router.ids import Ids
from meshrt.debug.dap.router.members import Member
from meshrt.debug.dap.router.ranks import Key
from meshrt.debug.dap.router.view import Peer
from meshrt.debug.dap.wire import Fields, event
from meshrt.errors import DebugAdapterError

__all__ = ["ThreadEvents"]

#: Seconds that an engine has to list its threads. After that the known threads are shown.
_THREADS_SECONDS = 1.0


class ThreadEvents:
    """The threads of one session. On the router's loop.

    Args:
        members: The ranks, by key.
        ids: Where threads have their numbers from.
    """

    def __init__(self, peer: Peer, members: Mapping[Key, Member], ids: Ids[Key]) -> None:
        self._peer = peer
        self._members = members
        self._ids = ids
        #: Threads that the IDE knows of, by the rank and their number there.
        self._known: dict[Key, set[int]] = {}
        #: Ranks that the IDE was told are stopped.
        self._told_of: set[Key] = set()
        #: The IDE is to be told of them.
        self.begun = False
        self._withdrawn = False

    def begin(self) -> None:
        """The IDE asks for threads itself."""
        self.begun = True

    def withdraw(self) -> None:
        """Tell the IDE that all these threads have exited: rows replace them from here on."""
        self._withdrawn = True
        for key in self._told_of:
            for thread in self._members[key].link.stops:
                # The IDE may keep showing the thread that it was at.
                self.continued(self._members[key], thread)
        for key in list(self._known):
            self.left(self._members[key])

    async def threads(self) -> list[Fields]:
        """Return the threads of all ranks, as the request of this name is answered."""
        await asyncio.gather(*(_learn_threads(member) for member in self._members.values() if member.ready))
        shown: list[Fields] = []
        if self._withdrawn:
            return shown  # numbers of threads are another's by now
        for key, member in sorted(self._members.items()):
            if member.is_shown:
                self._known[key] = set(member.threads)
                for thread, name in member.threads.items():
                    number = self._ids.here(key, "threadId", thread)
                    # A further actor of the rank has a thread that is called after it.
                    whose = f"{member.called}: {name.removeprefix('meshrt-')}"
                    what = member.rank.name if thread == 1 else whose
                    shown.append({"id": number, "name": what if member.ready else f"{what} does not answer"})
        return shown

    def at(self, number: int) -> list[tuple[Member, int]] | None:
        """Return the rank of a thread, and its number there; None if it does not exist any more."""
        found = self._ids.there(number, "threadId")
        if found is None or found[0] not in self._members:
            return None
        return [(self._members[found[0]], found[1])]

    def came(self, member: Member) -> None:
        """A rank is attached to later than the others, or is to be and does not answer."""
        self._known.pop(member.rank.key, None)  # one that was silent had another name
        self.thread(member, "started", 1)

    def left(self, member: Member) -> None:
        """A rank has ended."""
        self._told_of.discard(member.rank.key)
        for thread in sorted(self._known.get(member.rank.key, ())):
            self.thread(member, "exited", thread)
        self._known.pop(member.rank.key, None)

    def thread(self, member: Member, reason: str, thread: int) -> None:
        """A thread of a rank has started or exited. The IDE is told once, by the first report."""
        known = self._known.setdefault(member.rank.key, set())
        if (reason == "started") == (thread in known):
            return
        known.symmetric_difference_update({thread})
        number = self._ids.here(member.rank.key, "threadId", thread)
        self._peer.write(event("thread", reason=reason, threadId=number))

    def stopped(self, member: Member, thread: int, why: Fields) -> None:
        """A thread of a rank has stopped. ``why`` is the event body, without the thread and the focus hint."""
        key = member.rank.key
        link = member.link
        # The IDE shows the first stop. Later stops do not take the focus, except that of the rank being stepped.
        keeps = bool(self._told_of - {key}) if link.looked is None else not link.looked
        link.looked = None
        self._told_of.add(key)
        self._known.setdefault(key, set()).add(thread)
        told = {**why, "threadId": self._ids.here(key, "threadId", thread), "preserveFocusHint": keeps}
        self._peer.write({"type": "event", "event": "stopped", "body": told})

    def continued(self, member: Member, thread: int) -> None:
        """A thread has resumed without a request of the IDE."""
        number = self._ids.here(member.rank.key, "threadId", thread)
        self._peer.write(event("continued", threadId=number, allThreadsContinued=False))

    def runs(self, member: Member) -> None:
        """A rank has resumed."""
        self._told_of.discard(member.rank.key)

    def close(self) -> None:
        """The session is over."""


async def _learn_threads(member: Member) -> None:
    try:
        async with asyncio.timeout(_THREADS_SECONDS):
            body = await member.link.request("threads", {})
    except (DebugAdapterError, TimeoutError):
        return  # it is in C code, or ends: what is known of it is shown
    found = {int(each["id"]): str(each["name"]) for each in body.get("threads") or ()}
    if found:
        main = [thread for thread, name in found.items() if name == "MainThread"]
        member.threads = {thread: found[thread] for thread in [*main, *(set(found) - set(main))]}
