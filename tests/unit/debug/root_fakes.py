"""Stand-ins for the root: meshes, a clock that the test moves, terminals that keep what they are sent."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from meshrt.debug.broker.broker import Broker
from meshrt.hooks.facts import Body, Gathered, UnreadError, Wait
from meshrt.hooks.fate import Fate
from meshrt.hooks.measured import Measured
from meshrt.hooks.operations import Data, GroupedOperation, Operation, Report, Served, Taken, body_of
from meshrt.hooks.services import PendingCall, ToolClient, Waited
from meshrt.hooks.snapshot import MeshFacts, Silent
from meshrt.inspect.root import load
from meshrt.selection import Shape
from tests.support.untyped import Group

__all__ = ["FakeRoot", "FakeTerminal", "MeshOfFake"]

Q = TypeVar("Q")
A = TypeVar("A", bound=Data)
S = TypeVar("S")
P = TypeVar("P")


class FakeTerminal:
    """A connected terminal."""

    _ids = itertools.count(1)

    def __init__(self, pid: int = 4711) -> None:
        self.id = next(self._ids)
        self.pid = pid
        self.pushed: list[tuple[str, Body]] = []

    def report(self, report: Report) -> None:
        self.pushed.append((report.name(), msgspec.to_builtins(body_of(report), builtin_types=(bytes,))))

    def of(self, event: str) -> list[Body]:
        """The bodies of one kind of event."""
        return [body for name, body in self.pushed if name == event]


class Said(Fate):
    """A fate with a text of the test."""

    def __init__(self, how: str) -> None:
        super().__init__("died", hint=how, when=200.0)

    def __str__(self) -> str:
        return self.hint


#: Id, name, sizes, and the names of actors, or the views that they were spawned on.
MeshOfFake = tuple[str, str, dict[str, int], tuple[str, ...] | Mapping[str, Shape]]


class FakeRoot:
    """RootServices, with the broker and the inspection on it."""

    def __init__(self, *meshes: MeshOfFake) -> None:
        self.run_id = "run"
        self.tool_operations: dict[str, Callable[[ToolClient, Body], Awaitable[Body | None]]] = {}
        self.rank_events: dict[str, Callable[[str, int, Body], None]] = {}
        self.rank_operations: dict[str, Callable[[str, int, Body], Body | None]] = {}
        self.clock: Callable[[], float] = time.monotonic
        self.script_waits: Callable[[], Sequence[Wait]] = list
        self.client_gone: list[Callable[[ToolClient], None]] = []
        self.at_birth: list[Callable[[], Sequence[Operation[Data]]]] = []
        self.rank_born: list[Callable[[str, int], None]] = []
        self.rank_gone: list[Callable[[str, int, Fate], None]] = []
        self.rank_lost: list[Callable[[str, int, Fate, Sequence[PendingCall]], None]] = []
        self.unhandled: list[Callable[[str, int, str], None]] = []
        self.unanswering: dict[int, Silent] = {}
        self.incarnations: dict[int, int] = {}
        self.rank_silent: list[Callable[[str, int, str], None]] = []
        self.actor_begun: list[Callable[[str, int, str], None]] = []
        self.closing: list[Callable[[], None]] = []
        self.tables: dict[str, Any] = {}
        self.unseen: deque[str] = deque()
        self.excused: set[str] = set()
        self.unread: dict[str, UnreadError] = {}
        self.when_told: Callable[[tuple[str, int, int] | str], int] = lambda _what: 0
        self.run_directory = Path("/nonexistent")
        self.ended: dict[tuple[str, int], str] = {}
        #: Questions to many ranks: (targets, operation, report), by number.
        self.gathers: dict[int, tuple[dict[str, list[int]], Any, Callable[[Gathered[Any, Any]], None]]] = {}
        self.logs = Path("/nonexistent")
        self.sent: list[tuple[str, int, Body]] = []
        self.said: list[str] = []
        self.interjected: list[Callable[[Waited], None]] = []
        self.waits = False
        self.now = 0.0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._meshes = meshes or (("m1", "", {"hosts": 2, "gpus": 4}, ("debugee",)),)
        self.seqs: dict[tuple[str, int, str, str], int] = {}
        Broker(self).serve()
        load(self)

    # -- RootServices

    def stopped_how(self, mesh_id: str) -> str:
        return ""

    def mesh(self, mesh_id: str) -> MeshFacts | None:
        return next((mesh for mesh in self.meshes() if mesh.mesh_id == mesh_id), None)

    def silent(self) -> dict[tuple[str, int], Silent]:
        return {(mesh.mesh_id, rank): silent for mesh in self.meshes() for rank, silent in mesh.silent.items()}

    def meshes(self) -> list[MeshFacts]:
        found = []
        for mesh_id, name, sizes, actors in self._meshes:
            shape = Shape.from_extent(sizes)
            ranks = shape.ranks()
            found.append(
                MeshFacts(
                    mesh_id,
                    name,
                    shape,
                    hosts=dict.fromkeys(ranks, "node"),
                    pids={rank: 1000 + rank for rank in ranks},
                    alive=tuple(rank for rank in ranks if (mesh_id, rank) not in self.ended),
                    actors={
                        actor: dict.fromkeys(view.ndslice, view)
                        for actor in actors
                        for view in [actors[actor] if isinstance(actors, Mapping) else shape]
                    },
                    started=100.0,
                    ended={rank: Said(how) for (mesh, rank), how in self.ended.items() if mesh == mesh_id},
                    silent=dict(self.unanswering),
                    incarnations=dict(self.incarnations),
                )
            )
        return found

    def serve_terminals(self, operation: Served[Q, A], handler: Callable[[ToolClient, Q], Awaitable[A]]) -> None:
        async def serve(client: ToolClient, body: Body) -> Body:
            return body_of(await handler(client, operation.read(body)))

        self.tool_operations[operation.name()] = serve

    def serve_ranks(self, operation: Served[Q, A], handler: Callable[[str, int, Q], A]) -> None:
        self.rank_operations[operation.name()] = lambda mesh_id, rank, body: body_of(
            handler(mesh_id, rank, operation.read(body))
        )

    def on_report(self, report: Taken[Q], handler: Callable[[str, int, Q], None]) -> None:
        self.rank_events[report.name()] = lambda mesh_id, rank, body: handler(mesh_id, rank, report.read(body))

    async def ask_rank(self, mesh_id: str, rank: int, operation: Operation[A]) -> A:
        raise NotImplementedError

    def tell_rank(self, mesh_id: str, rank: int, operation: Operation[Data]) -> None:
        assert operation.name() == "debug.input"
        self.sent.append((mesh_id, rank, msgspec.to_builtins(body_of(operation), builtin_types=(bytes,))))

    def interrupted(self, mesh_id: str) -> int:
        return 0

    def held(self) -> bool:
        return False

    def holds(self, mesh_id: str, rank: int) -> bool:
        return False

    async def measure(
        self,
        targets: Mapping[str, Sequence[int]],
        seconds: float,
        references: str | None = None,
        *,
        work: bool = False,
        children: bool = False,
    ) -> Measured:
        return Measured()

    def call_soon(self, function: Callable[[], None]) -> None:
        self.call_later(0.0, function)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (self.now + seconds, next(self._numbers), function))

    def gather(
        self,
        targets: Mapping[str, Sequence[int]],
        operation: GroupedOperation[S, P],
        seconds: float,
        report: Callable[[Gathered[S, P]], None],
        *,
        stack_suffices: bool = False,
    ) -> int:
        number = next(self._numbers)
        self.gathers[number] = ({mesh: list(ranks) for mesh, ranks in targets.items()}, operation, report)
        return number

    def leave_gather(self, number: int) -> None:
        self.gathers.pop(number, None)

    def log_file(self, mesh_id: str, rank: int) -> Path:
        return self.logs / f"{mesh_id}.{rank}.log"

    def pending_calls(self) -> Mapping[int, PendingCall]:
        return {}

    def announce(self, text: str) -> None:
        self.said.append(text)

    def interject(self, function: Callable[[Waited], None]) -> bool:
        if self.waits:
            self.interjected.append(function)
        return self.waits

    # -- the test's hands

    def kill(self, rank: int, how: str, mesh: str = "m1") -> None:
        """The process of a rank ends."""
        self.ended[mesh, rank] = how
        self.rank_gone[0](mesh, rank, Said(how))

    def answer(self, operation: str, *groups: Group, done: bool = True) -> None:
        """Ranks answer the oldest open question of this name."""
        number = next(number for number, asked in self.gathers.items() if asked[1].name() == operation)
        _, asked, report = self.gathers[number]
        if done:
            del self.gathers[number]
        report(Gathered([asked.read_group(*group) for group in groups], done))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            self.now, _, function = heapq.heappop(self._timers)
            function()
        self.now = end

    def ask(self, client: FakeTerminal, operation: str, **body: Any) -> Body:
        """Make a request of a terminal."""

        async def call() -> Body:
            answer: Body = msgspec.to_builtins(await self.tool_operations[operation](client, body) or {})
            return answer

        return asyncio.run(call())

    def terminal(self, *, person: bool = True, listens: bool = False, pid: int = 4711) -> FakeTerminal:
        """Connect a terminal."""
        client = FakeTerminal(pid)
        self.ask(client, "debug.hello", person=person, listens=listens)
        return client

    def leave(self, client: FakeTerminal) -> None:
        """The connection of a terminal ends; returns when all that it begins is done."""

        async def gone() -> None:
            for function in self.client_gone:
                function(client)
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

        asyncio.run(gone())

    def stop(self, *ranks: int, mesh: str = "m1", actor: str = "debugee", text: str = "> here\n", **facts: Any) -> None:
        """Ranks come to a prompt."""
        for rank in ranks:
            key = (mesh, rank, actor, facts.get("thread", ""))
            self.seqs[key] = self.seqs.get(key, 0) + 1
            body = {
                "actor": actor,
                "thread": "",
                "view": [],
                "endpoint": "work",
                "place": ["/src/actors.py", 16, "work"],
                "reason": "breakpoint",
                "since": 0.0,
                "seq": self.seqs[key],
                "prompt": "(Pdb) ",
                "text": text,
                **facts,
            }
            self.rank_events["debug.stopped"](mesh, rank, body)

    def event(self, name: str, *ranks: int, mesh: str = "m1", actor: str = "debugee", **facts: Any) -> None:
        """Ranks report something else."""
        for rank in ranks:
            self.rank_events[f"debug.{name}"](mesh, rank, {"actor": actor, "thread": "", "text": "", **facts})
