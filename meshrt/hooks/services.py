"""The services of a rank and of the root for plug-ins.

Three of them make a debugger possible from outside:

* an **operation** (`meshrt.hooks.operations`), which the control thread of a rank (or the root) serves,
* a **hold**: deadlines are suspended while a rank is stopped,
* the hook ``endpoint_error``, which is called before the exception unwinds, with the live traceback.

A fourth one makes it cheap on many ranks: **gather** puts one operation to any number of them. The root sends one
message to each host agent; the agents ask their ranks, group equal answers, ask ranks whose control thread is silent by
a signal, and send the results up in few messages.

Operations and events are named ``"<plug-in>.<operation>"``: one whose plug-in is not loaded yet loads it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from meshrt.hooks.facts import ActorState, EndpointCall, Gathered, UnreadError, Wait, Workload

if TYPE_CHECKING:
    from meshrt.errors import CallTimeout
    from meshrt.hooks.fate import Fate
    from meshrt.hooks.measured import Measured
    from meshrt.hooks.operations import Answers, Data, GroupedOperation, Operation, Report, Served, Taken
    from meshrt.hooks.snapshot import MeshFacts, Silent

__all__ = ["PendingCall", "RankServices", "RootServices", "ToolClient", "Waited"]

#: Arguments and answer of an operation; what is equal for ranks and what differs.
Q = TypeVar("Q")
A = TypeVar("A", bound="Data")
S = TypeVar("S")
P = TypeVar("P")


class RankServices(Protocol):
    """What a plug-in finds in a rank. Any thread may call these, unless said otherwise."""

    mesh_id: str
    mesh_name: str
    rank: int
    pid: int
    #: The host, as the program names it.
    host_name: str
    #: The directory of files that a user reads afterwards, on the script's machine.
    run_directory: str
    #: Whether that is another machine.
    elsewhere: bool

    def keep_file(self, name: str, text: str, *, durable: bool = False) -> Path:
        """Write a file that a user reads afterwards, so that a reader sees all of it or nothing.

        Args:
            name: In the run directory: a name that contains ``<mesh id>.<rank>``, or ``post-mortem/`` and such a name.
            durable: It is on the disk when this returns. (On another machine: it is on its way.)
        Returns:
            Its path, on the script's machine.
        Raises:
            OSError: It cannot be written.
        """

    def actors(self) -> Sequence[ActorState]:
        """Return the actors that live here, the first one (that of the main thread) first."""

    def workload(self) -> Sequence[Workload]:
        """Return how much the actors that live here have to do."""

    def wait_of(self, waiter: object) -> Wait | None:
        """Return the call that a thread (its ident) or an asyncio task waits for; None: it waits for none."""

    def waits_since(self, thread: int) -> float | None:
        """Return since when (monotonic) a thread is in a ``get()``; None: it is in none."""

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run ``function`` on the control thread after ``seconds``; it must not block and must not run user code."""

    def current_call(self) -> EndpointCall | None:
        """Return the endpoint call that runs on the calling thread, or None."""

    def current_calls(self) -> Sequence[EndpointCall]:
        """Return the endpoint calls that run on this rank now, the latest last (for a thread that user code made)."""

    def serve(self, operation: Served[Q, A], handler: Callable[[Q], A]) -> None:
        """Serve an operation on the control thread; ``handler`` must not block and must not run user code."""

    def serve_later(self, operation: Served[Q, A], handler: Callable[[Q, Answers[A]], None]) -> None:
        """As `serve`, for a handler that answers later, once, from any thread."""

    def report(self, report: Report) -> None:
        """Send a report to the root's side of the plug-in; returns at once, keeps the order."""

    def ask(self, operation: Operation[A], timeout: float) -> A:
        """Ask the root and wait (not on the control thread). Raises TimeoutError, or MeshError with a refusal."""

    def held(self) -> bool:
        """Whether a user holds any rank of the program: deadlines are suspended."""

    def set_held(self, held: bool) -> None:
        """Report that the debugger has stopped (or resumed) a thread of this rank: deadlines are suspended. Counts."""

    def typed(self, begins: bool) -> None:
        """Begin (or end), on the calling thread, a line that a user has typed: its own time-outs are not suspended."""

    #: How often `signal_main` has sent its signal, how many of them were handled, how much processor time
    #: `Hooks.signalled` has taken then (ns), and whether it runs now.
    signals_sent: int
    signals_handled: int
    signalled_ns: int
    in_signal: bool

    def signal_main(self) -> None:
        """Have `Hooks.signalled` run on the main thread, between two byte codes or in the middle of a system call.

        Raises:
            MeshError: User code has taken the signal for itself.
        """

    def interject(self, function: Callable[[Waited], None]) -> bool:
        """Run ``function`` on the main thread if it waits in a ``get()`` now; see `RootServices.interject`."""

    def flush_output(self) -> None:
        """Push out what user code printed so far."""


