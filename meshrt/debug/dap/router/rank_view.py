"""One session of an IDE with one rank. Their messages pass through unchanged.

Exception: the console of the mesh runs lines of the debug console that begin with ``mesh``. An IDE shows the console of
the session that has stopped, so the user is there more often than in that of the mesh.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from meshrt.debug.dap.operations import Raising
from meshrt.debug.dap.router.channels import RankLink, Watcher
from meshrt.debug.dap.router.configuration import Configuration, for_engine
from meshrt.debug.dap.router.console import hint, mesh_line
from meshrt.debug.dap.router.ranks import Names, Rank
from meshrt.debug.dap.router.requests import passes_on, read
from meshrt.debug.dap.router.sources import Sources
from meshrt.debug.dap.router.told_once import Raisings
from meshrt.debug.dap.router.view import LATER, Answer, Peer, View
from meshrt.debug.dap.wire import RESUMING, Fields, Message, arguments_of, failure, response
from meshrt.errors import MeshError

__all__ = ["Owner", "RankView"]


class Owner(Protocol):
    """The session of the mesh, which has announced this one."""

    def left(self, view: RankView) -> None:
        """The session of a rank has ended."""

    def refused(self, rank: Rank, why: str) -> bool:
        """A rank cannot be attached to. Returns whether the user was already told the same reason for another rank."""

    def lost(self, rank: Rank, why: str) -> None:
        """A rank's session has ended, and not because the IDE has left it. The user is told once for all ranks."""

    def raised(self, rank: Rank, rows: Sequence[Raising]) -> None:
        """A rank has conditions or log points that raise. The user is told once for all ranks."""

    def costs(self, price: str) -> None:
        """Attaching has a cost, in words. The user is told once for all ranks."""

    async def run_line(self, line: str, view: RankView) -> str:
        """Run a line on the console of the mesh. Raises MeshError, ConnectionError, TimeoutError."""


