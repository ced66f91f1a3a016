"""The root session of an IDE: the mesh. It announces ranks, runs lines for all of them, and knows their states.

The IDE is asked to open a session of its own for each rank of the configuration, now and whenever one is born.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from meshrt.debug.dap.operations import Raising
from meshrt.debug.dap.router.channels import RankLink
from meshrt.debug.dap.router.configuration import Configuration, for_rank
from meshrt.debug.dap.router.rank_view import RankView
from meshrt.debug.dap.router.ranks import Key, Rank
from meshrt.debug.dap.router.requests import read
from meshrt.debug.dap.router.view import Answer, Peer, RootView
from meshrt.debug.dap.wire import Fields, Message, event, failure, response
from meshrt.errors import MeshError, UsageError
from meshrt.selection import counted

__all__ = ["MOST_SESSIONS", "MeshView"]

#: The most sessions in one window; the user could not work with more.
MOST_SESSIONS = 64
_TOO_MANY = (
    f"at most {MOST_SESSIONS} ranks get a session each; choose ranks with meshRanks, or set meshView to 'threads'"
)
_GREETING = (
    "this console runs commands for all of them: where, p ACTOR EXPRESSION, n, c, pause, help, ... "
    "In the console of a rank, a command begins with mesh: mesh where"
)


class MeshView(RootView):
    """On the router's loop.

    Args:
        number, forget: As in `RootView`.
        number_of: Returns a number for a rank that no other rank has.
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
        super().__init__(peer, configuration, number, forget)
        self._number_of = number_of
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
        #: Why ranks cannot be attached to, as it was told.
        self._refusals: set[str] = set()
        #: Those ranks: a failed session in the IDE is not reported again.
        self._refusing: set[Key] = set()

    def attach(self, request: Message, initialize: Fields) -> None:
        """Find the ranks of the configuration."""
        self._reverse = bool(initialize.get("supportsStartDebuggingRequest"))
        self._peer.begin(self._attach(request))

    async def _attach(self, request: Message) -> None:
        try:
            found = await self.program.which(self.configuration.mesh, self.configuration.ranks)
            if len(found) > MOST_SESSIONS:
                raise UsageError(f"{len(found)} ranks are too many: {_TOO_MANY}")
            for rank in found:
                self._names.meet(rank)
            # Each would be refused, and an IDE shows a dialog for each.
            taken = [rank for rank in found if rank.ide]
            self._taken = f"{self._names.of(rank.key for rank in taken)}: another window is attached" if taken else ""
            if taken and len(taken) == len(found):
                raise UsageError(f"{self._taken}, through {taken[0].ide}; meshRanks chooses other ranks")
        except (MeshError, ConnectionError) as error:
            self._peer.write(failure(request, str(error)))
            self._peer.hang_up()
            return
        for rank in found:
            if self._is_new(rank) and not rank.ide:
                self.ranks[rank.key] = rank
        self._peer.write(response(request))
        self._peer.write(event("initialized"))

    async def _serve(self, message: Message) -> Answer:
        return await read(message).at_mesh(self, message)

    def born(self, rank: Rank) -> None:
        """Announce it, once in each of its lives."""
        if self._is_new(rank):
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

    def raised(self, rank: Rank, rows: Sequence[Raising]) -> None:
        """A rank has expressions of breakpoints that raise."""
        self._raisings.add(rank, rows)

    async def run_line(self, line: str, view: RankView | None = None) -> str:
        """Run a line on the console of the mesh and return its output. Raises MeshError, ConnectionError, TimeoutError.

        Args:
            view: The session of a rank in which the line was typed.
        """
        return await self._console.run(line, None if view is None else view.link)

    def _links(self) -> dict[Key, RankLink]:
        return {key: view.link for key, view in self._sessions.items()}

    def announce(self) -> None:
        """See `meshrt.debug.dap.router.requests.table.MeshSession`."""
        self._announces = True
        if self._taken:
            self.said(f"meshrt: {self._taken}")
        self.said(f"meshrt: {counted(len(self.ranks))}; {_GREETING}")
        for rank in self.ranks.values():
            self._announce(rank)

    def summary(self) -> str:
        """See `meshrt.debug.dap.router.requests.table.MeshSession`."""
        links = self._links().values()
        return f"mesh: {counted(len(links))}, {sum(1 for link in links if link.stops)} stopped"

    def leave(self) -> None:
        """End the sessions of all ranks, and this one."""
        # An IDE does not end these sessions by itself: it would hide them while their ranks may still be stopped.
        for view in tuple(self._sessions.values()):
            view.end()
        self._peer.end(left=True)

    # -- what it does

    def _announce(self, rank: Rank) -> None:
        if len(self._announced - {rank.key}) >= MOST_SESSIONS:
            if not self._full:
                self._full = True
                self.said(f"meshrt: no session for {rank.name} and for later ranks: {_TOO_MANY}")
            return
        self._announced.add(rank.key)
        number = self._number_of(rank.key)
        configuration = for_rank(self.configuration, rank.key, number, rank.name, self.number, self._socket)
        if self._reverse:
            self._peer.ask(
                "startDebugging", {"request": "attach", "configuration": configuration}, partial(self._answered, rank)
            )
        else:
            # What debugpy's adapter sends for a subprocess; clients that know debugpy know it.
            self._peer.write({"type": "event", "event": "debugpyAttach", "body": configuration})

    def _answered(self, rank: Rank, answer: Message) -> None:
        """The IDE has opened a session of a rank, or has refused to."""
        if answer.get("success"):
            return
        self._announced.discard(rank.key)
        if rank.key in self._refusing:
            self._refusing.discard(rank.key)
        else:
            self.said(f"meshrt: the IDE opened no session for {rank.name}: {answer.get('message') or 'refused'}")