class ToolClient(Protocol):
    """A terminal (or a program) connected to the root's control socket. Used on the root's loop."""

    id: int
    #: pid of the process at the other end.
    pid: int

    def report(self, report: Report) -> None:
        """Send a report to the client; never blocks. A client that does not read is disconnected."""


class Waited(Protocol):
    """What the script's main thread waits for (a `Future`)."""

    def done(self) -> bool: ...

    def exception(self) -> BaseException | None: ...

    def add_done_callback(self, function: Callable[[Self], object], /) -> None: ...


class PendingCall(Protocol):
    """A call of the script that waits for answers. Any thread."""

    mesh_id: str
    #: What was called.
    actor: str
    endpoint: str

    def done(self) -> bool:
        """Whether the wait is over; reads what has arrived."""

    @property
    def failing(self) -> bool:
        """Whether it is known to fail."""

    def overdue(self, seconds: float) -> CallTimeout:
        """Return the error that names the ranks that have not answered."""

    def when_done(self, callback: Callable[[], None], *, background: bool) -> None:
        """Run ``callback`` once the answers were read, on the thread that reads them (at once if they were).

        ``background``: have them read by another thread, also while no thread waits for them.
        """


class RootServices(Protocol):
    """What a plug-in finds in the root. On the root's loop, unless said otherwise."""

    run_id: str
    #: The directory of files that a user reads afterwards.
    run_directory: Path
    #: called with every client that is gone.
    client_gone: list[Callable[[ToolClient], None]]
    #: called when a mesh is asked for, on any thread: operations that each of its ranks serves before
    #: any other request.
    at_birth: list[Callable[[], Sequence[Operation[Data]]]]
    #: called as ``fn(mesh id, base rank)`` when a rank serves.
    rank_born: list[Callable[[str, int], None]]
    #: called as ``fn(mesh id, base rank, fate)`` when a rank's process has ended; ``str(fate)`` says how in words.
    rank_gone: list[Callable[[str, int, Fate], None]]
    #: called as ``fn(mesh id, base rank, fate, owed)`` when a rank has ended without a stop; ``owed``: for each of its
    #: actors the oldest call that it has not answered: the script is told.
    rank_lost: list[Callable[[str, int, Fate, Sequence[PendingCall]], None]]
    #: called as ``fn(mesh id, base rank, state)`` when a rank ceases to answer (``"stopped"`` by a signal, or
    #: ``"busy"`` in C), and when it answers again (``""``).
    rank_silent: list[Callable[[str, int, str], None]]
    #: called as ``fn(mesh id, base rank, name)`` when an actor has begun on a rank.
    actor_begun: list[Callable[[str, int, str], None]]
    #: called as ``fn(mesh id, base rank, text)`` with an error that no caller waits for.
    unhandled: list[Callable[[str, int, str], None]]
    #: what plug-ins let each other read, by name (``"inspect.activity"``).
    tables: dict[str, Any]
    #: called when the program is about to end (or every mesh is stopped); do not block.
    closing: list[Callable[[], None]]

    def serve_terminals(self, operation: Served[Q, A], handler: Callable[[ToolClient, Q], Awaitable[A]]) -> None:
        """Serve an operation that terminals ask for."""

    def serve_ranks(self, operation: Served[Q, A], handler: Callable[[str, int, Q], A]) -> None:
        """Serve an operation that ranks ask for; ``handler`` gets mesh id, base rank, arguments."""

    def on_report(self, report: Taken[Q], handler: Callable[[str, int, Q], None]) -> None:
        """Take a report of ranks; ``handler`` gets mesh id, base rank and the report."""

    def ask_rank(self, mesh_id: str, rank: int, operation: Operation[A]) -> Awaitable[A]:
        """Run an operation on a rank. Raises SupervisionError at once if the rank is gone."""

    def tell_rank(self, mesh_id: str, rank: int, operation: Operation[Data]) -> None:
        """Like `ask_rank` without an answer. Any thread."""

    def meshes(self) -> Sequence[MeshFacts]:
        """Describe each mesh that runs. Any thread."""

    def mesh(self, mesh_id: str) -> MeshFacts | None:
        """Return the same of one mesh, which may have ended; None if it is not remembered. Any thread."""

    def silent(self) -> Mapping[tuple[str, int], Silent]:
        """Return the ranks that live and do not answer, by mesh id and base rank. Any thread."""

    def stopped_how(self, mesh_id: str) -> str:
        """Return how the script has ended a mesh: ``"stopped"``, ``"left"`` (its block has ended well), ``"abandoned"``
        (because of an error, or with the program), or "": it has not. What a rank has made ends with the rank's own
        mesh. Any thread."""

    def interrupted(self, mesh_id: str) -> int:
        """Return when what runs on a mesh is ended, because it is stopped: monotonic ns; 0: it goes on. Any thread."""

    def gather(
        self,
        targets: Mapping[str, Sequence[int]],
        operation: GroupedOperation[S, P],
        seconds: float,
        report: Callable[[Gathered[S, P]], None],
        *,
        stack_suffices: bool = False,
    ) -> int:
        """Put one operation to many ranks; their host agents group equal answers.

        A rank answers with a `meshrt.hooks.operations.Grouped`: ranks whose ``same`` are equal are one group.

        Args:
            targets: Base ranks, by mesh id.
            seconds: When no rank has answered for so long, those that are left are reported as silent. Ranks and
                agents that have no processor are given a few seconds more.
            report: Called with new answers: first after about 50 ms if not all are in, then at most every 100 ms, and
                at once when all are in. On the root's loop, never before this returns. The last call says ``done``.
            stack_suffices: A rank that C code keeps from answering is reported as silent, with its stack, without
                waiting for the end of ``seconds``. (One that was stopped by a signal always is.)
        Returns:
            The number for `leave_gather`.
        Raises:
            UsageError: A rank that the mesh never had.
            ProtocolError: The question is too long for a control message.
        """

    def leave_gather(self, number: int) -> None:
        """Want no more reports of a gather; a no-op when it is done."""

    def measure(
        self,
        targets: Mapping[str, Sequence[int]],
        seconds: float,
        references: str | None = None,
        *,
        work: bool = False,
        children: bool = False,
    ) -> Awaitable[Measured]:
        """Have host agents read how much memory their ranks have; no rank is asked.

        Args:
            targets: Base ranks, by mesh id.
            seconds: After so long it is done with the answers that have come.
            references: Also list objects in the stores of their hosts whose name begins so ("": all).
            work: Also report their use of processors, and leave out values that the kernel would have to add up.
            children: Also then report the pids of what they have started.
        """

    #: The numbers of the failures that were neither reported to a caller nor handled.
    unseen: deque[str]
    #: The numbers of failures that are none, because the script itself has ended them.
    excused: set[str]
    #: The errors that have come to the script and that nobody has read, by their numbers.
    unread: dict[str, UnreadError]

    def when_told(self, what: tuple[str, int, int] | str) -> int:
        """Return when an error was first given to a caller, monotonic ns; 0: not yet.

        Args:
            what: Of a process that has ended: mesh id, base rank and pid; else the number of a failure, of which
                callers in the script count.
        """

    def held(self) -> bool:
        """Whether a user holds a rank: deadlines are suspended."""

    def clock(self) -> float:
        """Return the time of the clock of deadlines, seconds: it is suspended while a user holds a rank."""

    def holds(self, mesh_id: str, rank: int) -> bool:
        """Whether a user holds this rank."""

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run ``function`` on the root's loop. Any thread."""

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run ``function`` on the root's loop after ``seconds``."""

    def log_file(self, mesh_id: str, rank: int) -> Path:
        """Return the file that keeps the output of a rank; it need not exist. Any thread."""

    def pending_calls(self) -> Mapping[int, PendingCall]:
        """Return the calls of the script that wait for answers, by their number. Any thread."""

    def script_waits(self) -> Sequence[Wait]:
        """Return what the threads and asyncio tasks of the script wait for. Any thread."""

    def announce(self, text: str) -> None:
        """Print a line of the runtime's own on the program's terminal (standard error). Any thread."""

    def interject(self, function: Callable[[Waited], None]) -> bool:
        """Run ``function`` on the script's main thread if it waits in a ``get()`` now.

        ``function`` gets the call that is waited for; answers are read meanwhile, and the wait goes on afterwards.
        Returns False if the main thread does not wait. Any thread.
        """
