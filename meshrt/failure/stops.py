"""Which errors are no failures: those that a regular stop by the script, by an owner, or by a signal has caused."""

from __future__ import annotations

from collections.abc import Iterator

from meshrt.errors import MeshStopped
from meshrt.failure.capture import references
from meshrt.failure.causes import tells_of_peer
from meshrt.failure.record import FailureRecord, Reference
from meshrt.failure.told import stops_behind
from meshrt.hooks.fate import LAUNCHER_SIGNALS
from meshrt.hooks.services import RootServices

__all__ = ["Stops"]

#: A rank raises an error about the end of a mesh at most so long after it, ns.
_JUST_AFTER = 1_000_000_000
#: A script loses the connection to a peer at most so long after the end of the peer, ns.
_SOON = 30_000_000_000

#: Exceptions that are known to be no failures.
_REMEMBERED = 10_000


class Stops:
    """Knows what the script has stopped. `excuse` runs on the root's loop, the other methods on any thread."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        #: What was stopped, by the id of an exception that is no failure because it came from this stop.
        self.excused: dict[str, str] = {}

    def excuse(self, record: FailureRecord, *, ended: bool = False) -> bool:
        """Excuse an exception that came from a regular stop; returns whether it did.

        Args:
            ended: Ctrl-C or SIGTERM has ended the script.
        """
        if self._lost_ended_peer(record, ended=ended):
            about = record.mesh_id
        else:
            stops = stops_behind(record.exception) if record.exception is not None else ()
            if not stops or not all(self._ended_as_meant(record, about.mesh_id) for about in stops):
                return False
            about = stops[-1].mesh_id
        self._services.excused.add(record.id)
        mesh = self._services.mesh(about)
        self.excused[record.id] = f"{'' if mesh is None else mesh.name} was stopped"
        if len(self.excused) > _REMEMBERED:
            oldest = next(iter(self.excused))
            del self.excused[oldest]
            self._services.excused.discard(oldest)
        return True

    def _lost_ended_peer(self, record: FailureRecord, *, ended: bool) -> bool:
        """Whether a script lost the connection to a peer that a signal of its launcher or user had ended before."""
        facts = self._services.mesh(record.mesh_id)
        if facts is None or not facts.script or record.exception is None or not tells_of_peer(record.exception):
            return False
        if ended and 0 < facts.stopping <= record.low:
            return True
        others = [fate for rank, fate in facts.ended.items() if rank != record.rank and fate.signal in LAUNCHER_SIGNALS]
        return facts.joined and any(0 < fate.low <= record.low <= fate.high + _SOON for fate in others)

    def _ended_as_meant(self, record: FailureRecord, mesh_id: str) -> bool:
        """Whether an exception about the end of a mesh is no failure: the script ended the mesh as intended."""
        how = self._services.stopped_how(mesh_id)
        if how != "left":
            return how == "abandoned"
        # A block that ends without an error cuts off calls under way. A use of its mesh that begins later is an error.
        facts, mine = self._services.mesh(mesh_id), self._services.mesh(record.mesh_id)
        if facts is None or not facts.over or record.low <= facts.over + _JUST_AFTER:
            return True
        return mine is not None and bool(mine.stopping) and record.high >= mine.stopping

    def references(self, error: BaseException) -> Iterator[tuple[BaseException, Reference]]:
        """Yield the errors of meshrt behind ``error`` whose cause is not a stop."""
        return ((each, about) for each, about in references(error) if not self._stopped_by(each, about))

    def only_stopped(self, error: BaseException) -> str:
        """Return what was stopped, if no other cause of ``error`` is known; or ""."""
        if any(self.references(error)):
            return ""
        return next((text for each, about in references(error) if (text := self._stopped_by(each, about))), "")

    def _stopped_by(self, error: BaseException, about: Reference) -> str:
        """Return what was stopped, if ``error`` is about a stop: a mesh by the script, or an actor; or ""."""
        if about.failure in self.excused:
            return self.excused[about.failure]
        if not isinstance(error, MeshStopped):
            return ""
        facts = self._services.mesh(about.mesh_id)
        if facts is None:
            return ""  # of another program
        how = self._services.stopped_how(about.mesh_id)
        if how in ("stopped", "left"):
            return f"{facts.name} was stopped by the script"
        # The actor may have been stopped before the block of its mesh ended because of that.
        return f"{error.place.actor} of {facts.name} was stopped" if how or not facts.stopping else ""
