"""What a plug-in may see of the runtime, and how it is reached without being imported.

The runtime never imports a plug-in. It knows plug-ins by dotted name (`PLUGINS`), loads one on first use, and calls
whatever the plug-in put into the tables below. Three services make a debugger possible from outside:

* a **control operation**: a named request that the control thread of a rank (or the root) serves,
* a **hold**: deadlines stand still while a rank is stopped,
* ``endpoint_error``: called before the exception unwinds, with the live traceback.

A fourth one makes it cheap on many ranks: **gather** puts one operation to any number of them. The root sends one
message to each host agent; the agents ask their ranks, group equal answers, ask ranks whose control thread is silent by
a signal, and send up what they have in few messages.

Hooks of a rank: ``proc_ready`` (once, when it serves), ``endpoint_enter`` / ``endpoint_exit`` / ``endpoint_error``,
``raised`` (whatever user code let out, in threads and tasks too), ``variables`` (who holds memory),
``pulse`` (on the control thread, at each ping of the host agent, about once a second), ``proc_closing``. In any
process: ``message_sent`` (a call is about to go out), ``hold_changed`` (deadlines begin or cease to stand still). The
plug-ins in `PULSE_PLUGINS` live by the pulse: they are loaded at the first ping of a rank instead of on first use.

Hooks are optional, typed and synchronous; an empty hook costs one test of an empty list. A hook that fails is reported
and switched off, and the program goes on; with ``strict`` (the tests) it raises.

Names are ``"<plug-in>.<operation>"``: an operation or event whose plug-in is not loaded yet loads it.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from meshrt.errors import CallTimeout

__all__ = [
    "ASKED_FOR",
    "DEBUG_VALUES",
    "PLUGINS",
    "POST_MORTEM_VALUES",
    "PULSE_PLUGINS",
    "UNRAISABLE",
    "ActorState",
    "Answer",
    "Body",
    "EndpointCall",
    "Gathered",
    "Group",
    "Hooks",
    "Measured",
    "PendingCall",
    "Raised",
    "RankServices",
    "RootServices",
    "ToolClient",
    "Variable",
    "Wait",
    "Waited",
    "Workload",
    "hooks",
    "import_plugins",
    "plugin_of",
]

Body = dict[str, Any]
"""The arguments or the result of an operation: what msgpack can carry (str keys; no tuples come back)."""

Answer = Callable[[Body | None, str], None]
"""Takes the result of an operation, ``answer(body, "")``, or a refusal, ``answer(None, why)``."""

#: Plug-in name -> (module loaded in a rank, module loaded in the root). Each module has ``load(services)``.
PLUGINS: dict[str, tuple[str, str]] = {
    "debug": ("meshrt.debug.rank.debugger", "meshrt.debug.broker.broker"),
    "inspect": ("meshrt.inspect.rank", "meshrt.inspect.root"),
    "memory": ("meshrt.memory.rank", "meshrt.memory.root"),
    "failure": ("meshrt.failure.rank", "meshrt.failure.root"),
    "timeline": ("meshrt.timeline.rank", "meshrt.timeline.root"),
    "dap": ("meshrt.debug.dap.rank.ide", "meshrt.debug.dap.root"),
    "top": ("meshrt.top.rank", "meshrt.top.root"),
}

#: Plug-ins that the root loads before its first mesh, if a variable of the environment asks for that.
ASKED_FOR: Mapping[str, str] = {"MESHRT_MEMORY_LIMIT": "memory", "MESHRT_DAP": "dap"}

#: Plug-ins that a rank loads at its first ping. Host agents import them, so that ranks are forked with them.
PULSE_PLUGINS: tuple[str, ...] = ("inspect",)


@dataclass(slots=True)
class EndpointCall:
    """One run of an endpoint (or of ``__init__``) on this rank, as hooks see it."""

    mesh_id: str
    actor: str
    rank: int
    endpoint: str
    #: The view through which the call came: ``[labels, offset, sizes, strides]`` (`Shape.from_wire`).
    view: list[Any]
    #: The process that has called (0: not known), and the number that the call has there; see `Hooks.message_sent`.
    caller: int = 0
    call_id: int = 0


#: Where an exception was raised that Python could only print: in ``__del__``, or in a callback of C code.
UNRAISABLE = "code that cannot raise"


@dataclass(slots=True)
class Raised:
    """An exception that user code has let out of an endpoint, a thread or a task.

    Attributes:
        failure: Its number in the program; the error that a caller gets has it too.
        call: The endpoint; for a task, the actor that it belongs to; None for a thread.
        when: Monotonic ns.
        what: Where it was let out, if that was no endpoint: ``"a task"``, ``"thread 'loader'"``.
        waited_for: Whether a caller is told.
        because: The error that the code was asked about, if it was.
    """

    failure: str
    error: BaseException
    call: EndpointCall | None
    when: int
    what: str = ""
    waited_for: bool = False
    because: BaseException | None = None


#: What the environment variable ``MESHRT_POST_MORTEM`` may say, and what ranks do then when an endpoint raises.
POST_MORTEM_VALUES: Mapping[str, str] = {
    "": "default",
    "0": "off",
    "off": "off",
    "1": "on",
    "on": "on",
    "dump": "dump",
}
#: What the environment variable ``MESHRT_DEBUG`` may say, and whether a program has its debugger then.
DEBUG_VALUES: Mapping[str, bool] = {"": True, "0": False, "off": False, "1": True, "on": True}


@dataclass(slots=True)
class ActorState:
    """An actor of this rank, as it is now."""

    name: str
    #: Ident of the thread that serves it, once one does.
    thread: int | None
    #: The message that it serves, or None: it waits for messages.
    call: EndpointCall | None
    #: The event loop of an actor with ``async def`` endpoints, once it runs.
    loop: Any
    #: The asyncio task that serves on that loop; endpoints are awaited in it, if they are not concurrent.
    task: Any = None
    #: The object of the user's class; None before its ``__init__`` begins, and after its end.
    instance: Any = None
    #: The calls of concurrent endpoints that run beside ``call``, by their asyncio task, the oldest first.
    concurrent: Mapping[Any, EndpointCall] = field(default_factory=dict)

    @property
    def serves(self) -> EndpointCall | None:
        """What stands for the actor: the message that it serves, or else the oldest concurrent call."""
        return self.call or next(iter(self.concurrent.values()), None)

    def runs(self, call: EndpointCall | None) -> bool:
        """Whether it is at work on ``call``; None: on nothing that it was sent."""
        if call is None:
            return self.serves is None
        return call is self.call or any(call is other for other in self.concurrent.values())

    def task_of(self, call: EndpointCall) -> Any:
        """Return the asyncio task in which ``call`` is awaited; None if there is none."""
        return next((task for task, other in self.concurrent.items() if other is call), self.task)


@dataclass(frozen=True, slots=True)
class Variable:
    """What user code holds by a name.

    Attributes:
        actor: The actor that it belongs to.
        kind: ``"attribute"`` of the actor's object, ``"class"`` (an attribute of its class), ``"global"`` (of the
            class' module), or ``"local"`` of a stack frame that stands in the debugger.
        where: How a person writes it: ``"self.x"``, ``"Trainer.cache"``, ``"train.CACHE"``, ``"step() batch"``.
    """

    actor: str
    kind: str
    where: str
    value: Any


@dataclass(frozen=True, slots=True)
class Wait:
    """What a thread or an asyncio task waits for, in a ``get()`` or an ``await``: the answers of ranks to a call.

    Attributes:
        mesh_id, actor, endpoint: What was called.
        ranks: Base ranks that have not answered, in the order of the call: the first ones.
        count: How many have not answered.
        any: The answer of one of them is enough.
        seconds: So long it had been waited for when it was looked at. Two looks at one wait are equal.
        left: Seconds until its time-out, likewise, on the clock of deadlines; None: it has none, or none that is known.
    """

    mesh_id: str
    actor: str
    endpoint: str
    ranks: tuple[int, ...]
    count: int
    any: bool = False
    seconds: float = field(default=0.0, compare=False)
    left: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Workload:
    """How much an actor of this rank has to do.

    Attributes:
        calls: Messages that it has begun to serve since it lives.
        waiting: Messages that have come and wait: those that were read, and, while an endpoint keeps its thread, those
            in the sockets. What callers have not been able to send is not among them.
        more: There may be more than these.
    """

    actor: str
    calls: int
    waiting: int
    more: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks of one mesh with the same answer.

    Attributes:
        ranks: Base ranks, ascending.
        kind: ``"answered"``; ``"refused"`` (``same`` says why); ``"gone"`` (``same`` says how it ended); ``"silent"``
            (``same``: ``{"state": "stopped" | "busy" | "", "stack": what faulthandler wrote, or ""}``).
        same: What all of them have answered.
        per: What differs, by rank; only for answers that have it.
    """

    mesh_id: str
    ranks: tuple[int, ...]
    kind: str
    same: Any
    per: Mapping[int, Any]


