"""Ranks that are started again after their end, because the owner of their actors has asked for it.

A rank is one process: it is started again only if every actor that lives on it is to be built again, and

* its process has ended by itself (not because it was stopped), or was lost with another machine: then it is started on
  a host that is left (`meshrt.mesh.moving`),
* it has restarts left (``max_restarts``), and
* the last one was more than `APART` seconds ago: what dies again at once would do so for ever.

The owner of an actor keeps the message for its ``__init__``, and sends it again: `Rebuilding`. Other messages to a rank
that ended are lost (the callers are told, with ``may_have_run``); later ones wait for ``__init__``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from meshrt.errors import (
    ActorError,
    HostLost,
    LinkLost,
    MeshError,
    ProcessDied,
    RankPlace,
    SupervisionError,
    UsageError,
)
from meshrt.hooks.fate import Fate
from meshrt.mesh.call import QuietCall
from meshrt.mesh.sending import send_init
from meshrt.mesh.target import Target
from meshrt.store.packing import Parcel
from meshrt.transport.process import ProcessRuntime, current_runtime
from meshrt.wire.control import Address
from meshrt.wire.errors import in_brief
from meshrt.wire.operations import Unhandled

if TYPE_CHECKING:
    from meshrt.mesh.record import MeshRecord

__all__ = ["APART", "Rebuilding", "Restart", "Restarts", "check_max_restarts", "check_restartable", "end_rebuilding"]

#: Seconds between two restarts of a rank.
APART = 5.0


class Restart(msgspec.Struct, frozen=True):
    """The restart of a rank, on which an actor was built again: passed to ``on_restart``.

    Attributes:
        place: The rank as it is now.
        incarnation: How often it has been started again.
        error: How the process before has ended.
    """

    place: RankPlace
    incarnation: int
    error: MeshError


def check_max_restarts(count: object) -> int:
    """Return ``count`` if it is a number of restarts. Raises UsageError."""
    if type(count) is not int or count < 0:
        raise UsageError(f"max_restarts={count!r}: expected the maximum number of restarts of a rank, an integer >= 0")
    return count


def check_restartable(target: Target) -> None:
    """Raise UsageError if only the process that spawns the actor would be started again."""
    runtime = current_runtime()
    if runtime.is_root:
        here = runtime.own_mesh is not None and runtime.own_mesh.mesh_id == target.mesh_id
    else:
        here = (target.mesh_id, target.shape.ranks()) == (runtime.mesh_id, [runtime.rank])
    if here:
        raise UsageError(
            "max_restarts= requires an actor in another process: this actor would run in the process that spawns it, "
            "and no process would be left that could build it again; make a proc_mesh() for the actor, or omit "
            "max_restarts="
        )


class _Allowed(msgspec.Struct, frozen=True):
    count: int
    #: The rank that has spawned the actor, and would build it again; ("", 0): the script.
    spawner: Address


class Restarts:
    """The restarts that were requested of the root. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: rank -> actor.
        self._allowed: dict[Address, dict[str, _Allowed]] = {}
        #: rank -> when it was started again (monotonic seconds).
        self._begun: dict[Address, list[float]] = {}

    def allow(self, mesh_id: str, ranks: Iterable[int], actor: str, count: int, spawner: Address) -> None:
        """Start these ranks again, at most ``count`` times, as far as ``actor`` is concerned; 0: not any more."""
        with self._lock:
            for rank in ranks:
                if count:
                    self._allowed.setdefault((mesh_id, rank), {})[actor] = _Allowed(count, spawner)
                else:
                    self._allowed.get((mesh_id, rank), {}).pop(actor, None)

    def refuses(self, record: MeshRecord, rank: int, fate: Fate) -> str | None:
        """Return why a rank that has ended is not started again; "" if that was not asked for; None: it is to be."""
        with self._lock:
            address = (record.mesh_id, rank)
            allowed = self._allowed.get(address)
            lost = fate.kind == "died" or (fate.kind == "host" and record.agent_of[rank].machine)
            if not allowed or not lost or record.stopped is not None or rank not in record.pids:
                return ""
            others = sorted(name for name in record.actors_of(rank) if name not in allowed)
            if others:
                return f"it also runs {others[0]}, which has no max_restarts"
            begun = self._begun.get(address, [])
            if len(begun) >= min(each.count for each in allowed.values()):
                return f"it was already restarted {len(begun)} time{'s' * (len(begun) > 1)}"
            if begun and time.monotonic() - begun[-1] < APART:
                return f"it ended within {APART:g} s of its last restart"
            return None

    def begin(self, mesh_id: str, rank: int) -> set[str]:
        """Note that a rank is started again; returns the actors that it is to have."""
        with self._lock:
            self._begun.setdefault((mesh_id, rank), []).append(time.monotonic())
        return self.actors(mesh_id, rank)

    def actors(self, mesh_id: str, rank: int) -> set[str]:
        """Return the actors that a rank has again when it is started again."""
        with self._lock:
            return set(self._allowed.get((mesh_id, rank), ()))

    def forget_actor(self, mesh_id: str, rank: int, actor: str) -> None:
        """An actor was stopped on a rank."""
        self.allow(mesh_id, [rank], actor, 0, ("", 0))

    def forget_spawner(self, spawner: Address) -> None:
        """A rank has ended: the actors that it has spawned cannot be built again."""
        with self._lock:
            for actors in self._allowed.values():
                for actor in [actor for actor, allowed in actors.items() if allowed.spawner == spawner]:
                    del actors[actor]

    def forget(self, mesh_id: str) -> None:
        """The mesh has ended."""
        with self._lock:
            self._allowed = {address: value for address, value in self._allowed.items() if address[0] != mesh_id}
            self._begun = {address: value for address, value in self._begun.items() if address[0] != mesh_id}


