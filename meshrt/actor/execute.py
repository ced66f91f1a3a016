"""Running one message on an actor, and making its answer.

An actor: ``new -> ready`` by INIT, or ``new -> failed`` when its ``__init__`` raises; ``ready -> stopped`` by STOP;
INIT on a failed or stopped one begins anew. CALLs before INIT wait in the mailbox.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import Any, NoReturn

import msgpack

from meshrt.actor.context import ActorInstance, CallContext, enter, leave
from meshrt.actor.endpoint import endpoints_of
from meshrt.actor.errors import describe_exception
from meshrt.errors import ProtocolError, RemoteException
from meshrt.hooks import hooks
from meshrt.selection import Shape
from meshrt.wire import codec
from meshrt.wire.frames import Frame, pack_header, split_frames
from meshrt.wire.messages import ERROR, NO_REPLY, RESULT, error_to_wire

__all__ = ["Execution", "Executor", "StopInterrupt"]

#: Largest pickled exception that is attached to an error, bytes.
_EXCEPTION_MAX = 1 << 20

Parts = list[Any]


class Execution:
    """A decoded message, ready to run."""

    __slots__ = ("args", "call_id", "context", "kwargs", "method", "no_reply")

    def __init__(
        self, call_id: int, method: Any, args: Any, kwargs: Any, context: CallContext, no_reply: bool = False
    ) -> None:
        self.call_id = call_id
        self.method = method
        self.args = args
        self.kwargs = kwargs
        self.context = context
        self.no_reply = no_reply


class StopInterrupt(SystemExit):
    """Raised in user code that the end of the mesh does not wait for."""


def _end_forked_child(error: BaseException | None) -> NoReturn:
    """End a child that user code has forked and that came back, the way an interpreter ends."""
    code: object = 0
    if isinstance(error, SystemExit):
        code = 0 if error.code is None else error.code
    elif error is not None:
        code = 1
        traceback.print_exception(error)
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code & 0xFF)


class Executor:
    """One actor of this rank.

    Args:
        mesh_id, rank, name: The identity of the actor.
        setup: Runs the mesh's set-up function, which it is given, once per process.
        unhandled: Told of errors that no caller waits for: (endpoint, view, exception as data).
    """

    def __init__(self, mesh_id: str, rank: int, name: str, setup: Any, unhandled: Any) -> None:
        self.mesh_id = mesh_id
        self.rank = rank
        self.name = name
        self.state = "new"
        self.is_async = False
        self.actor: Any = None
        self.instance: ActorInstance | None = None
        self._forked = False
        self._setup = setup
        self._unhandled = unhandled
        self._failure: RemoteException | None = None
        self._methods: dict[str, Any] = {}
        self._async_names: frozenset[str] = frozenset()
        self._shapes: dict[bytes, Shape] = {}

    # -- decoding

    def shape_of(self, view: bytes) -> Shape:
        """Return the shape of a view; calls through the same view share it."""
        shape = self._shapes.get(view)
        if shape is None:
            if len(self._shapes) > 256:
                self._shapes.clear()
            shape = self._shapes[view] = Shape.from_wire(msgpack.unpackb(view))
        return shape

    def decode_call(self, frame: Frame) -> Execution | Parts | None:
        """Return what to run for a CALL, or the answer if it cannot run (None: no answer is wanted).

        Raises:
            ProtocolError: The header is none of a CALL; close the link.
        """
        try:
            call_id, name, view, lengths, flags = frame.header
            shape = self.shape_of(view)
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"a CALL that cannot be read: {error}") from None
        instance = self.instance
        if self.state != "ready" or instance is None:
            return self._refusal(call_id, flags)
        context = CallContext(instance, name, shape, self.rank)
        try:
            args, kwargs = codec.decode(frame.payload, lengths)
        except BaseException as error:  # loading runs user code, which may do anything, even sys.exit
            return self.failed(Execution(call_id, None, (), {}, context, bool(flags & NO_REPLY)), error)
        method = self._methods.get(name)
        if method is None:
            missing = AttributeError(f"{instance.class_name} has no endpoint {name!r}")
            return self.failed(Execution(call_id, None, (), {}, context, bool(flags & NO_REPLY)), missing)
        return Execution(call_id, method, args, kwargs, context, bool(flags & NO_REPLY))

    def _refusal(self, call_id: int, flags: int) -> Parts | None:
        if flags & NO_REPLY:
            return None
        if self.state == "stopped":
            return split_frames(ERROR, [call_id, [["", "", "", []]], [], "stopped"], [])
        remote = self._failure or RemoteException("RuntimeError", "the actor was never initialised", "")
        earlier = RemoteException(
            remote.type, f"{remote.message} (earlier, in __init__)", remote.traceback, remote.notes, remote.cause
        )
        return split_frames(ERROR, [call_id, error_to_wire(earlier), [], "init"], [])

    def decode_init(self, frame: Frame) -> Execution | Parts:
        """Load the class and the arguments of an INIT; returns what to run, or the answer if it cannot run."""
        try:
            call_id, class_name, view, lengths = frame.header
            shape = self.shape_of(view)
            point = shape.extent.point(shape.ndslice.index(self.rank))
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"an INIT that cannot be read: {error}") from None
        if self.state == "ready":
            text = f"an actor named {self.name!r} runs on this mesh already; give the second one another name"
            return split_frames(ERROR, [call_id, [["meshrt.errors.UsageError", text, "", []]], [], "exists"], [])
        self.instance = ActorInstance(self.name, class_name, self.mesh_id, point)
        self.state = "new"
        context = CallContext(self.instance, "__init__", shape, self.rank)
        execution = Execution(call_id, None, (), {}, context)
        token = enter(context)
        try:
            setup, cls, args, kwargs = codec.decode(frame.payload, lengths)
            specs = endpoints_of(cls)
        except BaseException as error:  # loading imports user modules, which may do anything
            return self.init_failed(execution, error)
        finally:
            leave(token)
        self.is_async = any(spec.is_async for spec in specs.values())
        self._async_names = frozenset(name for name, spec in specs.items() if spec.is_async)

        def construct() -> None:
            if setup is not None:
                try:
                    self._setup(setup)
                except BaseException as error:
                    error.add_note("raised by the setup function of the mesh, before the actor was built")
                    raise
            # __new__ first: the actor can be looked at while its __init__ runs, or hangs.
            self.actor = cls.__new__(cls, *args, **kwargs)
            self.actor.__init__(*args, **kwargs)
            self._methods = {name: getattr(self.actor, name) for name in specs}

        execution.method = construct
        return execution

    def is_coroutine(self, execution: Execution) -> bool:
        """Whether the endpoint is ``async def``."""
        return execution.context.endpoint in self._async_names and self.state == "ready"

    # -- running

    def run(self, execution: Execution) -> Parts | None:
        """Run a synchronous message on this thread. Returns the answer; never raises."""
        context = execution.context
        token = enter(context)
        try:
            if hooks.endpoint_enter:
                hooks.run(hooks.endpoint_enter, context.call)
            try:
                value = execution.method(*execution.args, **execution.kwargs)
                if self._forked:
                    _end_forked_child(None)
            except BaseException as error:  # SystemExit and KeyboardInterrupt of user code end the call, not the rank
                return self._raised(execution, error)
            finally:
                if hooks.endpoint_exit:
                    hooks.run(hooks.endpoint_exit, context.call)
            return self.succeeded(execution, value)
        finally:
            leave(token)

    def abandon(self) -> None:
        """This process is a forked child: the call that forked it does not come back into the runtime."""
        self._forked = True

    async def run_async(self, execution: Execution) -> Parts | None:
        """Like `run` for an ``async def`` endpoint."""
        context = execution.context
        token = enter(context)
        try:
            if hooks.endpoint_enter:
                hooks.run(hooks.endpoint_enter, context.call)
            try:
                value = await execution.method(*execution.args, **execution.kwargs)
                if self._forked:
                    _end_forked_child(None)
            except BaseException as error:  # see `run`; a cancellation by the runtime comes when nobody waits any more
                return self._raised(execution, error)
            finally:
                if hooks.endpoint_exit:
                    hooks.run(hooks.endpoint_exit, context.call)
            return self.succeeded(execution, value)
        finally:
            leave(token)

    def _raised(self, execution: Execution, error: BaseException) -> Parts | None:
        if self._forked:
            _end_forked_child(error)
        if type(error) is StopInterrupt:  # isinstance would ask the error itself, which may raise
            return None if execution.no_reply else split_frames(ERROR, [execution.call_id, [], [], "interrupted"], [])
        if hooks.endpoint_error:
            hooks.run(hooks.endpoint_error, execution.context.call, error)
        if execution.context.endpoint == "__init__" and self.state == "new":
            return self.init_failed(execution, error)
        return self.failed(execution, error)

    # -- answering

    def succeeded(self, execution: Execution, value: Any) -> Parts | None:
        """Return the RESULT for ``value``, or an ERROR if it cannot be pickled."""
        if execution.context.endpoint == "__init__" and self.state == "new":
            self.state = "ready"
            self._failure = None
            value = None
        if execution.no_reply:
            return None
        if value is None:
            return [pack_header(RESULT, [execution.call_id, None])]
        try:
            parts, lengths = codec.encode(value)
        except KeyboardInterrupt as error:  # raised by the value's own __reduce__
            return self.failed(execution, error)
        except codec.EncodeError as error:
            remote = RemoteException("TypeError", str(error), "")
            return split_frames(ERROR, [execution.call_id, error_to_wire(remote), [], "result"], [])
        return split_frames(RESULT, [execution.call_id, lengths], parts)

    def failed(self, execution: Execution, error: BaseException, kind: str = "") -> Parts | None:
        """Return the ERROR for an exception; without a caller it is reported to the root."""
        remote = describe_exception(error)
        if execution.no_reply:
            self._unhandled(execution.context, remote)
            return None
        lengths: list[int] = []
        parts: list[Any] = []
        try:
            parts, lengths = codec.encode(error)
            if sum(lengths) > _EXCEPTION_MAX:
                parts, lengths = [], []
        except (codec.EncodeError, KeyboardInterrupt):
            pass  # the exception's data says it all; the object is a courtesy
        return split_frames(ERROR, [execution.call_id, error_to_wire(remote), lengths, kind], parts)

    def init_failed(self, execution: Execution, error: BaseException) -> Parts:
        """Return the ERROR for a failed INIT; later calls are told the same."""
        self.state = "failed"
        self.actor = None
        self._failure = describe_exception(error)
        return self.failed(execution, error) or []

    # -- the end

    def cleanup_execution(self) -> Execution | None:
        """Return the run of the actor's ``__cleanup__``, or None if it has none."""
        method = getattr(self.actor, "__cleanup__", None) if self.state == "ready" else None
        return None if method is None else Execution(0, method, (None,), {}, self._lone("__cleanup__"), no_reply=True)

    def report(self, what: str, error: BaseException) -> None:
        """Report an error of this actor that no caller waits for."""
        self._unhandled(self._lone(what), describe_exception(error))

    def _lone(self, what: str) -> CallContext:
        instance = self.instance or ActorInstance(self.name, "", self.mesh_id, Shape.unity().extent.point(0))
        return CallContext(instance, what, Shape.unity(), self.rank)

    def stopped(self) -> None:
        """The actor has ended."""
        self.state = "stopped"
        self.actor = None
        self._methods = {}
