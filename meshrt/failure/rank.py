"""The rank's side: records each exception that leaves user code, and sends it to the root (`Recorded`).

On the thread that raised. A rank that fails all the time sends a few records in full, and then only counts; but the
first one of each of `_PLACES` places in the code is sent in any case: what ends the program may come behind many that
are handled.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType, TracebackType

from msgspec.structs import replace

from meshrt.actor.errors import type_name
from meshrt.collectives.torch_groups import is_in_torch, read_world
from meshrt.failure.capture import capture, reference
from meshrt.failure.record import ExceptionFacts, FailureRecord, Recorded
from meshrt.files import is_library_file
from meshrt.hooks.facts import EndpointCall, Raised
from meshrt.hooks.services import RankServices
from meshrt.hooks.table import hooks
from meshrt.inspect.visibility import is_hidden_file
from meshrt.selection import Shape
from meshrt.transport.directories import ERROR_FILE
from meshrt.transport.process import INCARNATION
from meshrt.wire.codec import own_attribute, text_of

__all__ = ["Recorder", "load"]

#: Records in a row that are sent in full; one more is allowed per this number of seconds.
_IN_A_ROW = 20
_ONE_MORE = 2.0
#: Places whose first record is sent in any case.
_PLACES = 64
#: First instructions of the handlers that Python itself adds for comprehensions, coroutines, generators, ``async for``.
_OF_PYTHON = ("SWAP", "CLEANUP_THROW", "CALL_INTRINSIC_1", "END_ASYNC_FOR")
#: An exception that passed clean-up code (``with``, ``finally``) was raised at most so long before, ns.
_CLEAN_UP = 1_000_000_000
#: Bytes of an error file that is passed on.
_LEFT_MAX = 8 << 20


class Recorder:
    """Writes the records of this process. Any thread.

    Args:
        origin: What all of its records have: the facts of this process.
        send: Sends a record; called on the thread that raised.
    """

    def __init__(self, origin: FailureRecord, send: Callable[[FailureRecord], None]) -> None:
        self._origin = origin
        self._send = send
        self._lock = threading.Lock()
        self._credit = float(_IN_A_ROW)
        self._counted = time.monotonic()
        self._left_out = 0
        #: Where exceptions were raised: type, line of the user's code, innermost line.
        self._places: set[tuple[object, ...]] = set()

    def raised(self, raised: Raised) -> None:
        """Send the record of an exception, or only count it. On the thread that raised."""
        with self._lock:
            seconds = time.monotonic()
            self._credit = min(_IN_A_ROW, self._credit + (seconds - self._counted) / _ONE_MORE)
            self._counted = seconds
            new = self._is_new(raised.error)
            if self._credit < 1 and not new:
                self._left_out += 1
                return
            self._credit = max(0.0, self._credit - 1)
            left_out, self._left_out = self._left_out, 0
        self._send(self._record(raised, left_out))

    def _is_new(self, error: BaseException) -> bool:
        """Whether this is the first exception of its type from its line, and one of the first `_PLACES`."""
        if len(self._places) == _PLACES:
            return False
        raised = traceback.walk_tb(own_attribute(error, "__traceback__"))
        lines = [(frame.f_code.co_filename, number) for frame, number in raised]
        if not lines:
            return False
        users = next((line for line in reversed(lines) if not is_library_file(line[0])), None)
        place = (type_name(error), users, lines[-1])
        new = place not in self._places
        self._places.add(place)
        return new

    def _record(self, raised: Raised, left_out: int) -> FailureRecord:
        origin, call, error = self._origin, raised.call, raised.error
        try:
            facts = capture(error)
        except BaseException as failure:  # an error here must not replace the exception
            facts = ExceptionFacts(type_name(error), text_of(error)[:1000], notes=(f"incomplete: {text_of(failure)}",))
        thread = threading.current_thread()
        return replace(
            origin,
            id=raised.failure,
            blame="platform" if "MemoryError" in facts.bases else "user",
            # Of several ranks in one process (`meshrt.mesh.own_ranks`), that of the call.
            mesh_id=call.mesh_id if call is not None else origin.mesh_id,
            rank=call.rank if call is not None else origin.rank,
            actor=call.actor if call is not None else "",
            coordinates=_coordinates(call),
            endpoint=call.endpoint if call is not None and not raised.what else "",
            what=raised.what,
            waited_for=raised.waited_for,
            thread="" if thread is threading.main_thread() else thread.name,
            exception=facts,
            low=raised.when - (_CLEAN_UP if _has_cleaned_up(error) else 0),
            high=raised.when,
            time=time.time_ns() / 1e9,
            copies=left_out,
            because=reference(raised.because) if raised.because is not None else None,
            world=read_world(()) if facts.frames and is_in_torch(facts.frames[-1].file, "") else None,
        )


def _coordinates(call: EndpointCall | None) -> dict[str, int]:
    if call is None or not call.view:
        return {}
    shape = Shape.from_wire(call.view)
    return dict(shape.extent.point(shape.ndslice.index(call.rank)))


def _has_cleaned_up(error: BaseException) -> bool:
    """Whether the exception has passed a ``with``, ``finally`` or ``except``, which may have taken time."""
    walker: TracebackType | None = own_attribute(error, "__traceback__")
    while walker is not None:
        code = walker.tb_frame.f_code
        if not is_hidden_file(code.co_filename) and _covered(code, walker.tb_lasti):
            return True
        walker = walker.tb_next
    return False


def _covered(code: CodeType, offset: int) -> bool:
    """Whether an exception handler of ``code`` covers an instruction.

    Source of the format: Objects/exception_handling_notes.txt of CPython (3.11 and later).
    """
    import opcode  # start-up: only after a failure

    for start, length, target, _ in zip(*[iter(_varints(code.co_exceptiontable))] * 4, strict=False):
        if start * 2 <= offset < (start + length) * 2:
            return opcode.opname[code.co_code[target * 2]] not in _OF_PYTHON
    return False


def _varints(table: bytes) -> list[int]:
    numbers, value = [], 0
    for byte in table:
        if byte & 0x80:
            value = 0  # an entry begins
        value = (value << 6) | (byte & 0x3F)
        if not byte & 0x40:
            numbers.append(value)
            value = 0
    return numbers


class _LeftBehind:
    """The error file of this rank, which the root reads with each record: passed on where the root cannot see it."""

    def __init__(self, services: RankServices) -> None:
        self._services = services
        self._path = Path(os.environ.get(ERROR_FILE, ""))
        #: When what was passed on had been written.
        self._changed = 0

    def pass_on(self) -> None:
        """Send it, if it has changed. Any thread."""
        if not self._services.elsewhere:
            return
        with contextlib.suppress(OSError):
            changed = self._path.stat().st_mtime_ns
            if changed != self._changed and self._path.stat().st_size < _LEFT_MAX:
                self._changed = changed
                self._services.keep_file(self._path.name, self._path.read_text(errors="replace"))


def load(services: RankServices) -> None:
    """Write records from now on: called once, by the first exception."""
    origin = FailureRecord(
        mesh_id=services.mesh_id,
        mesh=services.mesh_name,
        rank=services.rank,
        host=services.host_name,
        pid=services.pid,
        incarnation=int(os.environ.get(INCARNATION, "0")),
    )
    left = _LeftBehind(services)

    def send(record: FailureRecord) -> None:
        left.pass_on()
        services.report(Recorded(record))

    hooks.raised.append(Recorder(origin, send).raised)
