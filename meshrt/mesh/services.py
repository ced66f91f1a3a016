"""What the root offers to plug-ins and to ranks: events, operations, requests to ranks, and the deadline clock.

Implements `meshrt.hooks.services.RootServices`. On the root's loop unless a method says otherwise.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import structs

from meshrt.actor.faults import Lost
from meshrt.errors import MeshError, ProtocolError, RankPlace
from meshrt.hooks.facts import Body, UnreadError
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import Data, Operation, Report, Served, Taken, body_of
from meshrt.hooks.plugins import ASKED_FOR, plugin_of, plugins
from meshrt.hooks.table import hooks
from meshrt.mesh.gather import Gathers
from meshrt.mesh.holds import Holds
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.measures import Measures
from meshrt.mesh.record import MeshRecord
from meshrt.mesh.registry import Registry
from meshrt.mesh.terminal import Terminal
from meshrt.transport.directories import log_path
from meshrt.transport.driver import Driver
from meshrt.wire.control import Address, Message
from meshrt.wire.operations import Held, Unhandled
from meshrt.wire.peer import DataReply, Reply, Requests
from meshrt.wire.tree import Answer, Event, FromRank, Refusal, Request

if TYPE_CHECKING:
    import asyncio

    from meshrt.hooks.services import PendingCall, ToolClient

__all__ = ["Answer", "Services"]

Q = TypeVar("Q")
A = TypeVar("A", bound=Data)
#: The type of what serves an operation, or takes a report.
H = TypeVar("H")

_log = logging.getLogger("meshrt")

#: How many numbers of failures that were not reported are kept: the latest ones, as many as there are records.
_UNSEEN = 10_000


class Services:
    """The services of one program.

    Args:
        run_id: The program.
        run_directory: Where it keeps logs.
        registry: Its meshes.
        driver: The root's links.
        terminal: Where `announce` writes.
        loop: Runs all of it.
        when_told, unread: As of `meshrt.mesh.alarm.Alarm`.
    """

    def __init__(
        self,
        run_id: str,
        run_directory: Path,
        registry: Registry,
        driver: Driver,
        terminal: Terminal,
        loop: RootLoop,
        when_told: Callable[[Lost | str], int],
        unread: dict[str, UnreadError],
    ) -> None:
        self.run_id = run_id
        self.run_directory = run_directory
        #: What serves operations of terminals and of ranks, and what takes reports of ranks, by name.
        self._tool_operations: dict[str, Callable[[ToolClient, Body], Awaitable[Body]]] = {}
        self._rank_operations: dict[str, Callable[[Address, Body, Reply], None]] = {}
        self._reports: dict[str, Callable[[str, int, Body], None]] = {}
        self.client_gone: list[Callable[[ToolClient], None]] = []
        self.at_birth: list[Callable[[], Sequence[Operation[Data]]]] = []
        self.rank_born: list[Callable[[str, int], None]] = []
        self.rank_gone: list[Callable[[str, int, Fate], None]] = []
        self.rank_lost: list[Callable[[str, int, Fate, Sequence[PendingCall]], None]] = []
        self.rank_silent: list[Callable[[str, int, str], None]] = []
        self.actor_begun: list[Callable[[str, int, str], None]] = []
        self.tables: dict[str, Any] = {}
        self.closing: list[Callable[[], None]] = []
        self.unhandled: list[Callable[[str, int, str], None]] = []
        self._registry = registry
        self._driver = driver
        self._loop = loop
        #: Those that wait for a rank.
        self._requests: dict[Address, Requests] = {}
        self._numbers = itertools.count(1)
        self._holds = Holds(registry, driver, self.tell_rank)
        self.on_report(Held, self._holds.change)
        self.call_soon = loop.post
        self.call_later = loop.call_later
        self.gathers = Gathers(registry, loop.call_later)
        self.measures = Measures(registry)
        self.unseen: deque[str] = deque(maxlen=_UNSEEN)
        self.excused: set[str] = set()
        self.when_told = when_told
        self.unread = unread
        # See `meshrt.hooks.services.RootServices`.
        self.meshes = registry.describe
        self.mesh = registry.describe_one
        self.silent = registry.silent
        self.stopped_how = registry.stopped_how
        self.gather = self.gathers.begin
        self.leave_gather = self.gathers.leave
        self.measure = self.measures.ask
        self.held = self._holds.any
        self.holds = self._holds.of
        self.clock = driver.clock.now
        self.script_waits = driver.waits.all
        self.interject = driver.interject
        self.announce = terminal.announce
        loop.on_end.append(lambda: hooks.run(self.closing))

    def load_asked_for(self) -> None:
        """Load the plug-ins that the environment names, unless they are loaded. Any thread. Raises their errors."""
        for variable, plugin in ASKED_FOR.items():
            if os.environ.get(variable):
                plugins.load(plugin, self, in_root=True)

    # -- for plug-ins

    def interrupted(self, mesh_id: str) -> int:
        """Return when calls on a mesh are ended because it is stopped. Any thread."""
        record = self._registry.meshes.get(mesh_id)
        return 0 if record is None else record.interrupted

    def serve_terminals(self, operation: Served[Q, A], handler: Callable[[ToolClient, Q], Awaitable[A]]) -> None:
        """Serve an operation that terminals ask for."""

        async def serve(client: ToolClient, body: Body) -> Body:
            return body_of(await handler(client, operation.read(body)))

        self._tool_operations[operation.name()] = serve

    def serve_ranks(self, operation: Served[Q, A], handler: Callable[[str, int, Q], A]) -> None:
        """Serve an operation that ranks ask for."""
        self.serve_ranks_later(operation, lambda address, asked, answer: answer(handler(*address, asked)))

    def serve_ranks_later(self, operation: Served[Q, A], handler: Callable[[Address, Q, DataReply[A]], None]) -> None:
        """Serve an operation that ranks ask for, and that is answered later. What it raises is the answer, too."""
        self._rank_operations[operation.name()] = lambda address, body, reply: handler(
            address, operation.read(body), DataReply(reply)
        )

    def on_report(self, report: Taken[Q], handler: Callable[[str, int, Q], None]) -> None:
        """Take a report of ranks."""

        def take(mesh_id: str, rank: int, body: Body) -> None:
            said = report.read(body)
            clock = self._registry.clock_of(mesh_id, rank)
            if clock is not None and isinstance(said, Data):
                said = said.on_root_clock(clock)
            handler(mesh_id, rank, said)

        self._reports[report.name()] = take

    def ask_rank(self, mesh_id: str, rank: int, operation: Operation[A]) -> asyncio.Future[A]:
        """Run an operation on a rank. It is sent at once. Raises ProtocolError if it is too long."""
        name = operation.name()
        record = self._registry.meshes.get(mesh_id)
        answer: asyncio.Future[A] = self._loop.running.create_future()
        if record is None or rank in record.fates:
            fate = Fate("stopped") if record is None else record.fates[rank]
            answer.set_exception(fate.error(RankPlace(mesh_id, "", rank), name, may_have_run=False))
            return answer
        agent = record.agent_of[rank]
        if agent.full:
            where = record.rank_place(rank).where
            answer.set_exception(MeshError(f"{name} was not sent to {where}: its host agent does not read messages"))
            return answer

        def answered(body: Body | None, error: Exception | None) -> None:
            if answer.done():
                return  # cancelled meanwhile
            if error is not None:
                answer.set_exception(error)
                return
            try:
                answer.set_result(operation.read_answer(body or {}))
            except ProtocolError as invalid:
                answer.set_exception(invalid)

        requests = self._requests.get((mesh_id, rank))
        if requests is None:
            send = functools.partial(self._send, record, rank)
            requests = self._requests[mesh_id, rank] = Requests(send, self._numbers)
        number = requests.ask(name, body_of(operation), answered)
        answer.add_done_callback(lambda _: requests.forget(number))
        return answer

    def tell_rank(self, mesh_id: str, rank: int, operation: Operation[Data]) -> None:
        """Run an operation on a rank without an answer. Any thread."""
        record = self._registry.meshes.get(mesh_id)
        if record is not None and rank not in record.fates:
            self._send(record, rank, Request(0, operation.name(), body_of(operation)))

    @staticmethod
    def _send(record: MeshRecord, rank: int, message: Message) -> None:
        record.agent_of[rank].send(message, (record.mesh_id, rank))

    def log_file(self, mesh_id: str, rank: int) -> Path:
        """Return the file that keeps what a rank prints; it need not exist. Any thread."""
        record = self._registry.meshes[mesh_id]
        return log_path(self.run_directory, record.name, mesh_id, rank)

    def pending_calls(self) -> dict[int, PendingCall]:
        """Return the calls of the script that wait for answers, by their number. Any thread."""
        return cast("dict[int, PendingCall]", self._driver.outstanding())  # every receiver of the root is one

    def owed_by(self, mesh_id: str, rank: int) -> list[PendingCall]:
        """Return the oldest call of the script to each actor of a rank that waits for an answer. Any thread."""
        return cast("list[PendingCall]", self._driver.owed_by(mesh_id, rank))

    # -- messages

    async def serve_tool(self, client: ToolClient, operation: str, body: Body) -> Body:
        """Serve a request of a terminal. Raises MeshError for an unknown operation."""
        handler = self._handler(self._tool_operations, operation)
        if handler is None:
            raise MeshError(f"this program has no operation {operation!r} (is the terminal of another version?)")
        return await handler(client, body)

    def tool_gone(self, client: ToolClient) -> None:
        """A terminal has disconnected."""
        hooks.run(self.client_gone, client)

    def on_rank(self, address: Address, message: FromRank) -> None:
        """A rank sent something."""
        match message:
            case Event(ev=name, body=body):
                self._on_event(address, name, body)
            case Request() as request:
                self._on_request(address, request)
            case Answer() | Refusal() as answer:
                requests = self._requests.get(address)
                if requests is not None:
                    requests.received(answer)

    def on_own_actor(self, at: Address, report: Report) -> None:
        """Take a report of an actor of this process (`meshrt.mesh.own_ranks`), and say where it is. Any thread."""
        if isinstance(report, Unhandled):
            report = structs.replace(report, at=at)
        self._loop.post(lambda: self._on_event(("", 0), report.name(), body_of(report)))

    def _on_event(self, address: Address, name: str, body: Body) -> None:
        handler = self._handler(self._reports, name)
        if handler is None:
            self.announce(f"rank {address[1]} sent an unknown event {name!r}")
            return
        handler(*address, body)

    def _on_request(self, address: Address, request: Request) -> None:
        name = request.op
        record = self._registry.meshes.get(address[0])

        def send(message: Message) -> None:
            if record is not None and address[1] not in record.fates:
                self._send(record, address[1], message)

        reply = Reply(request.id, send)
        try:
            handler = self._handler(self._rank_operations, name)
            if handler is None:
                raise MeshError(f"the root has no operation {name!r}")
            handler(address, request.arguments, reply)
        except Exception as error:
            # The rank waits: any error is its answer.
            if not isinstance(error, MeshError):
                _log.exception("operation %s of a rank failed", name)
            reply.fail(error)

    def _handler(self, handlers: Mapping[str, H], name: str) -> H | None:
        """Return the handler of an operation or a report, once its plug-in is loaded; None: there is none."""
        if name not in handlers:
            plugins.load(plugin_of(name), self, in_root=True)
        return handlers.get(name)

    # -- births and ends of ranks

    def on_born(self, mesh_id: str, rank: int) -> None:
        """A rank serves. If others are held, its deadlines are suspended too."""
        self._holds.born(mesh_id, rank)
        hooks.run(self.rank_born, mesh_id, rank)

    def on_gone(self, mesh_id: str, rank: int, fate: Fate, owed: Sequence[PendingCall]) -> None:
        """A rank has ended: nothing waits for it any more. ``owed``: see `RootServices.rank_lost`."""
        self._holds.gone(mesh_id, rank)
        requests = self._requests.pop((mesh_id, rank), None)
        if requests is not None:
            requests.fail(fate.error(RankPlace(mesh_id, "", rank), "", may_have_run=True))
        self.gathers.gone(mesh_id, rank, str(fate))
        hooks.run(self.rank_gone, mesh_id, rank, fate)
        if fate.kind != "stopped":
            # After the callers are told: the first time, it takes a while.
            self._loop.running.call_soon(self._on_lost, mesh_id, rank, fate, owed)

    def _on_lost(self, mesh_id: str, rank: int, fate: Fate, owed: Sequence[PendingCall]) -> None:
        plugins.load("failure", self, in_root=True)
        hooks.run(self.rank_lost, mesh_id, rank, fate, owed)
