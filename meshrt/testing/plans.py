"""A plan of faults on a mesh of processes: brought to its ranks, waited for, and checked at its end.

::

    made --begin--> under way --end--> over

A fault: ``planned -> told`` (its rank is about to have it, and waits for the root's answer) ``-> there`` (its process
has ended, or is stopped). One that is planned at the end is an error.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshrt.errors import MeshError, UsageError
from meshrt.faults.operations import EndOnRank, LookOnRank, Planned, Seen
from meshrt.faults.root import Faults
from meshrt.hooks.facts import Answered, Unanswered
from meshrt.hooks.plugins import plugins
from meshrt.mesh.proc_mesh import ProcMesh
from meshrt.mesh.program import running_root
from meshrt.program.words import why_unanswered
from meshrt.testing.clocked import is_readable
from meshrt.testing.declared import Fault
from meshrt.transport.kernel import is_stopped

if TYPE_CHECKING:
    from meshrt.mesh.root import Root

__all__ = ["FaultPlan", "faults"]

#: Seconds between two looks at what nothing tells of: a process that stops, ranks that are at work.
_LOOK = 0.03
#: Seconds that ranks have to end what they are at, before a fault counts as one that has not happened.
_AT_WORK = 5.0
#: Looks in a row that find no rank at work: a thread may just have read a message whose call has not begun.
_QUIET = 3
#: ... and that a process has to stop, once it was about to.
_TO_STOP = 10.0


class FaultPlan:
    """Faults that are to happen once each, on each of their ranks. Threads of the script.

    Args:
        faults: What `kill`, `stop` and `cut` return.
    Raises:
        UsageError: One of them is something else.
    """

    def __init__(self, *faults: Fault) -> None:
        wrong: list[object] = [each for each in faults if type(each) is not Fault]
        if wrong:
            raise UsageError(f"a plan of faults consists of results of testing.kill, stop and cut, not of {wrong[0]!r}")
        self._faults = faults
        self._name = secrets.token_hex(8)
        self._root: Root | None = None
        self._mesh_id = ""
        self._ranks: list[tuple[int, ...]] = []
        self._changed = threading.Condition()
        #: What has happened, in this order: number of the fault, base rank, pid.
        self._told: list[tuple[int, int, int]] = []
        #: Processes that are stopped, by pid: a pidfd.
        self._stopped: dict[int, int] = {}
        self._timers: list[threading.Timer] = []
        self._calls: dict[tuple[int, int], int] = {}
        self._over = False

    # -- the script

    def begin(self, mesh: ProcMesh) -> None:
        """Send the plan to the ranks of a mesh, or of a slice, and wait until all of them count their calls.

        Raises:
            UsageError: The plan was begun before, the mesh has no such ranks, or they are no processes of this program;
                or ranks that are to be stopped are on another machine.
            SpawnError, MeshError: The processes are not there.
        """
        if self._root is not None:
            raise UsageError("this plan of faults was already started: make another one")
        if not isinstance(mesh, ProcMesh):
            raise UsageError(f"a plan of faults requires a mesh of processes, as proc_mesh makes it, not {mesh!r}")
        ranks = [fault.of(mesh._shape) for fault in self._faults]
        root = running_root()
        if root is None or root.services.mesh(mesh.mesh_id) is None:
            raise UsageError(f"a plan of faults is for processes of this program: {mesh.name} has none")
        mesh.initialized.get()
        self._root, self._mesh_id, self._ranks = root, mesh.mesh_id, ranks
        planned = [
            Planned(fault.kind, its, fault.at.endpoint, fault.at.number, fault.at.actor, fault.at.after)
            for fault, its in zip(self._faults, ranks, strict=True)
        ]
        answers = self._side.begin(self._name, self._mesh_id, planned, self._tell)
        stopping = {
            rank for fault, its in zip(self._faults, ranks, strict=True) if fault.kind == "stop" for rank in its
        }
        for group in answers:
            if isinstance(group, Unanswered):
                self._withdraw()
                raise MeshError(f"ranks {list(group.ranks)} did not get the plan of faults: {why_unanswered(group)}")
            if group.same.elsewhere and stopping & set(group.ranks):
                self._withdraw()
                raise UsageError("stop: a rank on another machine cannot be continued from here; use kill or cut")

    @property
    def happened(self) -> list[str]:
        """What has happened so far, in this order: ``"kill of rank 3 at call 5 of step()"``."""
        with self._changed:
            return [self._faults[number].text([rank]) for number, rank, _ in self._told]

    def wait(self, timeout: float | None = None) -> None:
        """Wait until each fault has happened: killed processes have ended, stopped ones are stopped.

        Args:
            timeout: Seconds; None: no limit.
        Raises:
            TimeoutError: Some have not; the text names them.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._missing() or not all(map(self._is_there, tuple(self._told))):
            left = _LOOK if deadline is None else min(_LOOK, deadline - time.monotonic())
            if left <= 0:
                raise TimeoutError(f"not all faults have happened within {timeout:g} s\n{self}")
            with self._changed:
                self._changed.wait(left)

    def resume(self) -> None:
        """Resume the stopped processes."""
        with self._changed:
            stopped, self._stopped = self._stopped, {}
        for pid, descriptor in stopped.items():
            _continue(pid, descriptor)

    def end(self, *, failed: bool = False) -> str:
        """End the plan: stopped processes are resumed, and no further faults happen.

        Args:
            failed: The test has failed: ranks that are at work are not waited for.
        Returns:
            What has not happened, a line for each fault; "": all of it has, or the plan was never begun.
        """
        if self._root is None or self._over:
            return ""
        self._over = True
        try:
            if running_root() is self._root:
                if not failed:
                    self._let_work_end(self._root)
                self._withdraw()
        finally:
            for timer in self._timers:
                timer.cancel()
            self.resume()
        return "\n".join(
            f"{self._faults[number].text([rank])} has not happened; such calls so far: {self._calls.get(each, 0)}"
            for each in self._missing()
            for number, rank in [each]
        )

    def __str__(self) -> str:
        lines = [f"  {text}: has happened" for text in self.happened]
        lines += [f"  {self._faults[number].text([rank])}: has not happened" for number, rank in self._missing()]
        return "\n".join(["the plan of faults:", *lines])

    # -- what ranks tell

    @property
    def _side(self) -> Faults:
        if self._root is None:
            raise UsageError("this plan of faults was not started")
        plugins.load("faults", self._root.services, in_root=True)
        side: Faults = self._root.services.tables["faults"]
        return side

    def _tell(self, number: int, rank: int) -> None:
        """A rank is about to have a fault. On the root's loop."""
        facts = None if self._root is None else self._root.services.mesh(self._mesh_id)
        pid = 0 if facts is None else facts.pids.get(rank, 0)
        fault = self._faults[number]
        with self._changed:
            if fault.kind == "stop":
                self._stopped[pid] = os.pidfd_open(pid)
            self._told.append((number, rank, pid))
            self._changed.notify_all()
        if fault.seconds is not None:
            timer = threading.Timer(fault.seconds, self._resume_one, (pid,))
            timer.daemon = True
            self._timers.append(timer)
            timer.start()

    def _resume_one(self, pid: int) -> None:
        with self._changed:
            descriptor = self._stopped.pop(pid, -1)
        if descriptor >= 0:
            _continue(pid, descriptor)

    def _missing(self) -> list[tuple[int, int]]:
        told = {(number, rank) for number, rank, _ in tuple(self._told)}
        planned = itertools.chain.from_iterable(
            ((number, rank) for rank in ranks) for number, ranks in enumerate(self._ranks)
        )
        return [each for each in planned if each not in told]

    def _is_there(self, told: tuple[int, int, int]) -> bool:
        number, rank, pid = told
        kind = self._faults[number].kind
        if kind == "stop":
            descriptor = self._stopped.get(pid, -1)
            return descriptor < 0 or is_stopped(pid) or _has_ended(descriptor)
        facts = None if self._root is None else self._root.services.mesh(self._mesh_id)
        return kind == "cut" or facts is None or rank in facts.ended or facts.pids.get(rank) != pid

    # -- the end

    def _ranks_of(self, missing: list[tuple[int, int]]) -> list[int]:
        return sorted({rank for _, rank in missing})

    def _let_work_end(self, root: Root) -> None:
        """Faults may be due for calls that were sent, and whose ranks are at work."""
        if not self._missing():
            return
        deadline = time.monotonic() + _AT_WORK
        written = threading.Event()
        root.runtime.driver.queues.when_written(self._mesh_id, _AT_WORK, lambda _left: written.set())
        written.wait(_AT_WORK)
        quiet = 0
        while self._missing() and quiet < _QUIET and time.monotonic() < deadline:
            answers = self._side.ask(self._mesh_id, self._ranks_of(self._missing()), LookOnRank(self._name))
            seen = [each for group in answers if isinstance(group, Answered) for each in self._note(group)]
            quiet = 0 if any(each.busy for each in seen) else quiet + 1
            with self._changed:
                self._changed.wait(_LOOK)

    def _note(self, group: Answered[None, Seen]) -> list[Seen]:
        for rank, seen in group.per.items():
            for number, calls in enumerate(seen.calls):
                self._calls[number, rank] = calls
        return list(group.per.values())

    def _withdraw(self) -> None:
        ranks = sorted({rank for its in self._ranks for rank in its})
        happening: set[tuple[int, int]] = set()
        for group in self._side.ask(self._mesh_id, ranks, EndOnRank(self._name)):
            if isinstance(group, Answered):
                self._note(group)
                happening |= {(number, rank) for rank, seen in group.per.items() for number in seen.happening}
        with self._changed:  # what was about to happen then is told now
            self._changed.wait_for(lambda: not happening & set(self._missing()), _TO_STOP)
        self._side.forget(self._name)


