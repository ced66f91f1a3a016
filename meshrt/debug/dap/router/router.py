"""The process that an IDE connects to: one port, any number of sessions, each on a connection of its own.

Sessions of meshes are told of ranks that are born later, or that get the actor by whose name they are denoted.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine

from meshrt.debug.dap.operations import ActorBegun, Born, Join, Release
from meshrt.debug.dap.router.admission import Admission
from meshrt.debug.dap.router.channels import Channels
from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.connection import GOODBYE_SECONDS, Connection, Sessions
from meshrt.debug.dap.router.mesh_view import MeshView
from meshrt.debug.dap.router.program import ProgramLink
from meshrt.debug.dap.router.rank_view import RankView
from meshrt.debug.dap.router.ranks import Key, Rank
from meshrt.debug.dap.router.threads_view import ThreadsView
from meshrt.debug.dap.router.view import Peer, RootView, View
from meshrt.errors import MeshError, UsageError
from meshrt.hooks.facts import Body
from meshrt.transport.tools import Program

__all__ = ["Router"]


class Router(Sessions):
    """All sessions with one program. On its loop.

    Args:
        token, admission: As in `Sessions`.
        socket: The socket for processes that an IDE starts for further sessions; "" if the IDE connects itself.
        on_over: Called once when the program has ended.
    """

    def __init__(
        self, program: Program, token: str, admission: Admission, on_over: Callable[[], None], *, socket: str = ""
    ) -> None:
        self.link = ProgramLink(program, self._event, self._lost)
        super().__init__(token, admission, Channels(self.link))
        self._socket = socket
        self._on_over = on_over
        self._views: dict[int, RootView] = {}
        #: Sessions whose ranks are being looked up, by number: whether more ranks may have been born meanwhile.
        self._asking: dict[int, bool] = {}
        self._numbers = itertools.count(1)
        #: Numbers of ranks, for IDEs that keep no other key.
        self._rank_numbers: dict[Key, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> None:
        """Subscribe to ranks that are born.

        Args:
            port: The port that IDEs connect to with the token, which the program tells others (`Ports`). 0: no port.
        """
        await self.link.ask(Join(port, self.token if port else ""))

    def connection(self) -> Connection:
        """Return the protocol object of a new connection."""
        return Connection(self)

    async def close(self) -> None:
        """Leave the program; stopped ranks resume. Returns when the IDEs have said goodbye, or after a time-out."""
        if not self.over:
            self._end("meshrt dap has ended; the ranks continue without the IDE")
            with contextlib.suppress(MeshError, ConnectionError, TimeoutError):  # it ends just now: so do its ranks
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self.link.ask(Release())
        self.link.close()
        await self.leave()

    async def leave(self) -> None:
        """Leave the program after the IDE has; threads that it left stopped stay stopped. Returns as `close` does."""
        if self.ending:
            await asyncio.wait([each.closed for each in self.ending], timeout=GOODBYE_SECONDS)
        self.link.close()

    # -- for connections

    def view_of(self, peer: Peer, configuration: Configuration) -> View:
        """Return the session that an attach request begins."""
        if configuration.rank is None and "subProcessId" in configuration.arguments:
            number = configuration.arguments["subProcessId"]
            key = next((key for key, its in self._rank_numbers.items() if its == number), None)
            if key is None:
                raise UsageError(f"no rank has the number {number!r} (subProcessId)")
        else:
            key = configuration.rank
        if key is not None:
            found = self._views.get(configuration.session)
            mesh = found if isinstance(found, MeshView) else None
            if configuration.session and mesh is None:
                raise UsageError("the session of the mesh that announced this session has ended")
            rank = (mesh.ranks.get(key) if mesh is not None else None) or Rank(*key, f"rank {key[1]}")
            view = RankView(peer, configuration, rank, mesh)
            if mesh is not None:
                mesh.entered(view)
            return view
        number = next(self._numbers)
        root: RootView
        if configuration.view == "threads":
            root = ThreadsView(peer, configuration, number, self._forget)
        else:
            root = MeshView(peer, configuration, number, self._number_of, self._forget, self._socket)
        self._views[number] = root
        return root

    def _number_of(self, key: Key) -> int:
        return self._rank_numbers.setdefault(key, len(self._rank_numbers) + 1)

    def _forget(self, view: RootView) -> None:
        self._views.pop(view.number, None)

    # -- what the program tells

    def _event(self, name: str, body: Body) -> None:
        if self.channels.event(name, body):
            return
        for view in tuple(self._views.values()):
            # An actor's name may denote ranks that get the actor only after they are born.
            if name == Born.name() or (name == ActorBegun.name() and view.configuration.mesh):
                self._introduce_soon(view)

    def _introduce_soon(self, view: RootView) -> None:
        """Ask soon for the ranks of a session, as some may have been born."""
        asking = view.number in self._asking
        self._asking[view.number] = True
        if not asking:
            self._begin(self._introduce(view))

    async def _introduce(self, view: RootView) -> None:
        """Tell a session of its ranks. A few requests cover many births at once."""
        try:
            while self._asking[view.number] and view.number in self._views:
                self._asking[view.number] = False
                try:
                    found = await self.link.which(view.configuration.mesh, view.configuration.ranks)
                except (MeshError, ConnectionError):
                    continue  # no mesh has such ranks, or not yet
                for rank in found:
                    view.born(rank)
        finally:
            del self._asking[view.number]

    def _begin(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _lost(self) -> None:
        if not self.over:
            self._end("the program has ended")
        self._on_over()

    def _end(self, why: str) -> None:
        self.over = True
        for view in tuple(self._views.values()):
            view.over(why)
        self.channels.lost(why)