@dataclass(frozen=True, slots=True)
class Gathered:
    """What is new in a gather. Every rank is reported once."""

    groups: list[Group]
    done: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """How much memory processes have, in bytes, as their host agents read it in ``/proc``.

    Attributes:
        ranks: By mesh and base rank: ``{"rss", "peak", "anonymous", "file", "shmem", "swap", "pss", "shared",
            "private"}``. A rank that is gone is missing; the last three may not have come in time. Where work was
            asked for, there is ``{"cpu", "at", "kernel", "threads"}`` (`meshrt.host.memory.work`) instead of these.
        agents: The same of host agents, by host, with ``"pid"`` and ``"node"``.
        silent: Hosts whose agent has not answered in time.
        references: What the stores of the hosts have, if that was asked for: see `meshrt.store.table`, with ``"host"``.
    """

    ranks: dict[tuple[str, int], dict[str, Any]]
    agents: dict[str, dict[str, Any]]
    silent: list[str]
    references: list[dict[str, Any]]


class RankServices(Protocol):
    """What a plug-in finds in a rank. Any thread may call these, unless said otherwise."""

    mesh_id: str
    mesh_name: str
    rank: int
    pid: int
    #: The host, as the program names it.
    host_name: str
    #: Where files for a person to read afterwards go.
    run_directory: str
    #: name -> handler, run on the control thread; must not block and must not run user code.
    operations: dict[str, Callable[[Body], Body | None]]
    #: name -> handler, begun on the control thread; it calls ``answer`` later, once, from any thread.
    deferred_operations: dict[str, Callable[[Body, Answer], None]]

    def actors(self) -> Sequence[ActorState]:
        """Return the actors that live here, the first one (that of the main thread) first."""

    def workload(self) -> Sequence[Workload]:
        """Return how much the actors that live here have to do."""

    def wait_of(self, waiter: object) -> Wait | None:
        """Return what a thread (its ident) or an asyncio task waits for; None: for no call."""

    def waits_since(self, thread: int) -> float | None:
        """Return since when (monotonic) a thread is in a ``get()``; None: it is in none."""

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run ``function`` on the control thread after ``seconds``; it must not block and must not run user code."""

    def current_call(self) -> EndpointCall | None:
        """Return the endpoint call that runs on the calling thread, or None."""

    def current_calls(self) -> Sequence[EndpointCall]:
        """Return the endpoint calls that run on this rank now, the latest last (for a thread that user code made)."""

    def notify(self, event: str, body: Body) -> None:
        """Send an event to the root's side of the plug-in; returns at once, keeps the order."""

    def request(self, operation: str, body: Body, timeout: float) -> Body:
        """Ask the root and wait (not on the control thread). Raises TimeoutError, or MeshError with a refusal."""

    def set_held(self, held: bool) -> None:
        """Say that a thread of this rank was stopped (or let go) by a person: deadlines stand still. Counts."""

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

    def push(self, event: str, body: Body) -> None:
        """Send an event to the client; never blocks. A client that does not read is disconnected."""


