"""One session of an IDE in which ranks are threads: the router speaks to all engines on its behalf.

Breakpoints that are set once reach all ranks, those born later included. `continue` resumes all ranks. A step steps the
chosen rank, or all stopped ranks (``meshStep``). If there are very many ranks, a thread is a class of ranks with equal
stacks, and the first of them answers for it.

Numbers of threads, stack frames, variables, sources and breakpoints are those of this session (`RankThreads.ids`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from meshrt.debug.dap.router.channels import RankLink, Watcher
from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.joining import Joining
from meshrt.debug.dap.router.members import Member, ask_all
from meshrt.debug.dap.router.rank_threads import RankThreads
from meshrt.debug.dap.router.ranks import Key, Rank
from meshrt.debug.dap.router.requests import read
from meshrt.debug.dap.router.view import Answer, Peer, RootView
from meshrt.debug.dap.wire import Fields, Message, event, failure, response
from meshrt.errors import MeshError

__all__ = ["ThreadsView"]

#: Seconds for goodbyes, and for what ends behind them.
_GOODBYE = 3.0


class ThreadsView(RootView):
    """The session. On the router's loop.

    Args:
        number, forget: As in `RootView`.
    """

    def __init__(
        self, peer: Peer, configuration: Configuration, number: int, forget: Callable[[RootView], None]
    ) -> None:
        super().__init__(peer, configuration, number, forget)
        self._threads = RankThreads(
            peer,
            self._names,
            self._console,
            self.said,
            self._leave,
            step_all=configuration.step == "all",
            local_roots=configuration.local_roots,
        )
        self._members = self._threads.members
        self._joining = Joining(self._members, self._threads.settings, configuration, self._silent, number)
        self._attached = self._left = self._over = False
        #: The goodbye; it is answered when the ranks are free again.
        self._goodbye: Message | None = None

    def _links(self) -> dict[Key, RankLink]:
        return {key: member.link for key, member in self._members.items() if member.ready}

    # -- coming and going ----------------------------------------------------------------------------------------------

    def attach(self, request: Message, initialize: Fields) -> None:
        """Attach to all ranks of the configuration."""
        self._joining.initialize = initialize
        self._peer.begin(self._attach(request))

    async def _attach(self, request: Message) -> None:
        try:
            found = await self.program.which(self.configuration.mesh, self.configuration.ranks)
        except (MeshError, ConnectionError) as error:
            self._peer.write(failure(request, str(error)))
            self._peer.hang_up()
            return
        for rank in found:  # all of them first: whether there are several meshes is known then
            self._names.meet(rank)
        met = [self._meet(rank) for rank in found if self._is_new(rank)]
        entering = {asyncio.create_task(self._joining.enter(member)): member for member in met}
        try:
            await self._joining.gather(entering, met)
        except asyncio.CancelledError:
            for task in entering:
                task.cancel()
            raise
        for task, member in entering.items():
            if task.done() and task.result():
                self._refused(member)
        refused = [task.result() for task in entering if task.done() and task.result()]
        if refused and len(refused) == len(found):
            self._peer.write(failure(request, refused[0]))
            self._peer.hang_up()
            return
        self._peer.write(response(request))
        self._attached = True
        for text in dict.fromkeys(refused):
            self.said(f"meshrt: {text}")
        for member in self._members.values():
            self.costs(member.link.price)
        self._peer.write(event("initialized"))
        for task, member in entering.items():
            if not task.done():  # silent, or one of very many: the others do not wait for it
                self._peer.begin(self._joins(task, member))

    def _meet(self, rank: Rank) -> Member:
        """Return a new member for a rank that has begun a life, and forget its life before."""
        self._names.meet(rank)
        before = self._members.get(rank.key)
        if before is not None:
            self._forget_of(before)
        watcher = Watcher(
            lambda message: self._event(member, message),
            lambda text: self.said(f"meshrt: {text}"),
            lambda rows: self._raisings.add(rank, rows),
            lambda why: self._closed(member, why),
        )
        link = RankLink(rank, watcher, self._peer.channels)
        member = self._members[rank.key] = Member(rank, link, self._names)
        self._threads.show_rows()
        return member

    def _silent(self, member: Member) -> None:
        """A rank does not answer."""
        if self._attached:  # otherwise the IDE asks for all threads once it is
            self._threads.shown.came(member)

    def born(self, rank: Rank) -> None:
        """Attach to it, once in each of its lives."""
        if not self._left and self._is_new(rank):
            member = self._meet(rank)
            self._peer.begin(self._joins(asyncio.create_task(self._joining.enter(member)), member))

    def _refused(self, member: Member) -> None:
        """A rank cannot be attached to."""
        if self._members.get(member.rank.key) is member:
            del self._members[member.rank.key]
            self._threads.shown.left(member)

    async def _joins(self, entering: asyncio.Task[str], member: Member) -> None:
        """Tell of a rank that is attached to later than the others."""
        try:
            problem = await entering
        finally:
            entering.cancel()
        if problem:
            self._refused(member)
            self.said(f"meshrt: {problem}")
        elif self._members.get(member.rank.key) is member:
            self.costs(member.link.price)
            self._threads.shown.came(member)

    def _closed(self, member: Member, why: str) -> None:
        known = self._members.get(member.rank.key) is member  # otherwise it has refused, or is in its next life
        if known:
            del self._members[member.rank.key]
        if self._left or self._over:
            self._hang_up_if_left()
        elif known:
            if why:
                self._ends.add(member.rank, why)
            self._forget_of(member)

    def _forget_of(self, member: Member) -> None:
        """A rank has ended."""
        key = member.rank.key
        self._print_rest(member)
        self._threads.shown.left(member)
        self._threads.ids.forget(key)
        self._threads.settings.forget(key)

    def over(self, why: str) -> None:
        """The program has ended."""
        self._over = True
        super().over(why)

    def gone(self) -> None:
        """The IDE has closed the connection."""
        self._threads.shown.close()
        for member in self._members.values():  # after a goodbye: those that are not free yet
            member.link.give_up(stay=self.configuration.stay and not self._left)
        super().gone()

    async def _leave(self, message: Message) -> None:
        self._left = True
        self._goodbye = message
        for key, member in list(self._members.items()):
            if not member.ready:  # it has not got as far as a goodbye
                member.link.give_up(stay=False)
                del self._members[key]
        answered = await ask_all(list(self._members.values()), "disconnect", {}, _GOODBYE)
        self._give_up(set(self._members) - {member.rank.key for member, _ in answered})
        self._hang_up_if_left()
        if not self._members:
            return
        await asyncio.sleep(_GOODBYE)  # when all are free the connection ends, and this with it
        if self._members:
            self.said(f"meshrt: {self._names.of(self._members)}: detached; no answer to the disconnect yet")
            self._give_up(set(self._members))
            self._hang_up_if_left()

    def _give_up(self, keys: Iterable[Key]) -> None:
        """Stop waiting for these ranks: they are released when they answer."""
        for key in keys:
            self._members.pop(key).link.give_up(stay=False)

    def _hang_up_if_left(self) -> None:
        if self._goodbye is not None and not self._members:
            self._peer.write(response(self._goodbye))
            self._goodbye = None
            self._peer.end(left=True)

    # -- what the IDE asks ---------------------------------------------------------------------------------------------

    async def _serve(self, message: Message) -> Answer:
        return await read(message).at_threads(self._threads, message)

    # -- what engines tell ---------------------------------------------------------------------------------------------

    def _event(self, member: Member, message: Message) -> None:
        key = member.rank.key
        if self._members.get(key) is not member or message["type"] != "event":
            return
        name, body = message["event"], message.get("body") or {}
        thread = int(body.get("threadId") or 1)
        if name == "stopped":
            self._print_rest(member)  # the user looks at it now
            self._threads.stops(member, body)
        elif name == "continued":
            self._threads.runs(member)
            self._threads.shown.continued(member, thread)
        elif name == "output":
            shown = self._threads.ids.outward(key, body)
            text = member.printed.add(str(body.get("category") or "console"), str(body.get("output", "")))
            if text:
                self._peer.write({"type": "event", "event": name, "body": {**shown, "output": text}})
        elif name == "breakpoint":
            self._threads.settings.say(key, body.get("breakpoint") or {})
        elif name == "thread" and member.ready:  # otherwise the IDE is told of the rank once it is
            self._threads.shown.thread(member, str(body.get("reason", "started")), thread)

    def _print_rest(self, member: Member) -> None:
        for stream, text in member.printed.rest():
            self._peer.write(event("output", category=stream, output=text))