def _continue(pid: int, descriptor: int) -> None:
    """Let a process go on that is stopped, or is about to be: a signal that comes before would be lost."""
    deadline = time.monotonic() + _TO_STOP
    ended = threading.Event()
    while not is_stopped(pid) and time.monotonic() < deadline and not _has_ended(descriptor):
        ended.wait(_LOOK / 10)
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, signal.SIGCONT)
    os.close(descriptor)


def _has_ended(descriptor: int) -> bool:
    """Whether a process has, also if nobody has asked for its status yet: a pidfd can be read then."""
    return is_readable(descriptor)


@contextlib.contextmanager
def faults(mesh: ProcMesh, *planned: Fault) -> Iterator[FaultPlan]:
    """Inject faults into ranks of a mesh of processes: ``with faults(mesh, kill(3, at=call("step", 5))) as plan``.

    Args:
        mesh: As `proc_mesh` makes it, or a slice of it: ranks are numbers in this view.
        planned: What `kill`, `stop` and `cut` return.
    Raises:
        UsageError, SpawnError: As `FaultPlan.begin`.
        MeshError: At the end of the block: a fault has not happened. If an error leaves the block, that has a note of
            what has happened, and what has not.
    """
    plan = FaultPlan(*planned)
    plan.begin(mesh)
    try:
        yield plan
    except BaseException as error:
        try:
            plan.end(failed=True)
        except MeshError as problem:  # it does not replace the error of the block
            error.add_note(f"the plan of faults could not be ended: {problem}")
        error.add_note(str(plan))
        raise
    missing = plan.end()
    if missing:
        raise MeshError(missing)
