"""``MESHRT_MEMORY_LIMIT``: a rank that allocates more memory gets a MemoryError, and a file says what it held.

The kernel enforces the limit (RLIMIT_DATA: private writable memory, whether written or not). So the error is raised
where the memory was requested, before any process is killed. A file is written:

* when a rank comes near its limit (`_NEAR` of it, checked with each ping of its agent): once,
* when a MemoryError leaves an endpoint: before its frames end, with their variables.

Writing needs memory too. While the variables that a MemoryError has passed are written, the limit is `_ROOM` higher.
The runtime's own reports also need memory, while the frames that have failed still exist: `_SLACK`. The file that is
written near the limit uses the memory that is left, as the actor goes on meanwhile.
"""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from meshrt.errors import MeshError
from meshrt.hooks.facts import EndpointCall, Variable
from meshrt.hooks.services import RankServices
from meshrt.hooks.table import hooks
from meshrt.host.memory import private, resident, shares
from meshrt.inspect.exceptions import frames_of
from meshrt.inspect.variables import local_variables
from meshrt.memory.document import Document, document_of, plain
from meshrt.memory.heap import heap
from meshrt.memory.merging import merged_alone
from meshrt.memory.operations import Looked, MeasureVariables, RankRow
from meshrt.memory.rows import rows
from meshrt.memory.units import amount
from meshrt.show.records import to_text
from meshrt.transport.threads import RuntimeThread

__all__ = ["Limit"]

_NEAR = 0.9
#: Files of one rank, at most: a rank that fails all the time must not fill the disk.
_MOST_FILES = 5
_ROOM = 256 << 20
#: Bytes above the limit for the reports of a process that uses it up; the stack of a thread takes half of them.
_SLACK = 16 << 20
#: Bytes that a walk uses for each object, and some more.
_PER_OBJECT = 200
_MOST_ROWS = 200
_MOST_FRAMES = 20
_MILLISECONDS = 2000.0


class Limit:
    """The limit of this process: made by the operation ``memory.limit``.

    Args:
        count: Bytes.

    Raises:
        SystemExit: The process has more already, or nearly so: it could not even report why it ends.
    """

    def __init__(self, services: RankServices, count: int) -> None:
        used = private(services.pid)
        if used + _SLACK > count:
            has = f"a rank uses {amount(used)} before its actor is created; expected at least {amount(used + _SLACK)}"
            print(f"meshrt: MESHRT_MEMORY_LIMIT is {amount(count)}, and {has}", file=sys.stderr)
            raise SystemExit(1)
        self._services = services
        self._count = count
        self._hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        self._files = 0
        self._lock = threading.Lock()
        self._near = False
        #: Whether the limit is higher than requested.
        self._roomy = False
        self._set(count)
        hooks.pulse.append(self._pulse)
        hooks.endpoint_error.append(self._raised)

    def _set(self, count: int) -> None:
        if self._hard != resource.RLIM_INFINITY:
            count = min(count, self._hard)
        resource.setrlimit(resource.RLIMIT_DATA, (count, self._hard))

    def _make_room(self, room: int) -> None:
        self._roomy = True
        self._set(self._count + room)

    def _rest(self, used: int) -> None:
        # Not higher each time: an actor that keeps its memory would get more with each failure. But other threads may
        # have allocated more while the file was written.
        self._roomy = used + _SLACK > self._count
        self._set(max(self._count + _SLACK, used) if self._roomy else self._count)

    def _pulse(self) -> None:
        """Check whether the process is near its limit, and take back the room that was made. On the control thread."""
        if not self._lock.acquire(blocking=False):
            return  # a file is being written, and needs the room that it has
        try:
            used = private(self._services.pid)
            if self._roomy:
                self._rest(used)
            if self._near or used < _NEAR * self._count:
                return
            self._near = True
            self._make_room(_SLACK)
        finally:
            self._lock.release()
        about = ("is near", (), _SLACK, (self._count - used) // _PER_OBJECT)
        RuntimeThread(target=self._write, args=about, name="meshrt-memory", daemon=True).start()

    def _raised(self, call: EndpointCall, error: BaseException) -> None:
        """Write a file about a MemoryError. On the actor's thread, before its frames unwind."""
        if isinstance(error, MemoryError):
            self._write("has tried to allocate more than", _locals(call, error), _ROOM, None)

    def _write(self, how: str, variables: Iterable[Variable], room: int, objects: int | None) -> None:
        limit = f"its MESHRT_MEMORY_LIMIT ({amount(self._count)})"
        services = self._services
        with self._lock:
            self._files += 1
            if self._files > _MOST_FILES:
                self._rest(private(services.pid))
                return
            self._make_room(room)
            name = f"memory-{services.mesh_name}-{services.mesh_id}.{services.rank}-{self._files}.json"
            try:
                document = self._document(f"{how} {limit}", variables, objects)
                path = services.keep_file(name, to_text(plain(document)), durable=True)
                text = f"to show its memory: meshrt memory --open {path}"
            except (MeshError, OSError, MemoryError) as error:
                text = f"the snapshot of its memory could not be written: {type(error).__name__} {error}"
            finally:
                self._rest(private(services.pid))
        print(f"meshrt: rank {services.rank} of {services.mesh_name} {how} {limit}; {text}", file=sys.stderr)

    def _document(self, note: str, variables: Iterable[Variable], objects: int | None) -> Document:
        services = self._services
        actors = services.actors()
        asked = MeasureVariables(frames=True, milliseconds=_MILLISECONDS, objects=objects, most=_MOST_ROWS)
        said, _ = rows(actors, asked, variables)
        row = RankRow(
            mesh_id=services.mesh_id,
            mesh=services.mesh_name,
            rank=services.rank,
            coords={},
            host=services.host_name,
            pid=services.pid,
            actors=[actor.name for actor in actors],
            state="running",
            note=note,
            **msgspec.structs.asdict(heap()),
            **resident(services.pid).joined(shares(services.pid)).known(),
            unique=said.unique,
            mapped=said.mapped,
            total=said.total,
            exact=said.exact,
        )
        return document_of(
            Looked(
                time=time.time_ns() / 1e9,
                run_id=Path(services.run_directory).name.rpartition("-")[2],
                ranks=[row],
                processes=[],
                variables=merged_alone(services.mesh_id, services.rank, said),
                variables_left_out=said.left_out,
            )
        )


def _locals(call: EndpointCall, error: BaseException) -> Iterator[Variable]:
    """Yield the variables of the frames that a MemoryError has passed, those of the innermost one first."""
    for frame, line in reversed(frames_of(error, _MOST_FRAMES)):
        if frame.f_locals is not frame.f_globals:
            yield from local_variables(call.actor, frame, line, frame.f_locals)
