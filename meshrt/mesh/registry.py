"""What the root knows of every mesh: where each rank lives, how it ended, and the callbacks for both.

A rank: ``asked -> born -> gone``. All methods may be called from any thread.
"""

from __future__ import annotations

import functools
import socket
import threading
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from meshrt.errors import ProtocolError
from meshrt.hooks.clock import HostClock
from meshrt.hooks.fate import Fate
from meshrt.hooks.snapshot import MeshFacts, Silent
from meshrt.mesh.agents import AgentLink
from meshrt.mesh.record import ActorRecord, MeshRecord, Owner
from meshrt.selection import Shape
from meshrt.wire.addresses import HostAddress
from meshrt.wire.certificate import Certificate
from meshrt.wire.control import Address

__all__ = ["OwnMesh", "Registry"]


class OwnMesh(NamedTuple):
    """A mesh whose ranks are threads of the root process.

    Attributes:
        address: Returns where it listens.
        admit: Takes a connection of another machine, whose peer has said that it is for it, and when it was accepted.
        watchers: Are to be called with the fate of its ranks.
    """

    address: Callable[[], HostAddress]
    admit: Callable[[socket.socket, Certificate, float], object]
    watchers: list[Callable[[Fate], None]]


class Registry:
    """The meshes of a program, by id; those that ended stay, so that late questions get the right answer."""

    #: Stopped meshes that are remembered.
    KEPT = 200

    def __init__(self) -> None:
        self._lock = threading.RLock()
        #: The actors that those of a rank have spawned, by their spawner: mesh id and name.
        self._spawned_by: dict[Address, dict[Owner, dict[tuple[str, str], None]]] = {}
        self.meshes: dict[str, MeshRecord] = {}
        self.own: dict[str, OwnMesh] = {}

    def add(self, record: MeshRecord) -> None:
        """Add a mesh; forgets the oldest that was stopped when there are many."""
        with self._lock:
            self.meshes[record.mesh_id] = record
            ended = [mesh_id for mesh_id, mesh in self.meshes.items() if mesh.stopped and mesh.stopped.finished]
            for mesh_id in ended[: max(0, len(ended) - self.KEPT)]:
                del self.meshes[mesh_id]

    def clock_of(self, mesh_id: str, rank: int) -> HostClock | None:
        """Return how to read the times of a rank, see `AgentLink.clock`. On the loop."""
        record = self.meshes.get(mesh_id)
        return None if record is None else record.agent_of[rank].clock

    def clocks_of(self, mesh_id: str) -> dict[int, HostClock]:
        """Return the same for all ranks of a mesh whose times have to be converted. On the loop."""
        record = self.meshes.get(mesh_id)
        if record is None or not any(agent.clock is not None for agent in set(record.agent_of)):
            return {}
        clocks = ((rank, agent.clock) for rank, agent in enumerate(record.agent_of))
        return {rank: clock for rank, clock in clocks if clock is not None}

    def when_born(self, mesh_id: str, rank: int, callback: Callable[[HostAddress | None], None]) -> None:
        """Call back when the rank listens, or has ended; with the address of its host, if it is known."""
        with self._lock:
            record = self.meshes.get(mesh_id)
            if record is not None and rank not in record.pids and rank not in record.fates:
                born = record.born_callbacks.setdefault(rank, [])
                born.append(lambda: callback(record.agent_of[rank].address))
                return
        if record is not None:
            callback(record.agent_of[rank].address)
        else:
            callback(self.own[mesh_id].address() if mesh_id in self.own else None)

    def watch(self, mesh_id: str, rank: int, callback: Callable[[Fate], None]) -> bool:
        """Call back with the rank's fate when it ends. Returns True if that was now."""
        with self._lock:
            if mesh_id in self.own:
                self.own[mesh_id].watchers.append(callback)
                return False
            record = self.meshes.get(mesh_id)
            fate = Fate("stopped") if record is None else record.fates.get(rank)
            if fate is None and record is not None:
                record.gone_callbacks.setdefault(rank, []).append(callback)
                return False
        if fate is not None:
            callback(fate)
        return True

    def unwatch(self, mesh_id: str, rank: int, callback: Callable[[Fate], None]) -> None:
        """Call back no more; a no-op for what was called."""
        with self._lock:
            record = self.meshes.get(mesh_id)
            callbacks = [] if record is None else record.gone_callbacks.get(rank, [])
            if callback in callbacks:
                callbacks.remove(callback)

    def born(self, mesh_id: str, rank: int, pid: int) -> list[Callable[[], None]]:
        """The rank listens. Returns the callbacks to run."""
        with self._lock:
            record = self.meshes[mesh_id]
            record.pids[rank] = pid
            return record.born_callbacks.pop(rank, [])

    def gone(self, mesh_id: str, rank: int, fate: Fate) -> list[Callable[[], None]]:
        """The rank has ended. Returns the callbacks to run; none the second time."""
        with self._lock:
            record = self.meshes[mesh_id]
            if rank in record.fates:
                return []
            record.fates[rank] = fate
            record.silent.pop(rank, None)
            born = record.born_callbacks.pop(rank, [])
            return [*born, *(functools.partial(callback, fate) for callback in record.gone_callbacks.pop(rank, []))]

    def restarted(self, mesh_id: str, rank: int, fate: Fate, actors: Container[str]) -> list[Callable[[], None]]:
        """The rank has ended, and is about to be started again with some actors. Returns the callbacks to run."""
        with self._lock:
            record = self.meshes[mesh_id]
            del record.pids[rank]
            record.silent.pop(rank, None)
            record.incarnations[rank] = incarnation = record.incarnations.get(rank, 0) + 1
            for name, actor in record.actors.items():
                actor.restarted(rank, again=name in actors)
            waiting = record.restart_callbacks.pop(rank, [])
            born = record.born_callbacks.setdefault(rank, [])
            born += [functools.partial(callback, incarnation, fate) for actor, callback in waiting if actor in actors]
            return [functools.partial(callback, fate) for callback in record.gone_callbacks.pop(rank, [])]

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

    def mesh_ended(self, mesh_id: str) -> None:
        """A mesh is over: nobody waits for its restarts any more, and nobody's end ends its actors."""
        with self._lock:
            for by_actor in self._spawned_by.values():
                for spawned in by_actor.values():
                    for key in [key for key in spawned if key[0] == mesh_id]:
                        del spawned[key]
            waiting, self.meshes[mesh_id].restart_callbacks = self.meshes[mesh_id].restart_callbacks, {}
        for callbacks in waiting.values():
            for _, callback in callbacks:
                callback(0, Fate("stopped"))

    def actor_spawned(self, mesh_id: str, name: str, view: Shape, spawner: Owner | None = None) -> None:
        """An actor is about to be built on a view. Raises ProtocolError: that is no part of the mesh.

        Args:
            spawner: Who is asked about its failures; None: the script.
        """
        with self._lock:
            record = self.meshes.get(mesh_id)
            if record is not None:
                if view == record.unnamed:
                    view = record.shape  # a rank that tells this late
                if not set(view.ndslice) <= set(record.shape.ndslice):
                    raise ProtocolError(f"{view} is not a part of mesh {record.name} with {record.shape}")
                record.actors.setdefault(name, ActorRecord()).spawned(view, spawner)
                if spawner is not None:
                    by_actor = self._spawned_by.setdefault((spawner.mesh_id, spawner.rank), {})
                    by_actor.setdefault(spawner, {})[mesh_id, name] = None

    def spawners_on(self, mesh_id: str, rank: int) -> list[Owner]:
        """Return the actors of a rank that have spawned others."""
        with self._lock:
            return list(self._spawned_by.get((mesh_id, rank), ()))

    def spawned_by(self, owner: Owner) -> list[tuple[str, str, int]]:
        """Return the actors that one has spawned, and that are to be stopped with it: mesh id, name and rank.

        Not those of meshes that are being stopped, or that it has made: they end with these. It is forgotten then.
        """
        with self._lock:
            by_actor = self._spawned_by.get((owner.mesh_id, owner.rank), {})
            spawned = by_actor.pop(owner, {})
            if not by_actor:
                self._spawned_by.pop((owner.mesh_id, owner.rank), None)
            records = [(self.meshes.get(mesh_id), name) for mesh_id, name in spawned]
            return [
                (record.mesh_id, name, rank)
                for record, name in records
                if record is not None and record.stopped is None and record.owner != owner
                for rank, spawner in record.actors[name].spawners.items()
                if spawner == owner and rank not in record.fates and record.actors[name].lives_on(rank)
            ]

    def dimensions_named(self, mesh_id: str, sizes: Mapping[str, int]) -> None:
        """The script on a mesh has named its dimensions. Raises ProtocolError: not for as many ranks as there are."""
        with self._lock:
            record = self.meshes.get(mesh_id)
            if record is not None:
                shape = Shape.from_extent(sizes)
                if len(shape) != len(record.shape):
                    raise ProtocolError(f"{shape} is not for the {len(record.shape)} ranks of mesh {record.name}")
                record.name_dimensions(shape)

    def actor(self, mesh_id: str, rank: int, name: str, *, here: bool) -> None:
        """An actor of the rank has begun, or was stopped (``here`` is False)."""
        with self._lock:
            record = self.meshes.get(mesh_id)
            if record is not None:
                record.actors.setdefault(name, ActorRecord()).told(rank, here=here)

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
        return mesh_id not in self.own and (record is None or record.stopped is not None)

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
        """Return the script's mesh with which this one ends: itself, or the mesh at the top of its chain of owners."""
        while record.owner is not None and record.owner.mesh_id in self.meshes:
            record = self.meshes[record.owner.mesh_id]
        return record

    def running_by_script(self) -> list[list[MeshRecord]]:
        """Return the same, grouped by the script's mesh, the latest first: meshes of ranks are with the rank's mesh."""
        with self._lock:
            found: dict[str, list[MeshRecord]] = {}
            for record in self.running():
                found.setdefault(self._of_script(record).mesh_id, []).append(record)
            return [found[mesh_id] for mesh_id in reversed(self.meshes) if mesh_id in found]

    def describe(self) -> list[MeshFacts]:
        """Return what is known of every running mesh (`meshrt.hooks.services.RootServices.meshes`)."""
        with self._lock:
            return [_described(record) for record in self.running()]

    def silent(self) -> dict[Address, Silent]:
        """Return the ranks that live and do not answer (`meshrt.hooks.services.RootServices.silent`)."""
        with self._lock:
            return {
                (record.mesh_id, rank): silent
                for record in self.running()
                for rank, silent in dict(record.silent).items()
            }

    def describe_one(self, mesh_id: str) -> MeshFacts | None:
        """Return the same of one mesh, which may have ended; None if it is not remembered."""
        with self._lock:
            record = self.meshes.get(mesh_id)
            return None if record is None else _described(record)


def _described(record: MeshRecord) -> MeshFacts:
    return MeshFacts(
        mesh_id=record.mesh_id,
        name=record.name,
        shape=record.shape,
        hosts={rank: agent.host for rank, agent in enumerate(record.agent_of)},
        pids=dict(record.pids),
        alive=tuple(record.alive()),
        actors=record.running_actors(),
        started=record.started,
        ended=dict(record.fates),
        silent=dict(record.silent),
        incarnations=dict(record.incarnations),
        joined=record.joined,
        script=record.script,
        stopping=record.stopped_at,
        over=record.over_at,
    )