class Waited(Protocol):
    """What the script's main thread waits for (a `Future`)."""

    def done(self) -> bool: ...

    def add_done_callback(self, function: Callable[[Any], object], /) -> None: ...


class PendingCall(Protocol):
    """A call of the script that waits for answers. Any thread."""

    mesh_id: str
    #: What was called.
    actor: str
    endpoint: str

    def done(self) -> bool:
        """Whether it waits no more; looks at what has arrived."""

    def overdue(self, seconds: float) -> CallTimeout:
        """Return the error that says who has not answered."""

    def when_done(self, callback: Callable[[], None], *, background: bool) -> None:
        """Run ``callback`` once the answers were read, on the thread that reads them (at once if they were).

        ``background`` asks for somebody to read them although nobody waits.
        """


class RootServices(Protocol):
    """What a plug-in finds in the root. On the root's loop, unless said otherwise."""

    run_id: str
    #: Where files for a person to read afterwards go.
    run_directory: Path
    #: name -> coroutine function (client, body) -> body, for requests of terminals.
    tool_operations: dict[str, Callable[[ToolClient, Body], Awaitable[Body | None]]]
    #: name -> function (mesh id, base rank, body), for events sent with `RankServices.notify`.
    rank_events: dict[str, Callable[[str, int, Body], None]]
    #: name -> function (mesh id, base rank, body) -> body, for `RankServices.request`.
    rank_operations: dict[str, Callable[[str, int, Body], Body | None]]
    #: called with every client that is gone.
    client_gone: list[Callable[[ToolClient], None]]
    #: called when a mesh is asked for, on any thread: control operations (name, body) that each of its ranks serves
    #: before it serves anybody else.
    at_birth: list[Callable[[], Sequence[tuple[str, Body]]]]
    #: called as ``fn(mesh id, base rank)`` when a rank serves.
    rank_born: list[Callable[[str, int], None]]
    #: called as ``fn(mesh id, base rank, description)`` when a rank's process has ended ("was killed by SIGKILL").
    rank_gone: list[Callable[[str, int, str], None]]
    #: called as ``fn(mesh id, base rank, fate)`` when a rank has ended that nobody stopped; ``fate`` says how, as plain
    #: data (`meshrt.transport.fate.Fate`, and ``waited_for``: whether callers are told).
    rank_lost: list[Callable[[str, int, Body], None]]
    #: called as ``fn(mesh id, base rank, state)`` when a rank ceases to answer (``"stopped"`` by a signal, or
    #: ``"busy"`` in C), and when it answers again (``""``).
    rank_silent: list[Callable[[str, int, str], None]]
    #: called as ``fn(mesh id, base rank, text)`` with an error that nobody waits for.
    unhandled: list[Callable[[str, int, str], None]]
    #: what plug-ins let each other read, by name (``"inspect.activity"``).
    tables: dict[str, Any]
    #: called when the program is about to end (or every mesh is stopped); do not block.
    closing: list[Callable[[], None]]

    def meshes(self) -> Sequence[Mapping[str, Any]]:
        """Return what runs: ``{"mesh_id", "name", "shape" (wire form), "host": {rank: name}, "pid": {rank: pid},
        "alive": [ranks], "started": epoch seconds, "gone": {rank: [how, epoch seconds]}, "silent": {rank:
        [state, epoch seconds]}, "incarnations": {rank: how often it was started again}, "stopping": since when,
        "over": when nothing of it was left (both monotonic ns, 0: not yet), "actors": [{"name"}]}`` of each mesh."""

    def mesh(self, mesh_id: str) -> Mapping[str, Any] | None:
        """Return the same of one mesh, which may have ended; None if it is not remembered. Any thread."""

    def stopped_how(self, mesh_id: str) -> str:
        """Return how the script has ended a mesh: ``"stopped"``, ``"left"`` (its block has ended well), ``"abandoned"``
        (because of an error, or with the program), or "": it has not. What a rank has made ends with the rank's own
        mesh. Any thread."""

    def interrupted(self, mesh_id: str) -> int:
        """Return when what runs on a mesh is ended, because it is stopped: monotonic ns; 0: it goes on. Any thread."""

    def request_rank(self, mesh_id: str, rank: int, operation: str, body: Body) -> Awaitable[Body]:
        """Run a control operation on a rank. Raises SupervisionError at once if the rank is gone."""

    def send_rank(self, mesh_id: str, rank: int, operation: str, body: Body) -> None:
        """Like `request_rank` without an answer."""

    def gather(
        self,
        targets: Mapping[str, Sequence[int]],
        operation: str,
        body: Body,
        seconds: float,
        report: Callable[[Gathered], None],
        *,
        stack_suffices: bool = False,
    ) -> int:
        """Put one operation to many ranks; their host agents group equal answers.

        A rank answers ``{"same": anything, "per": anything}``; ranks whose ``same`` are equal are one group, ``per`` is
        kept by rank and may be missing.

        Args:
            targets: Base ranks, by mesh id.
            seconds: After so long the ranks that have not answered are reported as silent.
            report: Called with what is new: first after about 50 ms if not all are in, then at most every 100 ms, and
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
    ) -> Awaitable[Measured]:
        """Have host agents read how much memory their ranks have; no rank is asked.

        Args:
            targets: Base ranks, by mesh id.
            seconds: After so long it is done with what has come.
            references: Also tell what the stores of their hosts have: what has a name that begins so ("": all).
            work: Also tell what they use of the processors, and leave out what the kernel would have to add up.
        """

    #: The numbers of the failures that nobody was told of, and nobody has handled.
    unseen: deque[str]
    #: The numbers of failures that are none, because the script itself has ended them.
    excused: set[str]
    #: When somebody was first given an error that says that a process is gone, monotonic ns: (mesh id, base rank, pid).
    told: Mapping[tuple[str, int, int], int]

    def held(self) -> bool:
        """Whether a person holds a rank: deadlines stand still."""

    def clock(self) -> float:
        """Return the time of the clock of deadlines, seconds: it stands still while a person holds a rank."""

    def holds(self, mesh_id: str, rank: int) -> bool:
        """Whether a person holds this rank."""

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run ``function`` on the root's loop. Any thread."""

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run ``function`` on the root's loop after ``seconds``."""

    def log_file(self, mesh_id: str, rank: int) -> Path:
        """Return the file that keeps what a rank prints; it need not exist. Any thread."""

    def pending_calls(self) -> Mapping[int, PendingCall]:
        """Return the calls of the script that wait for answers, by their number. Any thread."""

    def script_waits(self) -> Sequence[Wait]:
        """Return what the threads and asyncio tasks of the script wait for. Any thread."""

    def announce(self, text: str) -> None:
        """Print a line of the runtime's own on the program's terminal (standard error). Any thread."""

    def interject(self, function: Callable[[Waited], None]) -> bool:
        """Run ``function`` on the script's main thread if it waits in a ``get()`` now.

        ``function`` gets what is waited for; answers go on being read meanwhile, and the wait goes on afterwards.
        Returns False if the main thread does not wait. Any thread.
        """


