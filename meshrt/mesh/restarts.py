"""Ranks that are started again after their end, because whoever spawned their actors has asked for it.

A rank is one process: it is started again only if every actor that lives on it is to be built again, and

* its process has ended by itself (not with its host, not because it was stopped),
* it has restarts left (``max_restarts``), and
* the last one was more than `APART` seconds ago: what dies again at once would do so for ever.

Whoever spawned an actor keeps what its ``__init__`` was sent, and sends it again: `Rebuilding`. What else was sent to a
rank that ended is lost (the callers are told, with ``may_have_run``); what is sent later waits for ``__init__``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshrt.errors import ActorError, MeshError, RankPlace, UsageError
from meshrt.mesh.call import PackedInit, send_init
from meshrt.mesh.target import Target
from meshrt.transport.fate import Fate
from meshrt.transport.process import ProcessRuntime, current_runtime
from meshrt.wire.messages import Address, error_to_wire

if TYPE_CHECKING:
    from meshrt.mesh.registry import MeshRecord

__all__ = ["APART", "Rebuilding", "Restart", "Restarts", "check_max_restarts"]

#: Seconds between two restarts of a rank.
APART = 5.0


@dataclass(frozen=True)
class Restart:
    """A rank was started again, and an actor on it built again: given to ``on_restart``.

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
        raise UsageError(f"max_restarts is how often a rank may be started again, an integer >= 0, not {count!r}")
    return count


class Restarts:
    """What the root has been asked for. Any thread."""

    def __init__(self) -> None:
        #: rank -> actor -> how many are allowed.
        self._allowed: dict[Address, dict[str, int]] = {}
        #: rank -> when it was started again (monotonic seconds).
        self._done: dict[Address, list[float]] = {}

    def allow(self, mesh_id: str, ranks: Iterable[int], actor: str, count: int) -> None:
        """Start these ranks again, at most ``count`` times, as far as ``actor`` is concerned."""
        for rank in ranks:
            self._allowed.setdefault((mesh_id, rank), {})[actor] = count

    def refuses(self, record: MeshRecord, rank: int, fate: Fate) -> str | None:
        """Return why a rank that has ended is not started again; "" if nobody has asked for it; None: it is."""
        address = (record.mesh_id, rank)
        allowed = self._allowed.get(address)
        if not allowed or fate.kind != "died" or record.stopped is not None or rank not in record.pids:
            return ""
        others = sorted(name for name, ranks in record.actors.items() if ranks.get(rank) and name not in allowed)
        if others:
            return f"{others[0]} lives there too, and has no max_restarts"
        done = self._done.setdefault(address, [])
        if len(done) >= min(allowed.values()):
            return f"it was {len(done)} times" if len(done) > 1 else "it was once"
        if done and time.monotonic() - done[-1] < APART:
            return f"it ended within {APART:g} s of its last start"
        done.append(time.monotonic())
        return None

    def forget(self, mesh_id: str) -> None:
        """The mesh has ended."""
        table: dict[Address, Any]
        for table in (self._allowed, self._done):
            for address in [address for address in tuple(table) if address[0] == mesh_id]:
                del table[address]


class Rebuilding:
    """Builds an actor again on the ranks that are started again. In the process that has spawned it.

    Args:
        target: The actor.
        class_name, packed: What its ``__init__`` was sent (`meshrt.mesh.call.send_init`).
        told: Called with a `Restart` when its ``__init__`` has run again; on a thread of its own.
    """

    def __init__(
        self,
        target: Target,
        class_name: str,
        packed: PackedInit,
        told: Callable[[Restart], object] | None,
    ) -> None:
        self._target = target
        self._class_name = class_name
        parts, lengths = packed
        # Copies: what the script has given may change before it is sent again.
        self._packed = [bytes(part) for part in parts], lengths
        self._told = told

    def begin(self, count: int) -> None:
        """Allow so many restarts, and wait for them."""
        runtime = current_runtime()
        runtime.tree.allow_restarts(self._target.mesh_id, self._target.shape.ranks(), self._target.name, count)
        for position in range(len(self._target.shape)):
            self._watch(runtime, position)

    def _watch(self, runtime: ProcessRuntime, position: int) -> None:
        def restarted(incarnation: int, fate: Fate) -> None:
            self._watch(runtime, position)
            # Building takes as long as it takes, and the thread that tells of it is not ours.
            arguments = (runtime, position, incarnation, fate)
            threading.Thread(target=self._rebuild, args=arguments, name="meshrt-rebuild", daemon=True).start()

        rank = self._target.shape.ndslice[position]
        runtime.tree.when_restarted(self._target.mesh_id, rank, restarted)

    def _rebuild(self, runtime: ProcessRuntime, position: int, incarnation: int, fate: Fate) -> None:
        place = self._target.place(position)
        # To the one rank, which is told the whole view: it is where it was.
        one = self._target.only(position)
        try:
            send_init(one, self._class_name, self._packed).get()
            if self._told is not None:
                self._told(Restart(self._target.place(position), incarnation, fate.error(place, "")))
        except ActorError as error:
            runtime.tree.unhandled(
                {
                    "at": [place.mesh_id, place.rank],
                    "actor": place.actor,
                    "endpoint": "__init__",
                    "error": error_to_wire(error.remote, brief=True),
                    "when": time.monotonic_ns(),
                }
            )
        except MeshError:
            pass  # it has ended again, or was stopped: that goes its own way
