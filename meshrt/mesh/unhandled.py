"""Errors that no caller waits for: printed on the terminal, equal ones of many ranks together, and supervised."""

from __future__ import annotations

from collections.abc import Callable

from meshrt.actor.faults import Fault
from meshrt.errors import RankPlace, RemoteException, one_line
from meshrt.hooks.table import hooks
from meshrt.mesh.registry import Registry
from meshrt.mesh.roottree import RootTree
from meshrt.mesh.services import Services
from meshrt.mesh.supervision import Supervision
from meshrt.selection import fold_ranks
from meshrt.wire.errors import error_to_wire, headline_of
from meshrt.wire.messages import ABORTED
from meshrt.wire.operations import Unhandled

__all__ = ["StrayErrors", "UnhandledErrors"]

#: Seconds in which further errors are grouped with the first.
_TOGETHER = 0.2
_HEADLINE = 300
#: How user code ends that `stop` interrupts, or resumes from a breakpoint: nothing to report.
_ENDED_BY_STOP = ("SystemExit", "bdb.BdbQuit")
#: Errors about a rank that was stopped, and seconds within which its record arrives.
_STOPPED = "meshrt.errors.MeshStopped"
_RECORD_COMES = 0.3

_Key = tuple[str, str, str, str]


class StrayErrors:
    """Takes them from ranks, and from this process. On the root's loop.

    Args:
        registry, services, supervision: Those of the root.
        tree: Has those of this process.
    """

    def __init__(self, registry: Registry, services: Services, supervision: Supervision, tree: RootTree) -> None:
        self._registry = registry
        self._services = services
        self._supervision = supervision
        self._unhandled = UnhandledErrors(services.announce, services.call_later)
        services.on_report(Unhandled, self._told)
        tree.on_unhandled.append(lambda report: services.call_soon(lambda: self._told("", 0, report)))

    def _told(self, mesh_id: str, rank: int, report: Unhandled) -> None:
        mesh_id, rank = report.at or (mesh_id, rank)
        remote = report.error
        record = self._registry.meshes.get(mesh_id)
        if record is not None and record.stopped is not None and remote.type in _ENDED_BY_STOP:
            return
        coords = tuple(record.shape.coordinates(rank).items()) if record is not None else ()
        host = record.agent_of[rank].host if record is not None else ""
        pid = record.pids.get(rank, 0) if record is not None else 0
        place = RankPlace(mesh_id, report.actor, rank, coords, host, pid)
        endpoint = report.endpoint
        call = f"{report.actor}.{endpoint}()" if endpoint.isidentifier() else f"{endpoint} of {report.actor}"

        def say() -> None:
            if remote.failure not in self._services.excused:
                hooks.run(self._services.unhandled, mesh_id, rank, self._unhandled.say(place, call, remote))

        if report.said:
            pass
        elif remote.type == ABORTED:
            why = f": {one_line(remote.message, _HEADLINE)}" if remote.message else ""
            self._services.announce(f"{place} has aborted{why}")
        elif remote.type == _STOPPED:
            self._services.call_later(_RECORD_COMES, say)  # whether the script has meant that is known from its record
        else:
            say()
        if record is None or not record.interrupted or report.when <= record.interrupted:
            fault = Fault(place, remote=remote, what=endpoint)
            self._supervision.stray(mesh_id, fault, answered=endpoint == "__init__" and report.said)


class UnhandledErrors:
    """Prints the first error of a kind in full, and only the ranks of further ones. On the root's loop.

    Args:
        announce: Prints a line, or several.
        later: Runs a function after so many seconds.
    """

    def __init__(self, announce: Callable[[str], None], later: Callable[[float, Callable[[], None]], None]) -> None:
        self._announce = announce
        self._later = later
        #: The errors that were printed, and the ranks of those that came since.
        self._following: dict[_Key, list[int]] = {}

    def say(self, place: RankPlace, call: str, remote: RemoteException) -> str:
        """Print it, now or together with others; returns the full text."""
        headline = f"{call} raised on {place.where}; no caller receives the exception"
        text = f"{headline}\n{remote.traceback.rstrip() or headline_of(error_to_wire(remote))}"
        key = (place.mesh_id, call, remote.type, _last_frame(remote.traceback))
        if key in self._following:
            self._following[key].append(place.rank)
        else:
            self._following[key] = []
            self._announce(text)
            self._later(_TOGETHER, lambda: self._say_rest(key, call, remote))
        return text

    def _say_rest(self, key: _Key, call: str, remote: RemoteException) -> None:
        ranks = self._following[key]
        if not ranks:
            del self._following[key]
            return
        self._following[key] = []
        times = f", {len(ranks)} times" if len(set(ranks)) < len(ranks) else ""
        what = one_line(f"{remote.type}: {remote.message}", _HEADLINE)
        word = "rank" if len(set(ranks)) == 1 else "ranks"
        self._announce(f"{call} raised the same exception on {word} {fold_ranks(ranks)}{times}: {what}")
        self._later(1.0, lambda: self._say_rest(key, call, remote))


def _last_frame(traceback: str) -> str:
    places = [line for line in traceback.splitlines() if line.lstrip().startswith('File "')]
    return places[-1] if places else ""