class Hooks:
    """The table of hooks of this process. Plug-ins append to the lists; the runtime calls `run`."""

    def __init__(self) -> None:
        #: Rank side, once, on the main thread, before it serves its first actor.
        self.proc_ready: list[Callable[[], None]] = []
        #: Rank side, on the actor's thread.
        self.endpoint_enter: list[Callable[[EndpointCall], None]] = []
        self.endpoint_exit: list[Callable[[EndpointCall], None]] = []
        self.endpoint_error: list[Callable[[EndpointCall, BaseException], None]] = []
        #: Rank side, on the thread that raised, once the caller has been answered.
        self.raised: list[Callable[[Raised], None]] = []
        #: Rank side, on the control thread.
        self.proc_closing: list[Callable[[], None]] = []
        #: Rank side, on the control thread, about once a second; must not block.
        self.pulse: list[Callable[[], None]] = []
        #: Rank side, on the main thread, in a signal handler: `RankServices.signal_main` was called. Gets the stack
        #: frame that was interrupted. What it raises is raised there.
        self.signalled: list[Callable[[FrameType | None], None]] = []
        #: Any process, on the thread that calls: a call is about to be sent; gets its number in this process.
        self.message_sent: list[Callable[[int], None]] = []
        #: Rank side, on a thread of the runtime: who holds memory of which the memory view tells. What they return is
        #: read at once, and not kept.
        self.variables: list[Callable[[], Iterable[Variable]]] = []
        #: Root side, on a thread of the script: a call was sent.
        self.call_sent: list[Callable[[PendingCall], None]] = []
        #: Any process, any thread: deadlines stand still from now on (True), or go on (False).
        self.hold_changed: list[Callable[[bool], None]] = []
        self.strict = bool(os.environ.get("MESHRT_STRICT_HOOKS"))
        self._loaded: dict[tuple[str, bool], object] = {}
        #: Held while a plug-in is loaded.
        self.loading = threading.RLock()

    def run(self, functions: list[Any], *args: Any) -> None:
        """Call each function with ``args``; one that fails is reported and taken out of the list."""
        for function in tuple(functions):
            try:
                function(*args)
            except Exception:
                if self.strict:
                    raise
                if function in functions:  # two threads may have failed in it at once
                    functions.remove(function)
                import logging  # start-up: rare

                try:
                    logging.getLogger("meshrt").exception("hook %r failed and was switched off", function)
                except Exception:  # the error, or the hook, cannot be shown
                    logging.getLogger("meshrt").error("a hook failed and was switched off")

    def clear(self) -> None:
        """Forget every hook: this process is a forked child and no part of the program any more."""
        for functions in (
            self.proc_ready,
            self.endpoint_enter,
            self.endpoint_exit,
            self.endpoint_error,
            self.raised,
            self.message_sent,
            self.call_sent,
            self.proc_closing,
            self.pulse,
            self.signalled,
            self.variables,
            self.hold_changed,
        ):
            functions.clear()
        self._loaded.clear()

    def load(self, plugin: str, services: RankServices | RootServices, *, in_root: bool) -> bool:
        """Load a plug-in by its name, once per program. Returns False when there is no such plug-in."""
        with self.loading:  # two actors of a rank may stop at once
            if self._loaded.get((plugin, in_root)) is services:
                return True
            if plugin not in PLUGINS:
                return False
            importlib.import_module(PLUGINS[plugin][in_root]).load(services)
            self._loaded[plugin, in_root] = services
            return True


def import_plugins(plugins: Iterable[str]) -> None:
    """Import what these plug-ins load in a rank; for a process that ranks are forked from."""
    for plugin in plugins:
        importlib.import_module(PLUGINS[plugin][0])


def plugin_of(name: str) -> str:
    """Return the plug-in that serves an operation or event: ``"debug.list"`` -> ``"debug"``."""
    return name.partition(".")[0]


hooks = Hooks()
"""The hooks of this process."""

# A fork in the middle of loading would leave the child with locks that nobody lets go of.
os.register_at_fork(
    before=hooks.loading.acquire, after_in_parent=hooks.loading.release, after_in_child=hooks.loading.release
)
