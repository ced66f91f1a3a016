"""Where user code runs: ``context()``, ``current_rank()``, ``current_size()``."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import NoReturn

import msgspec

from meshrt.actor.ending import ActorEnds
from meshrt.errors import UsageError
from meshrt.hooks.facts import EndpointCall
from meshrt.selection import Point, Shape
from meshrt.transport.link import Link
from meshrt.wire.codec import text_of

__all__ = [
    "SCRIPT",
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
    """The actor that runs here; in the script, it represents the script. Its text names it and who made it.

    Attributes:
        name: The name given to ``spawn``; ``"root"`` for the script.
        class_name: Qualified name of its class.
        module: Where that is defined; "" while that is not known.
        mesh_id: The mesh it lives on.
        rank: Its point in the mesh on which it was spawned.
        creator: The actor that has spawned it, or the script; None for the script.
        has_made: Whether it has started processes, or spawned actors: they end with it.
    """

    __slots__ = ("_end", "class_name", "creator", "has_made", "mesh_id", "module", "name", "rank")

    def __init__(
        self, name: str, class_name: str, mesh_id: str, rank: Point, end: Callable[[ActorEnds], None] | None = None
    ) -> None:
        self.name: str = name
        self.class_name: str = class_name
        self.module: str = ""
        self.mesh_id: str = mesh_id
        self.rank: Point = rank
        self.creator: ActorInstance | None = SCRIPT if mesh_id else None
        self.has_made: bool = False
        self._end = end

    def abort(self, reason: object = "") -> NoReturn:
        """End the message that runs, and then this actor, as failed. The process continues.

        Calls that wait here, and later ones, fail with `ActorAborted`, and so does this one; the owner is told. What
        the actor has made ends with it, and ``__cleanup__`` is given the error.

        Args:
            reason: Its text is in all of these errors; an exception will do. None is no reason.
        Raises:
            UsageError: It is a script, or this object was sent to another process.
        """
        self._ends(ActorEnds(_text_of(reason), failed=True))

    def stop(self, reason: object = "") -> NoReturn:
        """End the message that runs, and, after messages sent before, this actor, as `ActorMesh.stop` does.

        That call, and later ones, fail with `MeshStopped`. Otherwise as `abort`, but no owner is told.
        """
        self._ends(ActorEnds(_text_of(reason), failed=False))

    def _ends(self, end: ActorEnds) -> NoReturn:
        if self._end is None:
            raise UsageError(f"{self.name} cannot end itself: it is a script, or it does not run in this process")
        self._end(end)
        raise end

    def __str__(self) -> str:
        if self.creator is None:
            return f"<{self.name}>"
        cls = f"{self.module}.{self.class_name}" if self.module else self.class_name
        return f"{self.creator}.<{cls} {self.name}{self.rank}>"

    def __reduce__(self) -> tuple[object, ...]:
        return _sent_instance, (self.name, self.class_name, self.mesh_id, self.rank, self.module, self.creator)

    def __repr__(self) -> str:
        return f"<{self.name} {self.class_name} {self.rank}>"


def _text_of(reason: object) -> str:
    if isinstance(reason, BaseException):
        return ": ".join(filter(None, (type(reason).__name__, text_of(reason))))
    return "" if reason is None else text_of(reason)


def _sent_instance(
    name: str, class_name: str, mesh_id: str, rank: Point, module: str, creator: ActorInstance | None
) -> ActorInstance:
    instance = ActorInstance(name, class_name, mesh_id, rank)
    instance.module, instance.creator = module, creator
    return instance


#: The script.
SCRIPT: ActorInstance = ActorInstance("root", "", "", Shape.unity().extent.point(0))
#: Held for a moment only; reentrant, as a signal handler may take it in that moment.
_call_lock = threading.RLock()


class CallContext(msgspec.Struct, eq=False):
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

    def __repr__(self) -> str:
        return object.__repr__(self)  # what it has is the user's, and may do anything when it is shown

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
        """The actor that runs; an instance for the script if no actor runs."""
        return SCRIPT if self._call is None else self._call.instance

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
    """Return the full name of the actor that runs here: who made it, its class, its name and its point.

    Unique among the actors that live: ``<root>.<train.Trainer trainer{'dp': 0/2}>``; ``<root>`` in the script. The name
    that was given to ``spawn`` is ``context().actor_instance.name``.
    """
    return str(context().actor_instance)