class Rebuilding:
    """Builds an actor again on the ranks that are started again. In the process that has spawned it.

    Args:
        target: The actor.
        class_name, packed: What its ``__init__`` was sent (`meshrt.mesh.sending.send_init`).
        told: Called with a `Restart` when its ``__init__`` has run again; on a separate thread.
    """

    def __init__(
        self, target: Target, class_name: str, packed: Parcel, told: Callable[[Restart], object] | None
    ) -> None:
        self._target = target
        self._class_name = class_name
        # Copies: the script may change its objects before they are sent again.
        self._packed = packed._replace(parts=[bytes(part) for part in packed.parts])
        self._told = told
        self._over = False

    def begin(self, count: int) -> None:
        """Allow so many restarts, and wait for them; those of an actor of this name before are over."""
        runtime = current_runtime()
        end_rebuilding(self._target)
        with _lock:
            _rebuilding[_key(self._target)] = self
        runtime.tree.allow_restarts(self._target.mesh_id, self._target.shape.ranks(), self._target.name, count)
        for position in range(len(self._target.shape)):
            self._watch(runtime, position)

    def end(self) -> None:
        """Build nothing any more."""
        self._over = True
        current_runtime().tree.allow_restarts(self._target.mesh_id, self._target.shape.ranks(), self._target.name, 0)

    def _watch(self, runtime: ProcessRuntime, position: int) -> None:
        def restarted(incarnation: int, fate: Fate) -> None:
            if not incarnation or self._over:
                with _lock:
                    if _rebuilding.get(_key(self._target)) is self:
                        del _rebuilding[_key(self._target)]
                return
            self._watch(runtime, position)
            # Building has no time limit, and this thread does not belong to us.
            arguments = (position, incarnation, fate)
            threading.Thread(target=self._rebuild, args=arguments, name="meshrt-rebuild", daemon=True).start()

        rank = self._target.shape.ndslice[position]
        runtime.tree.when_restarted(self._target.mesh_id, rank, self._target.name, restarted)

    def _rebuild(self, position: int, incarnation: int, fate: Fate) -> None:
        place = self._target.place(position)
        try:
            self._send_init(position, fate)
        except ActorError as error:
            at = (place.mesh_id, place.rank)
            report = Unhandled(place.actor, "__init__", in_brief(error.remote), time.monotonic_ns(), at=at)
            current_runtime().tree.unhandled(report)
            return
        except MeshError:
            return  # it has ended again, or was stopped: handled elsewhere
        if self._told is not None:
            self._told(Restart(self._target.place(position), incarnation, fate.error(place, "")))

    def _send_init(self, position: int, fate: Fate) -> None:
        # To this rank only, with the whole view: its place in it has not changed.
        one = self._target.only(position)
        while True:
            try:
                send_init(one, self._class_name, self._packed, QuietCall).get()
                return
            except SupervisionError as error:
                # This process may still have had the link to the one before: the new one has not seen it then.
                lost = isinstance(error, ProcessDied | HostLost) and error.place.pid == fate.pid
                if type(error) is not LinkLost and not lost:
                    raise


def end_rebuilding(target: Target) -> None:
    """An actor is spawned on ranks that had one of its name: the one before is not built again."""
    with _lock:
        before = _rebuilding.pop(_key(target), None)
    if before is not None:
        before.end()


_lock = threading.Lock()
#: What this process would build again: an actor may live on several slices, each spawned by itself.
_rebuilding: dict[tuple[str, str, tuple[int, ...]], Rebuilding] = {}


def _key(target: Target) -> tuple[str, str, tuple[int, ...]]:
    return target.mesh_id, target.name, tuple(target.shape.ranks())
