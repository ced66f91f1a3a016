"""The root session of an IDE: the mesh. It announces ranks, runs lines for all of them, and knows their states.

The IDE is asked to open a session of its own for each rank of the configuration, now and whenever one is born.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshrt.debug.dap.router.channels import RankLink
from meshrt.debug.dap.router.configuration import Configuration, for_rank
from meshrt.debug.dap.router.console import Console
from meshrt.debug.dap.router.ends import Ends
from meshrt.debug.dap.router.raisings import Raisings
from meshrt.debug.dap.router.rank_view import RankView
from meshrt.debug.dap.router.ranks import Key, Lives, Names, Rank, counted
from meshrt.debug.dap.router.view import Peer, RootView
from meshrt.debug.dap.wire import Message, event, failure, response
from meshrt.errors import MeshError, UsageError
from meshrt.hooks.facts import Body

__all__ = ["MOST_SESSIONS", "MeshView"]

#: The most sessions in one window; the user could not work with more.
MOST_SESSIONS = 64
_TOO_MANY = (
    f"a session for each would be more than {MOST_SESSIONS}; choose some with meshRanks, or set meshView to 'threads'"
)
#: The thread that stands for all ranks: an IDE offers to pause a thread.
_ALL = 1
_GREETING = (
    "this console is for all of them: where, p ACTOR EXPRESSION, n, c, pause, help, ... "
    "In the console of a rank such a line begins with mesh: mesh where"
)


class MeshView(RootView):
    """On the router's loop.

    Args:
        number: As in `RootView`.
        number_of: Returns a number for a rank that no other rank has.
        forget: Called when the session ends.
        socket: See `for_rank`.
    """

    def __init__(
        self,
        peer: Peer,
        configuration: Configuration,
        number: int,
        number_of: Callable[[Key], int],
        forget: Callable[[RootView], None],
        socket: str = "",
    ) -> None:
        super().__init__(peer, configuration, number)
        self._number_of = number_of
        self._forget = forget
        self._socket = socket
        self.ranks: dict[Key, Rank] = {}
        self._announces = False
        #: A text for the user about ranks that are in another IDE.
        self._taken = ""
        self._reverse = False
        #: The sessions of its ranks that are open, by rank.
        self._sessions: dict[Key, RankView] = {}
        #: Ranks that have one, or are about to; and whether it was said that others have none.
        self._announced: set[Key] = set()
        self._full = False
        self._lives = Lives()
        self._names = Names()
        #: What ranks cost while the IDE has them, as it was told.
        self._prices: set[str] = set()
        #: Why ranks cannot be attached to, as it was told.
        self._refusals: set[str] = set()
        #: Those ranks: a failed session in the IDE is not reported again.
        self._refusing: set[Key] = set()
        self._console = Console(peer.program, self._links, self._which, self._names, number)
        self._ends = Ends(peer, self._names)
        self._raisings = Raisings(peer, self._names)

    def attach(self, request: Message, initialize: dict[str, Any]) -> None:
        """Find the ranks of the configuration."""
        self._reverse = bool(initialize.get("supportsStartDebuggingRequest"))
        self._peer.begin(self._attach(request))

    async def _attach(self, request: Message) -> None:
        try:
            found = await self._peer.which(self.configuration.mesh, self.configuration.ranks)
            if len(found) > MOST_SESSIONS:
                raise UsageError(f"{len(found)} ranks, and {_TOO_MANY}")
            for rank in found:
                self._names.meet(rank)
            # Each would be refused, and an IDE shows a dialog for each.
            taken = [rank for rank in found if rank.ide]
            self._taken = (
                f"{self._names.of(rank.key for rank in taken)}: another window has {_them(taken)}" if taken else ""
            )
            if taken and len(taken) == len(found):
                raise UsageError(f"{self._taken}, through {taken[0].ide}; meshRanks chooses others")
        except (MeshError, ConnectionError) as error:
            self._peer.write(failure(request, str(error)))
            self._peer.hang_up()
            return
        for rank in found:
            if self._lives.new(rank) and not rank.ide:
                self.ranks[rank.key] = rank
        self._peer.write(response(request))
        self._peer.write(event("initialized"))

    def receive(self, message: Message) -> None:
        """Serve a request."""
        if message["type"] != "request":
            return
        command, arguments = message["command"], message.get("arguments") or {}
        if command == "configurationDone":
            self._peer.write(response(message))
            self._announces = True
            if self._taken:
                self.said(f"meshrt: {self._taken}")
            self.said(f"meshrt: {counted(len(self.ranks))}; {_GREETING}")
            for rank in self.ranks.values():
                self._announce(rank)
        elif command == "evaluate":
            self._peer.begin(self._evaluate(message, str(arguments.get("expression", ""))))
        elif command == "threads":
            self._peer.write(response(message, {"threads": [{"id": _ALL, "name": self._summary()}]}))
        elif command == "pause":
            self._peer.begin(self._pause(message))
        elif command == "setBreakpoints":
            why = "set in the session of each rank"
            unset = [{"verified": False, "message": why, **each} for each in arguments.get("breakpoints") or ()]
            self._peer.write(response(message, {"breakpoints": unset}))
        elif command in ("setFunctionBreakpoints", "setExceptionBreakpoints"):
            self._peer.write(response(message, {"breakpoints": []}))
        elif command == "stackTrace":
            self._peer.write(response(message, {"stackFrames": [], "totalFrames": 0}))
        elif command == "disconnect":
            # An IDE does not end these sessions by itself: it would hide them while their ranks may still be stopped.
            for view in tuple(self._sessions.values()):
                view.leave()
            self._peer.write(response(message))
            self._peer.end(left=True)
        elif command in ("source", "modules", "completions", "scopes", "variables", "exceptionInfo"):
            self._peer.write(failure(message, "this session is the mesh; choose that of a rank"))
        else:
            self._peer.write(failure(message, f"{command} is for the session of a rank; this one is the mesh"))

    def born(self, rank: Rank) -> None:
        """Announce it, once in each of its lives."""
        if self._lives.new(rank):
            self._names.meet(rank)
            self.ranks[rank.key] = rank
            if self._announces:
                self._announce(rank)

    def entered(self, view: RankView) -> None:
        """The IDE has opened a session of a rank."""
        self._sessions[view.rank.key] = view

    def left(self, view: RankView) -> None:
        """The session of a rank has ended."""
        if self._sessions.get(view.rank.key) is view:
            del self._sessions[view.rank.key]
            self._announced.discard(view.rank.key)

    def refused(self, rank: Rank, why: str) -> bool:
        """A rank cannot be attached to. The first rank shows why; one line tells of the others."""
        told = why in self._refusals
        self._refusals.add(why)
        self._refusing.add(rank.key)
        if told:
            self._ends.add(rank, why)
        return told

    def lost(self, rank: Rank, why: str) -> None:
        """A rank has ended, or its engine, and not because the IDE has left it."""
        self._ends.add(rank, why)

    def raised(self, rank: Rank, rows: Sequence[Body]) -> None:
        """A rank has expressions of breakpoints that raise."""
        self._raisings.add(rank, rows)

    def costs(self, price: str) -> None:
        """Tell the user once what attaching costs; all ranks with that Python cost the same."""
        if price not in self._prices:
            self._prices.add(price)
            self.said(f"meshrt: {price}")

    async def obey(self, line: str, view: RankView) -> str:
        """Run a line for the mesh that was typed in the session of a rank, and return its output."""
        return await self._console.run(line, view.link)

    def _links(self) -> dict[Key, RankLink]:
        return {key: view.link for key, view in self._sessions.items()}

    def over(self, why: str) -> None:
        """The program has ended."""
        self._ends.close()
        self.said(f"meshrt: {why}")
        self._peer.end()

    def gone(self) -> None:
        """The IDE has left."""
        self._ends.close()
        self._raisings.close()
        self._console.close()
        self._forget(self)

    # -- what it does

    def _announce(self, rank: Rank) -> None:
        if len(self._announced - {rank.key}) >= MOST_SESSIONS:
            if not self._full:
                self._full = True
                self.said(f"meshrt: {rank.name}, and what is born after it, has no session: {_TOO_MANY}")
            return
        self._announced.add(rank.key)
        number = self._number_of(rank.key)
        configuration = for_rank(self.configuration, rank.key, number, rank.name, self.number, self._socket)
        if self._reverse:
            self._peer.ask("startDebugging", {"request": "attach", "configuration": configuration}, self._refused(rank))
        else:
            # What debugpy's adapter sends for a subprocess; clients that know debugpy know it.
            self._peer.write({"type": "event", "event": "debugpyAttach", "body": configuration})

    def _refused(self, rank: Rank) -> Callable[[Message], None]:
        def answered(answer: Message) -> None:
            if not answer.get("success"):
                self._announced.discard(rank.key)
                if rank.key in self._refusing:
                    self._refusing.discard(rank.key)
                    return
                self.said(f"meshrt: the IDE opens no session for {rank.name}: {answer.get('message') or 'it refuses'}")

        return answered

    def _summary(self) -> str:
        links = self._links().values()
        return f"mesh: {counted(len(links))}, {sum(1 for link in links if link.standing)} stopped"

    async def _evaluate(self, message: Message, line: str) -> None:
        if not line.strip() or (message.get("arguments") or {}).get("context") in ("hover", "watch"):
            self._peer.write(failure(message, "this session is the mesh; choose that of a rank, or the debug console"))
            return
        try:
            text = await self._console.run(line)
        except (MeshError, ConnectionError, TimeoutError) as error:
            self._peer.write(failure(message, str(error) or "no answer in time"))
            return
        self._peer.write(response(message, {"result": text, "variablesReference": 0}))

    async def _pause(self, message: Message) -> None:
        try:
            text = await self._console.run("pause")
        except (MeshError, ConnectionError, TimeoutError) as error:
            self._peer.write(failure(message, str(error) or "no answer in time"))
            return
        self._peer.write(response(message))
        self.said(text)


def _them(ranks: Sequence[Rank]) -> str:
    return "it" if len(ranks) == 1 else "them"
