"""What the root knows of every mesh: which rank lives where, how it ended, who wants to be told.

A rank: ``asked -> born -> gone``. All methods may be called from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Set
from typing import Any, NamedTuple

from meshrt.errors import RankPlace
from meshrt.mesh.agents import AgentLink
from meshrt.mesh.cut import CutWork
from meshrt.mesh.future import Settled
from meshrt.mesh.spec import MeshSpec
from meshrt.selection import Shape
from meshrt.transport.driver import Driver
from meshrt.transport.fate import Fate

__all__ = ["MeshRecord", "Owner", "Registry"]


class Owner(NamedTuple):
    """A rank that has made a mesh; ``actor`` is "" where no actor ran."""

    mesh_id: str
    rank: int
    actor: str


class MeshRecord:
    """One mesh.

    Args:
        mesh_id, name, spec: What it is.
        agents: Those that are to have its ranks.
        driver: What its futures wait with.
        owner: Who has made it; None: the script.
        births: Makes the messages that ask an agent to start some ranks.
    """

    def __init__(
        self,
        mesh_id: str,
        name: str,
        spec: MeshSpec,
        agents: list[AgentLink],
        driver: Driver,
        owner: Owner | None = None,
        births: Callable[[MeshRecord, list[int]], list[bytes]] | None = None,
    ) -> None:
        self.mesh_id = mesh_id
        self.name = name
        self.owner = owner
        self._births = births
        self.shape = Shape.from_extent(spec.extent)
        #: The agent of each rank; hosts take contiguous blocks, so the leading dimension runs over them.
        count = len(self.shape)
        self.agent_of = [agents[rank * len(agents) // count] for rank in range(count)]
        self.pids: dict[int, int] = {}
        self.fates: dict[int, Fate] = {}
        #: When the mesh was asked for, and when each rank ended (seconds since the epoch, wall clock).
        self.started = time.time_ns() / 1e9
        self.ended: dict[int, float] = {}
        #: Ranks that live but do not answer: "stopped" or "busy", and since when.
        self.silent: dict[int, tuple[str, float]] = {}
        #: Every actor that there was, the first one first: whether it lives, by the ranks that have had it.
        self.actors: dict[str, dict[int, bool]] = {}
        self.initialized: Settled[None] = _Start(
            driver, f"starting the ranks of {name}", lambda: self._places(self.pids.keys() | self.fates.keys())
        )
        self.stopped: Settled[None] | None = None
        #: When that began; monotonic ns, 0: it was not stopped.
        self.stopped_at = 0
        #: It is stopped because of an error, or with the program: nobody waits for what still uses it.
        self.abandoned = False
        #: Its block has ended well.
        self.left = False
        #: When nothing of it was left; monotonic ns, 0: not yet.
        self.over_at = 0
        #: When what runs on it is interrupted, because it is stopped: monotonic ns; 0 until somebody has asked for it.
        self.interrupted = 0
        #: Seconds that its ranks have for what was sent before; 0: they were interrupted at once.
        self.grace = 0.0
        self.cut = CutWork(name)
        self.stopped_agents: set[AgentLink] = set()
        self.born_callbacks: dict[int, list[Callable[[], None]]] = {}
        self.gone_callbacks: dict[int, list[Callable[[Fate], None]]] = {}
        #: How often a rank was started again; 0 if it is not here.
        self.incarnations: dict[int, int] = {}
        self.restart_callbacks: dict[int, list[tuple[str, Callable[[int, Fate], None]]]] = {}

    @property
    def agents(self) -> list[AgentLink]:
        """The agents that have ranks of this mesh, each once."""
        return list(dict.fromkeys(self.agent_of))

    def births(self, ranks: list[int]) -> list[bytes]:
        """Return the messages that ask an agent to start some ranks. Raises UsageError: they are too long."""
        return [] if self._births is None else self._births(self, ranks)

    def interrupt_after(self, grace: float) -> None:
        """Note that whatever runs after ``grace`` seconds is ended."""
        moment = time.monotonic_ns() + int(max(0.0, grace) * 1e9)
        self.interrupted = min(self.interrupted or moment, moment)

    def begin_stop(self, driver: Driver) -> Settled[None]:
        """Make (and keep) the future of the mesh's end."""
        self.stopped_at = time.monotonic_ns()
        self.stopped = Settled(driver, f"stopping {self.name}", lambda: self._places(self.fates.keys()))
        return self.stopped

    def _places(self, without: Set[int]) -> tuple[list[RankPlace], int]:
        count = len(self.shape)
        return [self.rank_place(rank) for rank in range(count) if rank not in without], count

    def rank_place(self, rank: int) -> RankPlace:
        """Return the identity of a rank."""
        coords = tuple(self.shape.coordinates(rank).items())
        return RankPlace(self.mesh_id, "", rank, coords, self.agent_of[rank].host, self.pids.get(rank, 0))

    def place(self, rank: int) -> str:
        """Say where a rank is: ``"rank 3 (hosts=0, gpus=3) on node1, pid 4711"``."""
        return self.rank_place(rank).where

    def alive(self) -> list[int]:
        """Return the ranks that have not ended."""
        return [rank for rank in range(len(self.shape)) if rank not in self.fates]

    def running_actors(self) -> list[str]:
        """Return the actors that some rank still has, and those that were never stopped, though their ranks died."""
        return [
            name
            for name, ranks in self.actors.items()
            if all(ranks.values()) or any(here and rank not in self.fates for rank, here in ranks.items())
        ]


