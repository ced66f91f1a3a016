"""Plain data for plug-ins: calls, actors, waits, exceptions, and answers of many ranks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

if TYPE_CHECKING:
    import asyncio

import msgspec

__all__ = [
    "IN_SCRIPT",
    "UNRAISABLE",
    "ActorState",
    "Answered",
    "Body",
    "EndpointCall",
    "Gathered",
    "Raised",
    "Unanswered",
    "UnreadError",
    "Variable",
    "Wait",
    "Workload",
]

S = TypeVar("S")
P = TypeVar("P")

Body = dict[str, Any]
"""The arguments or the result of an operation: what msgpack can carry (str keys; no tuples come back)."""


class EndpointCall(msgspec.Struct):
    """One run of an endpoint (or of ``__init__``) on this rank, as hooks see it."""

    mesh_id: str
    actor: str
    rank: int
    endpoint: str
    #: The view through which the call came: ``[labels, offset, sizes, strides]`` (`Shape.from_wire`).
    view: list[object]
    #: The process that has called (0: not known), and the number that the call has there; see `Hooks.message_sent`.
    caller: int = 0
    call_id: int = 0


#: Where an exception was raised that Python could only print: in ``__del__``, or in a callback of C code.
UNRAISABLE = "code that cannot raise"
#: `Raised.what` of the script of a rank that a launcher has started.
IN_SCRIPT = "the script"


class Raised(msgspec.Struct):
    """An uncaught exception of user code in an endpoint, a thread or a task.

    Attributes:
        failure: Its number in the program; the error that a caller gets has it too.
        call: The endpoint; for a task, the actor that it belongs to; None for a thread.
        when: Monotonic ns.
        what: Where it was raised, if that was no endpoint: ``"a task"``, ``"task 'loader'"``, ``"thread 'loader'"``.
        waited_for: Whether a caller is told.
        because: The error that the code was called for, if there is one.
    """

    failure: str
    error: BaseException
    call: EndpointCall | None
    when: int
    what: str = ""
    waited_for: bool = False
    because: BaseException | None = None


class ActorState(msgspec.Struct):
    """An actor of this rank, as it is now."""

    name: str
    #: Ident of the thread that serves it, once one does.
    thread: int | None
    #: The message that it serves, or None: it waits for messages.
    call: EndpointCall | None
    #: The event loop of an actor with ``async def`` endpoints, once it runs.
    loop: asyncio.AbstractEventLoop | None
    #: The asyncio task that serves on that loop; endpoints are awaited in it, if they are not concurrent.
    task: asyncio.Task[None] | None = None
    #: The object of the user's class; None before its ``__init__`` begins, and after its end.
    instance: Any = None
    #: The calls of concurrent endpoints that run beside ``call``, by their asyncio task, the oldest first.
    concurrent: Mapping[asyncio.Task[None], EndpointCall] = {}
    #: The endpoints that have calls whose answers are owed: their response ports have sent none yet.
    owes: Sequence[str] = ()
    #: The user's class, once it is loaded.
    cls: type | None = None
    #: How many calls it has begun so far.
    begun: int = 0

    @property
    def script(self) -> Mapping[str, object] | None:
        """The names of the script that the actor runs, as actors of the runtime's own do (`meshrt.spmd`); or None."""
        own = type(self.instance).__module__.startswith("meshrt.")
        return vars(sys.modules["__main__"]) if own else None

    @property
    def exits(self) -> str:
        """What the exit of that script waits for or runs, in words; ``""``: it has not begun, or there is no script."""
        running = [] if self.script is None else self.instance.exit.running()
        return running[0].rstrip(",") if running else ""

    @property
    def serves(self) -> EndpointCall | None:
        """The call that is shown for the actor: the message that it serves, or else the oldest concurrent call."""
        return self.call or next(iter(self.concurrent.values()), None)

    def runs(self, call: EndpointCall | None) -> bool:
        """Whether it is at work on ``call``; None: on nothing that it was sent."""
        if call is None:
            return self.serves is None
        return call is self.call or any(call is other for other in self.concurrent.values())

    def task_of(self, call: EndpointCall) -> asyncio.Task[None] | None:
        """Return the asyncio task in which ``call`` is awaited; None if there is none."""
        return next((task for task, other in self.concurrent.items() if other is call), self.task)


