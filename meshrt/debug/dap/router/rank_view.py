"""One session of an IDE with one rank. Their messages pass through unchanged.

Exception: the console of the mesh runs lines of the debug console that begin with ``mesh``. An IDE shows the console of
the session that has stopped, so the user is there more often than in that of the mesh.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from meshrt.debug.dap.router.channels import RankLink, Watcher
from meshrt.debug.dap.router.configuration import Configuration, for_engine
from meshrt.debug.dap.router.console import MESH_LINE, hint
from meshrt.debug.dap.router.raisings import Raisings
from meshrt.debug.dap.router.ranks import Names, Rank
from meshrt.debug.dap.router.sources import Sources
from meshrt.debug.dap.router.view import Peer, View
from meshrt.debug.dap.wire import RESUMING, Message, event, failure, response
from meshrt.errors import MeshError
from meshrt.hooks.facts import Body

__all__ = ["Owner", "RankView"]


class Owner(Protocol):
    """The session of the mesh, which has announced this one."""

    def left(self, view: RankView) -> None:
        """The session of a rank has ended."""

    def refused(self, rank: Rank, why: str) -> bool:
        """A rank cannot be attached to. Returns whether the user was already told the same reason for another rank."""

    def lost(self, rank: Rank, why: str) -> None:
        """A rank's session has ended, and not because the IDE has left it. The user is told once for all ranks."""

    def raised(self, rank: Rank, rows: Sequence[Body]) -> None:
        """A rank has conditions or log points that raise. The user is told once for all ranks."""

    def costs(self, price: str) -> None:
        """Attaching has a cost, in words. The user is told once for all ranks."""

    async def obey(self, line: str, view: RankView) -> str:
        """Run a line for the mesh and return its output. Raises MeshError, ConnectionError, TimeoutError."""


class RankView(View):
    """On the router's loop. Made by an attach request, which it answers once the rank has.

    Args:
        owner: The session of the mesh; None if the IDE has started this session by itself.
    """

    def __init__(self, peer: Peer, configuration: Configuration, rank: Rank, owner: Owner | None) -> None:
        self._owner = owner
        self._peer = peer
        self._configuration = configuration
        self.rank = rank
        watcher = Watcher(self._from_engine, self._said, self._raised, self._closed)
        self.link = RankLink(rank, watcher, peer.channels)
        #: For a session that the IDE has started by itself.
        self._raisings = Raisings(peer, Names())
        self._sources = Sources(peer.channels.program)
        #: The number of a request to evaluate -> what to say if it fails: it is a command of the mesh's console.
        self._hints: dict[int, str] = {}
        #: The rank is attached to: until then `_attach` says why not.
        self._opened = False
        self._left = False
        #: The answer to the goodbye; it is given when the rank is free again.
        self._goodbye: Message | None = None

    def attach(self, request: Message, initialize: dict[str, Any]) -> None:
        """Attach to the rank."""
        self._peer.begin(self._attach(request, initialize))

    async def _attach(self, request: Message, initialize: dict[str, Any]) -> None:
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
        self.link.send({**request, "arguments": for_engine(request.get("arguments") or {})})

    def receive(self, message: Message) -> None:
        """Take a message of the IDE."""
        if message["type"] != "request":
            return
        command, arguments = message["command"], message.get("arguments") or {}
        if command == "terminate":
            self._peer.write(failure(message, "a rank is ended by its program; disconnect leaves it"))
        elif command == "disconnect":
            # A user who closes a window does not mean to kill a rank of a mesh.
            self._left = True
            self.link.send({**message, "arguments": {}})
        elif command == "source":
            self._peer.begin(self._source(message, arguments))
        elif command == "evaluate" and arguments.get("context") == "repl":
            self._evaluate(message, str(arguments.get("expression", "")))
        else:
            if command in RESUMING:
                self.link.looked = None
            self.link.send(message)

    def _evaluate(self, message: Message, line: str) -> None:
        if self._owner is not None and MESH_LINE.match(line):
            self._peer.begin(self._obey(self._owner, message, line))
            return
        if self._owner is not None and (said := hint(line, self.rank.name)):
            self._hints[message["seq"]] = said
        self.link.send(message)

    async def _obey(self, owner: Owner, message: Message, line: str) -> None:
        try:
            text = await owner.obey(line, self)
        except (MeshError, ConnectionError, TimeoutError) as error:
            self._peer.write(failure(message, str(error) or "no answer in time"))
        else:
            self._peer.write(response(message, {"result": text, "variablesReference": 0}))

    def leave(self) -> None:
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
                self._sources.note((message.get("body") or {}).get("stackFrames"))
            elif message["command"] == "disconnect" and self._left:
                self._goodbye = message
                return
            said = self._hints.pop(message["request_seq"], "")
            if said and not message.get("success"):
                message = {**message, "message": f"{str(message.get('message', '')).rstrip()}\n{said}"}
        elif message["event"] == "stopped":
            looked, self.link.looked = self.link.looked, None
            if looked is False:
                message = {**message, "body": {**(message.get("body") or {}), "preserveFocusHint": True}}
        self._peer.write(message)

    async def _source(self, request: Message, arguments: dict[str, Any]) -> None:
        source = arguments.get("source") or {}
        number = source.get("sourceReference") or arguments.get("sourceReference")
        text = await self._sources.text(number if isinstance(number, int) else 0)
        if text is not None:
            self._peer.write(response(request, {"content": text}))
        else:
            self.link.send(request)

    def _said(self, text: str) -> None:
        self._peer.write(event("output", category="console", output=f"meshrt: {text}\n"))

    def _raised(self, rows: Sequence[Body]) -> None:
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
                self._peer.write(event("output", category="important", output=f"meshrt: {self.rank.name}: {why}\n"))
        self._end(why)

    def _end(self, why: str | None) -> None:
        """Say that the session is over, and hang up once that has been read."""
        if self._goodbye is not None:
            self._peer.write(self._goodbye)
        if why is not None:
            self._peer.end(left=self._left)
        else:
            self._peer.hang_up()