class _Start(Settled[None]):
    """The future of the start of a mesh's ranks."""

    __slots__ = ()

    @property
    def tells(self) -> bool:
        """True, though nothing else disturbs a wait for it."""
        return True


class Registry:
    """The meshes of a program, by id; those that ended stay, so that late questions get the right answer."""

    #: Stopped meshes that are remembered.
    KEPT = 200

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.meshes: dict[str, MeshRecord] = {}
        #: Meshes of one rank that is the root process itself: they last as long as the program.
        self.own: set[str] = set()

    def add(self, record: MeshRecord) -> None:
        """Add a mesh; forgets the oldest that was stopped when there are many."""
        with self._lock:
            self.meshes[record.mesh_id] = record
            ended = [mesh_id for mesh_id, mesh in self.meshes.items() if mesh.stopped and mesh.stopped.finished]
            for mesh_id in ended[: max(0, len(ended) - self.KEPT)]:
                del self.meshes[mesh_id]

    def when_born(self, mesh_id: str, rank: int, callback: Callable[[], None]) -> None:
        """Call back when the rank listens, or has ended."""
        with self._lock:
            record = self.meshes.get(mesh_id)
            if record is not None and rank not in record.pids and rank not in record.fates:
                record.born_callbacks.setdefault(rank, []).append(callback)
                return
        callback()

    def watch(self, mesh_id: str, rank: int, callback: Callable[[Fate], None]) -> bool:
        """Call back with the rank's fate when it ends. Returns True if that was now."""
        with self._lock:
            if mesh_id in self.own:
                return False
            record = self.meshes.get(mesh_id)
            fate = Fate("stopped") if record is None else record.fates.get(rank)
            if fate is None and record is not None:
                record.gone_callbacks.setdefault(rank, []).append(callback)
                return False
        if fate is not None:
            callback(fate)
        return True

    def born(self, mesh_id: str, rank: int, pid: int) -> list[Callable[[], None]]:
        """The rank listens. Returns whom to call."""
        with self._lock:
            record = self.meshes[mesh_id]
            record.pids[rank] = pid
            return record.born_callbacks.pop(rank, [])

    def gone(self, mesh_id: str, rank: int, fate: Fate) -> list[Callable[[], None]]:
        """The rank has ended. Returns whom to call; nobody the second time."""
        with self._lock:
            record = self.meshes[mesh_id]
            if rank in record.fates:
                return []
            record.fates[rank] = fate
            record.ended[rank] = time.time_ns() / 1e9
            record.silent.pop(rank, None)
            born = record.born_callbacks.pop(rank, [])
            return [*born, *(_bind(callback, fate) for callback in record.gone_callbacks.pop(rank, []))]

    def restarted(self, mesh_id: str, rank: int, fate: Fate, actors: Container[str]) -> list[Callable[[], None]]:
        """The rank has ended, and is about to be started again with some actors. Returns whom to call."""
        with self._lock:
            record = self.meshes[mesh_id]
            del record.pids[rank]
            record.silent.pop(rank, None)
            record.incarnations[rank] = incarnation = record.incarnations.get(rank, 0) + 1
            for ranks in record.actors.values():
                if rank in ranks:
                    ranks[rank] = False
            waiting = record.restart_callbacks.pop(rank, [])
            born = record.born_callbacks.setdefault(rank, [])
            born += [_bind_restart(callback, incarnation, fate) for actor, callback in waiting if actor in actors]
            return [_bind(callback, fate) for callback in record.gone_callbacks.pop(rank, [])]

    def when_restarted(self, mesh_id: str, rank: int, actor: str, callback: Callable[[int, Fate], None]) -> None:
        """Call back with its incarnation, and how the one before has ended, when the rank was started again, once.

        With incarnation 0 when its mesh has ended.
        """
        with self._lock:
            record = self.meshes.get(mesh_id)
            if record is not None and record.stopped is None:
                record.restart_callbacks.setdefault(rank, []).append((actor, callback))
                return
        callback(0, Fate("stopped"))

    def no_more_restarts(self, mesh_id: str) -> None:
        """The mesh has ended: nobody waits for that any more."""
        with self._lock:
            waiting, self.meshes[mesh_id].restart_callbacks = self.meshes[mesh_id].restart_callbacks, {}
        for callbacks in waiting.values():
            for _, callback in callbacks:
                callback(0, Fate("stopped"))

    def actor(self, mesh_id: str, rank: int, name: str, *, here: bool) -> None:
        """An actor of the rank has begun, or was stopped (``here`` is False)."""
        with self._lock:
            record = self.meshes.get(mesh_id)
            if record is not None:
                record.actors.setdefault(name, {})[rank] = here

    def of_agent(self, agent: AgentLink) -> list[tuple[MeshRecord, list[int]]]:
        """Return the ranks that live below an agent, by mesh."""
        with self._lock:
            return [
                (record, [rank for rank in record.alive() if record.agent_of[rank] is agent])
                for record in self.meshes.values()
            ]

    def placed_on(self, agent: AgentLink) -> list[tuple[str, int]]:
        """Return the ranks that an agent was to run, also those that have ended."""
        with self._lock:
            return [
                (record.mesh_id, rank)
                for record in self.meshes.values()
                for rank, host in enumerate(record.agent_of)
                if host is agent
            ]

    def is_stopped(self, mesh_id: str) -> bool:
        """Whether a mesh was stopped, or is being stopped."""
        record = self.meshes.get(mesh_id)
        return record is None or record.stopped is not None

    def stopped_how(self, mesh_id: str) -> str:
        """See `meshrt.hooks.services.RootServices.stopped_how`."""
        record = self.meshes.get(mesh_id)
        first = None if record is None else self._of_script(record)
        if first is None or first.stopped is None:
            return ""
        if first.abandoned:
            return "abandoned"
        return "left" if first.left else "stopped"

    def running(self) -> list[MeshRecord]:
        """Return the meshes that are not stopped."""
        with self._lock:
            return [record for record in self.meshes.values() if record.stopped is None or not record.stopped.finished]

    def _of_script(self, record: MeshRecord) -> MeshRecord:
        """Return the mesh that the script has made with which this one ends: itself, or its owners' owner."""
        while record.owner is not None and record.owner.mesh_id in self.meshes:
            record = self.meshes[record.owner.mesh_id]
        return record

    def running_by_script(self) -> list[list[MeshRecord]]:
        """Return the same by the mesh of the script, the latest first: what ranks have made is with their own mesh."""
        with self._lock:
            found: dict[str, list[MeshRecord]] = {}
            for record in self.running():
                found.setdefault(self._of_script(record).mesh_id, []).append(record)
            return [found[mesh_id] for mesh_id in reversed(self.meshes) if mesh_id in found]

    def describe(self) -> list[dict[str, Any]]:
        """Return plain data on every running mesh (`meshrt.hooks.services.RootServices.meshes`)."""
        with self._lock:
            return [_described(record) for record in self.running()]

    def describe_one(self, mesh_id: str) -> dict[str, Any] | None:
        """Return the same of one mesh, which may have ended; None if it is not remembered."""
        with self._lock:
            record = self.meshes.get(mesh_id)
            return None if record is None else _described(record)


def _described(record: MeshRecord) -> dict[str, Any]:
    return {
        "mesh_id": record.mesh_id,
        "name": record.name,
        "shape": record.shape.to_wire(),
        "host": {rank: agent.host for rank, agent in enumerate(record.agent_of)},
        "pid": dict(record.pids),
        "alive": record.alive(),
        "started": record.started,
        "gone": {rank: [str(fate), record.ended[rank]] for rank, fate in record.fates.items()},
        "silent": dict(record.silent),
        "incarnations": dict(record.incarnations),
        "stopping": record.stopped_at,
        "over": record.over_at,
        "actors": [{"name": name} for name in record.running_actors()],
    }


def _bind_restart(callback: Callable[[int, Fate], None], incarnation: int, fate: Fate) -> Callable[[], None]:
    return lambda: callback(incarnation, fate)


def _bind(callback: Callable[[Fate], None], fate: Fate) -> Callable[[], None]:
    return lambda: callback(fate)
