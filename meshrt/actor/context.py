"""Where user code runs: ``context()``, ``current_rank()``, ``current_size()``."""

from __future__ import annotations

import contextvars
import threading
from dataclasses import dataclass

from meshrt.errors import UsageError
from meshrt.hooks.facts import EndpointCall
from meshrt.selection import Point, Shape
from meshrt.transport.link import Link

__all__ = [
    "ActorInstance",
    "CallContext",
    "Context",
    "context",
    "current_actor_name",
    "current_call",
    "current_rank",
    "current_size",
    "enter",
    "leave",
]


class ActorInstance:
    """The actor that runs here.

    Attributes:
        name: As given to ``spawn``.
        class_name: Qualified name of its class.
        mesh_id: The mesh it lives on.
        rank: Its point in the mesh on which it was spawned.
    """

    __slots__ = ("class_name", "mesh_id", "name", "rank")

    def __init__(self, name: str, class_name: str, mesh_id: str, rank: Point) -> None:
        self.name = name
        self.class_name = class_name
        self.mesh_id = mesh_id
        self.rank = rank

    def __repr__(self) -> str:
        return f"<{self.name} {self.class_name} {self.rank}>"


#: Held for a moment only; reentrant, as a signal handler may take it in that moment.
_call_lock = threading.RLock()


@dataclass(slots=True, eq=False, repr=False)
class CallContext:
    """One message as it runs; its properties are computed when they are first read."""

    instance: ActorInstance
    endpoint: str
    shape: Shape
    base_rank: int
    call_id: int = 0
    #: To the sender of the message; None: it has none.
    link: Link | None = None
    _point: Point | None = None
    _call: EndpointCall | None = None

    @property
    def point(self) -> Point:
        """The point of this rank in the view through which the message came."""
        if self._point is None:
            self._point = self.shape.extent.point(self.shape.ndslice.index(self.base_rank))
        return self._point

    @property
    def call(self) -> EndpointCall:
        """The message as hooks see it; the same object for the whole run."""
        if self._call is None:
            instance = self.instance
            view, caller = self.shape.to_wire(), 0 if self.link is None else self.link.caller
            call = EndpointCall(
                instance.mesh_id, instance.name, self.base_rank, self.endpoint, view, caller, self.call_id
            )
            with _call_lock:  # the control thread may ask as well
                made: EndpointCall | None = self._call
                self._call = made or call
        return self._call


_current: contextvars.ContextVar[CallContext | None] = contextvars.ContextVar("meshrt_call", default=None)


def enter(call: CallContext) -> contextvars.Token[CallContext | None]:
    """Make ``call`` the current one of this thread (and of tasks started from it)."""
    return _current.set(call)


def leave(token: contextvars.Token[CallContext | None]) -> None:
    """Undo `enter`."""
    _current.reset(token)


def current_call() -> CallContext | None:
    """Return the message that this thread or task serves, or None."""
    return _current.get()


class Context:
    """Where the calling code runs. In the script: no actor, and rank 0 of an extent without dimensions."""

    __slots__ = ("_call",)

    def __init__(self, call: CallContext | None) -> None:
        self._call = call

    @property
    def actor_instance(self) -> ActorInstance:
        """The actor that runs. Raises UsageError in the script."""
        if self._call is None:
            raise UsageError("no actor runs here: context().actor_instance is for code inside an endpoint")
        return self._call.instance

    @property
    def message_rank(self) -> Point:
        """The position in the (sliced, renamed) mesh through which the current message came."""
        return self._call.point if self._call is not None else _SCRIPT


_SCRIPT = Shape.unity().extent.point(0)


def context() -> Context:
    """Return the context of the calling thread or task."""
    return Context(_current.get())


def current_rank() -> Point:
    """Return the position of this rank in the mesh through which the message came: coordinates, and ``.rank``.

    In the script: the single point of an extent without dimensions.
    """
    return Context(_current.get()).message_rank


def current_size() -> dict[str, int]:
    """Return the sizes of the mesh through which the message came, by dimension."""
    return dict(current_rank().extent)


def current_actor_name() -> str:
    """Return the name of the actor that runs here. Raises UsageError in the script."""
    return context().actor_instance.name