class RankView(View):
    """On the router's loop. Made by an attach request, which it answers once the rank has.

    Args:
        owner: The session of the mesh; None if the IDE has started this session by itself.
    """

    def __init__(self, peer: Peer, configuration: Configuration, rank: Rank, owner: Owner | None) -> None:
        super().__init__(peer)
        self._owner = owner
        self._configuration = configuration
        self.rank = rank
        watcher = Watcher(self._from_engine, self._said, self._raised, self._closed)
        self.link = RankLink(rank, watcher, peer.channels)
        #: For a session that the IDE has started by itself.
        self._raisings = Raisings(self.said, Names())
        self.sources = Sources(peer.channels.program, configuration.local_roots)
        #: The number of a request to evaluate -> what to say if it fails: it is a command of the mesh's console.
        self._hints: dict[int, str] = {}
        #: The rank is attached to: until then `_attach` says why not.
        self._opened = False
        self._left = False
        #: The answer to the goodbye; it is given when the rank is free again.
        self._goodbye: Message | None = None

    def attach(self, request: Message, initialize: Fields) -> None:
        """Attach to the rank."""
        self._peer.begin(self._attach(request, initialize))

    async def _attach(self, request: Message, initialize: Fields) -> None:
        try:
            await self.link.open(initialize, stay=self._configuration.stay, session=self._configuration.session)
        except (MeshError, ConnectionError) as error:
            if self._owner is not None and self._owner.refused(self.rank, str(error)):
                # An IDE shows a dialog for each attach that fails: one whose reason is known just ends.
                self._peer.write(response(request))
                self._end("")
            else:
                self._peer.write(failure(request, str(error)))
                self._end(None)
            return
        self._opened = True
        if self.link.price:
            (self._owner.costs if self._owner is not None else self._said)(self.link.price)
        self.link.send({**request, "arguments": for_engine(arguments_of(request))})

    def receive(self, message: Message) -> None:
        """Take a message of the IDE. What is passed on keeps its order."""
        if message["type"] != "request":
            return
        if passes_on(message):
            self.pass_on(message)
            return
        try:
            answer = read(message).at_rank(self, message)
        except MeshError as error:
            self.write(failure(message, str(error)))
        else:
            if answer is not LATER:
                self.write(response(message, answer))

    def pass_on(self, message: Message) -> Answer:
        """See `meshrt.debug.dap.router.requests.table.RankSession`."""
        if message["command"] in RESUMING:
            self.link.looked = None
        arguments = message.get("arguments")
        self.link.send({**message, "arguments": self.sources.for_engine(arguments)} if arguments else message)
        return LATER

    def evaluate(self, message: Message, line: str) -> Answer:
        """See `meshrt.debug.dap.router.requests.table.RankSession`."""
        owner = self._owner
        if owner is None:
            return self.pass_on(message)
        if mesh_line(line):

            async def run() -> Answer:
                return {"result": await owner.run_line(line, self), "variablesReference": 0}

            self._peer.begin(self._answer_with(message, run))
            return LATER
        if said := hint(line, self.rank.name):
            self._hints[message["seq"]] = said
        return self.pass_on(message)

    def show_source(self, message: Message, number: int) -> Answer:
        """See `meshrt.debug.dap.router.requests.table.RankSession`."""

        async def show() -> Answer:
            text = await self.sources.text(number)
            return self.pass_on(message) if text is None else {"content": text}

        self._peer.begin(self._answer_with(message, show))
        return LATER

    def leave(self, message: Message) -> Answer:
        """See `meshrt.debug.dap.router.requests.table.RankSession`."""
        # Without arguments: a user who closes a window does not mean to end a rank of a mesh.
        self._left = True
        self.link.send({**message, "arguments": {}})
        return LATER

    def end(self) -> None:
        """End this session, as the IDE has left the mesh. The rank resumes."""
        if not self._left:
            self._left = True
            self.link.give_up(stay=False)
            self._peer.end()

    def gone(self) -> None:
        """The IDE has closed the connection."""
        if not self._left:
            self.link.give_up(stay=self._configuration.stay)
        self._raisings.close()
        if self._owner is not None:
            self._owner.left(self)

    # -- what the rank says

    def _from_engine(self, message: Message) -> None:
        if message["type"] == "response":
            if message["command"] == "stackTrace" and message.get("success"):
                self.sources.note((message.get("body") or {}).get("stackFrames"))
            elif message["command"] == "setBreakpoints" and message.get("success"):
                self.sources.note((message.get("body") or {}).get("breakpoints"))
            elif message["command"] == "disconnect" and self._left:
                self._goodbye = message
                return
            said = self._hints.pop(message["request_seq"], "")
            if said and not message.get("success"):
                message = {**message, "message": f"{str(message.get('message', '')).rstrip()}\n{said}"}
        elif message["event"] == "breakpoint":
            self.sources.note([(message.get("body") or {}).get("breakpoint") or {}])
        elif message["event"] == "stopped":
            looked, self.link.looked = self.link.looked, None
            if looked is False:
                message = {**message, "body": {**(message.get("body") or {}), "preserveFocusHint": True}}
        self._peer.write(message)

    def _said(self, text: str) -> None:
        self.said(f"meshrt: {text}")

    def _raised(self, rows: Sequence[Raising]) -> None:
        if self._owner is not None:
            self._owner.raised(self.rank, rows)
        else:
            self._raisings.add(self.rank, rows)

    def _closed(self, why: str) -> None:
        if not self._opened:
            return
        if why and not self._left:
            if self._owner is not None:
                self._said(why)
                self._owner.lost(self.rank, why)
            else:
                self.said(f"meshrt: {self.rank.name}: {why}", "important")
        self._end(why)

    def _end(self, why: str | None) -> None:
        """Say that the session is over, and hang up once that has been read."""
        if self._goodbye is not None:
            self._peer.write(self._goodbye)
        if why is not None:
            self._peer.end(left=self._left)
        else:
            self._peer.hang_up()