class Variable(msgspec.Struct, frozen=True):
    """What user code holds by a name.

    Attributes:
        actor: The actor that it belongs to.
        kind: ``"attribute"`` of the actor's object, ``"class"`` (an attribute of its class), ``"global"`` (of the
            class' module), or ``"local"`` of a stack frame that is stopped in the debugger.
        where: How a user writes it: ``"self.x"``, ``"Trainer.cache"``, ``"train.CACHE"``, ``"step() batch"``.
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
        collective: No call is waited for: the ranks have not entered the collective that ``endpoint`` names.
        port: No call is waited for: the actor has not taken what was sent to its port; without ranks, no message has
            come to a port of who waits. The rank -1 is the script.
        seconds: How long it had lasted when it was read. Ignored when two readings are compared.
        left: Seconds until its time-out, likewise, on the clock of deadlines; None: it has none, or none that is known.
        line: Where in the script it is, ``"/home/me/train.py:42"``, likewise; "": not known, or not in the script.
    """

    mesh_id: str
    actor: str
    endpoint: str
    ranks: tuple[int, ...]
    count: int
    any: bool = False
    collective: bool = False
    port: bool = False
    seconds: float = field(default=0.0, compare=False)
    left: float | None = field(default=None, compare=False)
    line: str = field(default="", compare=False)


class UnreadError(msgspec.Struct, frozen=True):
    """An answer that has come to the script, and is an error that nobody has read.

    Attributes:
        mesh_id, actor, endpoint: What was called.
        rank: The base rank that has answered.
        error: Type and message, in a line.
    """

    mesh_id: str
    actor: str
    endpoint: str
    rank: int
    error: str


class Workload(msgspec.Struct, frozen=True):
    """How much an actor of this rank has to do.

    Attributes:
        calls: Messages that it has begun to serve since it lives.
        waiting: Messages that have come and wait: those that were read, and, while an endpoint keeps its thread, those
            in the sockets. What callers have not been able to send is not among them.
        more: There may be more than these.
        unseen: Something has come that its thread has not looked at.
    """

    actor: str
    calls: int
    waiting: int
    more: bool
    unseen: bool = False


class Answered(msgspec.Struct, Generic[S, P], frozen=True):
    """Ranks of one mesh with the same answer.

    Attributes:
        ranks: Base ranks, ascending.
        same: What all of them have answered.
        per: What differs, by rank; only for answers that have it.
    """

    mesh_id: str
    ranks: tuple[int, ...]
    same: S
    per: Mapping[int, P]


class Unanswered(msgspec.Struct, frozen=True):
    """Ranks of one mesh that have not answered, for the same reason.

    Attributes:
        ranks: Base ranks, ascending.
        kind: ``"refused"``, ``"gone"`` or ``"silent"``.
        why: The refusal, or how the rank has ended; "" if it is silent.
        state: Of a silent rank: ``"stopped"`` by a signal, ``"busy"`` in C code, ``"late"``: it has no processor,
            ``"host"``: the agent of its host does not answer, or "": not known.
        stack: Of a silent rank: what faulthandler wrote, or "".
    """

    mesh_id: str
    ranks: tuple[int, ...]
    kind: Literal["refused", "gone", "silent"]
    why: str
    state: str = ""
    stack: str = ""


class Gathered(msgspec.Struct, Generic[S, P], frozen=True):
    """The new answers of a gather. Every rank is reported once."""

    groups: Sequence[Answered[S, P] | Unanswered]
    done: bool
