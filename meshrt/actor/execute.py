"""Running one message on an actor, and making its answer.

An actor: ``new -> ready`` by INIT, or ``new -> failed`` when its ``__init__`` raises; INIT on a failed one retries it.
CALLs before INIT wait in the mailbox; after STOP there is no executor any more (`meshrt.actor.stopped`).
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgpack
import msgspec
from msgspec.structs import replace

from meshrt.actor.context import ActorInstance, CallContext, enter, leave
from meshrt.actor.described import name_taken
from meshrt.actor.ending import ActorEnds, StopInterrupt, ends_actor
from meshrt.actor.endpoint import EndpointSpec, endpoints_of
from meshrt.actor.errors import describe_exception, number_failure, tell_stray
from meshrt.actor.exiting import end_forked_child
from meshrt.actor.reducing import REDUCE, Block, reduction, reduction_async
from meshrt.actor.response import Response, ResponsePort
from meshrt.actor.setup import SetUp
from meshrt.errors import ProtocolError, RemoteException
from meshrt.hooks.facts import Raised
from meshrt.hooks.table import hooks
from meshrt.selection import Shape, Slice
from meshrt.store.store import encode_result
from meshrt.transport.link import Link
from meshrt.wire import codec
from meshrt.wire.errors import error_to_wire
from meshrt.wire.exceptions import sendable
from meshrt.wire.frames import Buffer, Frame, pack_header, split_frames
from meshrt.wire.handshake import Identity
from meshrt.wire.messages import ABORTED, ERROR, NO_ERROR, NO_REPLY, RESULT, STOPPED_ITSELF, STORED

__all__ = ["Execution", "Executor", "Parts", "told_of"]

#: Largest pickled exception that is attached to an error, bytes.
_EXCEPTION_MAX = 1 << 20
#: Spawns that one actor has refused whose handles it refuses, too.
_REFUSED_MAX = 10_000

Parts = list[Buffer]
"""The buffers of an answer."""

Token = contextvars.Token[CallContext | None]


class Execution(msgspec.Struct, eq=False):
    """A decoded message, ready to run. Its method is of the user's class: plain, a coroutine function, or not found."""

    __repr__ = object.__repr__  # what it has is the user's, and may do anything when it is shown

    call_id: int
    method: Any
    args: tuple[object, ...]
    kwargs: dict[str, object]
    context: CallContext
    no_reply: bool = False
    #: To be run with `Executor.run_async`.
    is_async: bool = False
    #: ... in a task of its own.
    is_concurrent: bool = False
    #: Cancelled by the end of the rank, or by its caller.
    interrupted: bool = False
    #: Its caller does not want its answer any more.
    withdrawn: bool = False
    #: The number of its failure, once it has raised.
    failure: str = ""
    #: Given what a function without a caller has returned or raised.
    done: Callable[[object, BaseException | None], None] | None = None
    #: The error that an errand is about.
    because: BaseException | None = None
    #: Its answer, if it does not answer by what it returns.
    response: Response | None = None
    #: Runs while another message waits: hooks are told of that message only.
    nested: bool = False

    def is_call(self, caller: Identity, call_id: int) -> bool:
        """Whether it is the call of this number of this process."""
        link = self.context.link
        return self.call_id == call_id and link is not None and link.client == caller

    def owes_answer(self) -> bool:
        """Whether its caller is owed an answer. If it has a port, that can answer no more: who calls this does."""
        return not self.no_reply and (self.response is None or self.response.take())

    def receivers(self) -> list[Identity]:
        """Return the process that reads its result."""
        link = self.context.link
        return [link.client] if link is not None and link.client.pid else []

    def site(self) -> str:
        """Return the origin of its result: file and line of the endpoint, and its name."""
        name = f"{self.context.instance.name}.{self.context.endpoint}()"
        code = getattr(self.method, "__code__", None)
        return name if code is None else f"{code.co_filename}:{code.co_firstlineno} {name}"


def _encoded(error: BaseException | None) -> tuple[Sequence[codec.Part], list[int]]:
    """Pickle an exception, or not: its data is complete, the object is optional."""
    try:
        parts, lengths = codec.encode(error and sendable(error))
    except (codec.EncodeError, KeyboardInterrupt):
        return [], []
    return (parts, lengths) if sum(lengths) <= _EXCEPTION_MAX else ([], [])


def told_of(end: ActorEnds) -> RemoteException:
    """Return what callers of an actor that has ended itself are told."""
    return RemoteException(ABORTED if end.failed else STOPPED_ITSELF, end.reason, "", failure=end.number)


@functools.lru_cache(maxsize=256)
def _view_of(view: bytes) -> tuple[Shape, bytes]:
    """Return the shape of a view and the id of the spawn; calls through the same view share it."""
    *wire, spawn_id = msgpack.unpackb(view)
    if type(spawn_id) is not bytes:
        raise TypeError("a spawn id is bytes")
    return Shape.from_wire(wire), spawn_id


class Executor:
    """One actor of this rank.

    Args:
        mesh_id, rank, name: The identity of the actor.
        setup: Runs the mesh's set-up function once per process.
        unhandled: Told of errors that no caller waits for: (endpoint, view, exception as data).
        before_error: Called when an endpoint has raised, before the hooks for that are looked up.
        before_raised: The same, for the hooks that are told once the caller has been answered.
    """

    def __init__(
        self,
        mesh_id: str,
        rank: int,
        name: str,
        setup: SetUp,
        unhandled: Callable[[CallContext, RemoteException], None],
        before_error: list[Callable[[], object]],
        before_raised: list[Callable[[], object]],
    ) -> None:
        self.mesh_id = mesh_id
        self.rank = rank
        self.name = name
        self.state = "new"
        self.is_async = False
        #: Exceptions that the hooks were not told of yet, and their times (monotonic ns): see `tell`.
        self.untold: list[tuple[Execution, BaseException, int]] = []
        self.actor: Any = None
        self.cls: type | None = None
        self.instance: ActorInstance | None = None
        #: Ends the actor, which asks for it. Any thread.
        self.end: Callable[[ActorEnds], None] | None = None
        #: What was raised to end the actor; it may be raised where no message runs, or be caught.
        self.ending: ActorEnds | None = None
        #: What runs is ended although the rank lives on: its callers are told.
        self.is_cut = False
        #: How it has ended itself.
        self.ended_by: ActorEnds | None = None
        self._forked = False
        self._setup = setup
        self._unhandled = unhandled
        self._before_error = before_error
        self._before_raised = before_raised
        self._failure: RemoteException | None = None
        #: The ids of spawns that were refused as the name was taken, the oldest first.
        self._refused: dict[bytes, None] = {}
        self._built_by = b""  # the id of its spawn
        self._singleton: list[str] = []  # digest and text of what it was built from (`meshrt.mesh.singleton`)
        #: By name: the method, whether it is a coroutine function, and whether it runs in a task of its own.
        self._endpoints: dict[str, tuple[Callable[..., object], bool, bool]] = {}
        #: Those that answer by a port.
        self._ported: frozenset[str] = frozenset()
        #: The answers of their calls, by `id`: user code alone keeps them.
        self._responses: weakref.WeakValueDictionary[int, Response] = weakref.WeakValueDictionary()
        #: Writes an answer from any thread.
        self.write: Callable[[Link, Parts], None] = lambda _link, _parts: None

    # -- decoding

    def decode_call(self, frame: Frame, link: Link | None = None) -> Execution | Parts | None:
        """Return what to run for a CALL, or the answer if it cannot run (None: no answer is wanted).

        Raises:
            ProtocolError: The header is not that of a CALL; close the link.
        """
        try:
            call_id, name, view, lengths, flags = frame.header
            shape, spawn_id = _view_of(view)
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"a CALL that cannot be read: {error}") from None
        instance = self.instance
        if self.state != "ready" or instance is None:
            return self._refusal(call_id, flags)
        context = CallContext(instance, name, shape, self.rank, call_id, link)
        if spawn_id in self._refused:
            taken = name_taken(self.name, (), ())
            if flags & NO_REPLY:
                self._unhandled(context, taken)
                return None
            return split_frames(ERROR, [call_id, error_to_wire(taken), [], "exists"], [])
        try:
            args, kwargs = codec.decode(frame.payload, lengths)
        except BaseException as error:  # loading runs user code, which may do anything, even sys.exit
            return self.failed(Execution(call_id, None, (), {}, context, no_reply=bool(flags & NO_REPLY)), error)
        if name == REDUCE and args and isinstance(args[0], Block):
            name = args[0].endpoint
            context = CallContext(instance, name, shape, self.rank, call_id, link)
            method, is_async, is_concurrent = self._endpoints.get(name, (None, False, False))
            method = method and (reduction_async if is_async else reduction)(method)
        else:
            method, is_async, is_concurrent = self._endpoints.get(name, (None, False, False))
        no_reply = bool(flags & NO_REPLY)
        execution = Execution(call_id, method, args, kwargs, context, no_reply, is_async, is_concurrent)
        if name in self._ported and link is not None:
            self._add_port(execution, link)
        if method is None:
            return self.failed(execution, AttributeError(f"{instance.class_name} has no endpoint {name!r}"))
        return execution

    def _add_port(self, execution: Execution, link: Link) -> None:
        write = None if execution.no_reply else functools.partial(self.write, link)
        name = self.name, execution.context.endpoint
        response = Response(link.client, execution.call_id, write, execution.receivers, execution.site, name)
        execution.response = response
        execution.args = (ResponsePort(response), *execution.args)
        self._responses[id(response)] = response

    def owed(self) -> list[str]:
        """Return the endpoints that have calls whose response ports have sent no answer yet. Any thread."""
        return sorted({each.endpoint for each in self.responses() if each.is_open})

    def responses(self) -> list[Response]:
        """Return the answers of calls that user code holds the ports of. Any thread."""
        found = [reference() for reference in self._responses.valuerefs()]
        return [each for each in found if each is not None]

    def _refusal(self, call_id: int, flags: int) -> Parts | None:
        if flags & NO_REPLY:
            return None
        if self.ended_by is not None:  # in its __init__
            return split_frames(ERROR, [call_id, error_to_wire(told_of(self.ended_by)), [], "ended"], [])
        remote = self._failure or RemoteException("RuntimeError", "the actor was never initialised", "")
        earlier = replace(remote, message=f"{remote.message} (earlier, in __init__)")
        return split_frames(ERROR, [call_id, error_to_wire(earlier), [], "init"], [])

    def is_refused(self, spawn_id: object) -> bool:
        """Whether a handle is that of a spawn that this actor has refused, as it has the name."""
        return type(spawn_id) is bytes and spawn_id in self._refused

    def decode_init(self, frame: Frame, link: Link | None = None) -> Execution | Parts:
        """Load the class and the arguments of an INIT; returns what to run, or the answer if it cannot run."""
        try:
            call_id, class_name, view, lengths, *singleton = frame.header
            shape, spawn_id = _view_of(view)
            point = shape.extent.point(shape.ndslice.index(self.rank))
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"an INIT that cannot be read: {error}") from None
        if self.state == "ready":
            # A rank that is started again may get the INIT of its spawn twice; of singletons, the texts are for errors.
            if (spawn_id and spawn_id == self._built_by) or (singleton and singleton[:1] == self._singleton[:1]):
                return [pack_header(RESULT, [call_id, None])]
            if spawn_id:
                self._refused[spawn_id] = None
            while len(self._refused) > _REFUSED_MAX:
                del self._refused[next(iter(self._refused))]
            taken = error_to_wire(name_taken(self.name, self._singleton, singleton))
            return split_frames(ERROR, [call_id, taken, [], "exists"], [])
        self.instance = ActorInstance(self.name, class_name, self.mesh_id, point, self.end)
        self.state = "new"
        self._singleton, self._built_by = singleton, spawn_id
        context = CallContext(self.instance, "__init__", shape, self.rank, call_id, link)
        execution = Execution(call_id, None, (), {}, context)
        token = enter(context)
        try:
            setup, cls, args, kwargs, creator = codec.decode(frame.payload, lengths)
            self.instance.module = cls.__module__
            self.instance.creator = creator or self.instance.creator
            specs = endpoints_of(cls)
            self.cls = cls
        except BaseException as error:  # loading imports user modules, which may do anything
            return self.init_failed(execution, error)
        finally:
            leave(token)
        self.is_async = any(spec.is_async for spec in specs.values()) or any(
            inspect.iscoroutinefunction(getattr(cls, name, None)) for name in ("__cleanup__", "__supervise__")
        )

        self._ported = frozenset(name for name, spec in specs.items() if spec.is_ported)

        def construct() -> None:
            if setup is not None:
                self._setup.run(setup)
            self.build(specs, args, kwargs)

        async def construct_async() -> None:
            await self._setup.run_async(setup)
            self.build(specs, args, kwargs)

        # With an event loop, the set-up function runs there: what it makes belongs to the loop that goes on.
        execution.is_async = self.is_async and setup is not None
        execution.method = construct_async if execution.is_async else construct
        return execution

    def build(self, specs: Mapping[str, EndpointSpec], args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Make the actor."""
        # __new__ first: the actor can be looked at while its __init__ runs, or hangs.
        cls: Any = self.cls
        self.actor = cls.__new__(cls, *args, **kwargs)
        self.actor.__init__(*args, **kwargs)
        self._endpoints = {
            name: (getattr(self.actor, name), spec.is_async, spec.is_concurrent) for name, spec in specs.items()
        }

    # -- running

    def run(self, execution: Execution) -> Parts | None:
        """Run a synchronous message on this thread. Returns the answer; never raises."""
        token = self._begin(execution)
        try:
            value = execution.method(*execution.args, **execution.kwargs)
        except BaseException as error:  # SystemExit and KeyboardInterrupt of user code end the call, not the rank
            return self._raised(execution, token, error)
        return self._returned(execution, token, value)

    async def run_async(self, execution: Execution) -> Parts | None:
        """Like `run` for a coroutine function."""
        token = self._begin(execution)
        try:
            value = await execution.method(*execution.args, **execution.kwargs)
        except BaseException as error:
            return self._raised(execution, token, error)
        return self._returned(execution, token, value)

    @staticmethod
    def _begin(execution: Execution) -> Token:
        token = enter(execution.context)
        if hooks.endpoint_enter and not execution.nested:
            hooks.run(hooks.endpoint_enter, execution.context.call)
        return token

    def _returned(self, execution: Execution, token: Token, value: object) -> Parts | None:
        if self._forked:
            end_forked_child(None)
        try:
            self._exited(execution)
            try:
                return self.succeeded(execution, value)
            except MemoryError as error:  # what the endpoint has kept leaves no room for its answer
                return self._answer_to(execution, error)
        finally:
            leave(token)

    def _raised(self, execution: Execution, token: Token, error: BaseException) -> Parts | None:
        if self._forked:
            end_forked_child(error)
        try:
            return self._answer_to(execution, error)
        finally:
            self._exited(execution)
            leave(token)

    @staticmethod
    def _exited(execution: Execution) -> None:
        if execution.response is not None:
            execution.args = ()  # only user code keeps its port from here on
        if hooks.endpoint_exit and not execution.nested:
            hooks.run(hooks.endpoint_exit, execution.context.call)

    def _answer_to(self, execution: Execution, error: BaseException) -> Parts | None:
        if execution.withdrawn and not issubclass(type(error), Exception):
            if not execution.owes_answer():
                return None
            return split_frames(ERROR, [execution.call_id, NO_ERROR, [], "withdrawn"], [])
        kind = type(error)  # isinstance would ask the error itself, which may run any code
        if kind is StopInterrupt or (execution.interrupted and not issubclass(kind, Exception)):
            if self.is_cut:
                return self.cancelled(execution)
            if execution.done is not None:
                execution.done(None, error)
            return None  # the rank ends: its fate, which says why, is what the caller is told
        if issubclass(kind, ActorEnds):
            return self._ends(execution, error)  # type: ignore[arg-type]  # it is one
        if self._before_error:
            hooks.run(self._before_error)
        if hooks.endpoint_error and not execution.nested:
            hooks.run(hooks.endpoint_error, execution.context.call, error)
        if execution.context.endpoint == "__init__" and self.state == "new":
            return self.init_failed(execution, error)
        if execution.done is None and execution.context.endpoint != "__cleanup__" and ends_actor(kind):
            return self._ends_by(execution, error)
        return self.failed(execution, error)

    def _ends_by(self, execution: Execution, error: BaseException) -> Parts | None:
        """End the actor as failed, as by ``abort``. The record of the failure shows what was raised."""
        self._number(execution, error)
        raised = describe_exception(error)
        end = ActorEnds(f"{execution.context.endpoint}() raised {raised.type}: {raised.message}", failed=True)
        if self.end is not None:
            self.end(end)
        return self._ends(execution, end)

    def ended_itself(self, error: ActorEnds, execution: Execution | None = None, *, called: bool = False) -> None:
        """Note that the actor ends itself; the owner is told if it fails by that.

        Args:
            execution: The message in which it does; None: none.
            called: The caller of the message is told, too.
        """
        if self.ended_by is not None:
            return
        self.ended_by = error
        if not error.failed:
            return
        context = self.lone("abort")
        if execution is None:
            hooks.run(self._before_raised)
            error.number = tell_stray(error, context.call, "a task or a thread")
        else:
            self._number(execution, error)
            error.number = execution.failure
        self._unhandled(execution.context if called and execution is not None else context, told_of(error))

    def _ends(self, execution: Execution, error: ActorEnds) -> Parts | None:
        called = execution.done is None and execution.owes_answer()
        self.ended_itself(error, execution, called=called)
        if execution.done is not None:
            execution.done(None, error)
        if not called:
            return None
        return split_frames(ERROR, [execution.call_id, error_to_wire(told_of(error)), [], "ending"], [])

    def _number(self, execution: Execution, error: BaseException) -> None:
        if not execution.failure:
            execution.failure = number_failure()
            self.untold.append((execution, error, time.monotonic_ns()))

    def tell(self) -> None:
        """Tell the hooks of exceptions, once the callers have their answers."""
        hooks.run(self._before_raised)
        while self.untold:
            execution, error, when = self.untold.pop(0)
            if hooks.raised:
                call, waited_for = execution.context.call, not execution.no_reply
                because = execution.because
                raised = Raised(execution.failure, error, call, when, waited_for=waited_for, because=because)
                hooks.run(hooks.raised, raised)

    def abandon(self) -> None:
        """This process is a forked child: the call that forked it does not come back into the runtime."""
        self._forked = True

    # -- answering

    def succeeded(self, execution: Execution, value: object) -> Parts | None:
        """Return the RESULT for ``value``, or an ERROR if it cannot be pickled."""
        if execution.context.endpoint == "__init__" and self.state == "new":
            self.state = "ready"
            self._failure = None
            value = None
        if execution.done is not None:
            execution.done(value, None)
            return None
        if execution.no_reply or execution.response is not None:
            return None
        if value is None:
            return [pack_header(RESULT, [execution.call_id, None])]
        try:
            parts, lengths, loans, _ = encode_result(value, execution.receivers, execution.site)
        except KeyboardInterrupt as error:  # raised by the value's own __reduce__
            return self.failed(execution, error)
        except codec.EncodeError as error:
            self._number(execution, error)
            remote = RemoteException("TypeError", str(error), "", failure=execution.failure)
            exception, lengths = _encoded(error.__cause__)
            return split_frames(ERROR, [execution.call_id, error_to_wire(remote), lengths, "result"], exception)
        if loans is not None:
            return split_frames(RESULT | STORED, [execution.call_id, lengths, loans], parts)
        return split_frames(RESULT, [execution.call_id, lengths], parts)

    def failed(self, execution: Execution, error: BaseException) -> Parts | None:
        """Return the ERROR for an exception; without a caller it is reported to the root."""
        self._number(execution, error)
        if execution.done is not None:
            self.tell()  # no caller waits: the record comes first, and is there when the root decides
            execution.done(None, error)
            return None
        remote = replace(describe_exception(error), failure=execution.failure)
        if not execution.owes_answer():
            self._unhandled(execution.context, remote)
            return None
        parts, lengths = _encoded(error)
        return split_frames(ERROR, [execution.call_id, error_to_wire(remote), lengths, ""], parts)

    def cancelled(self, execution: Execution) -> Parts | None:
        """Return the ERROR for a call that had not ended when its actor was stopped."""
        if execution.done is not None:
            execution.done(None, StopInterrupt("this actor was stopped"))
            return None
        if not execution.owes_answer():
            return None
        if self.ended_by is not None:
            return split_frames(ERROR, [execution.call_id, error_to_wire(told_of(self.ended_by)), [], "ending"], [])
        return split_frames(ERROR, [execution.call_id, NO_ERROR, [], "cancelled"], [])

    def init_failed(self, execution: Execution, error: BaseException) -> Parts:
        """Return the ERROR for a failed INIT; later calls are told the same."""
        self.state = "failed"
        self.actor = None
        self._number(execution, error)
        self._failure = replace(describe_exception(error), failure=execution.failure)
        # Its caller is told by the answer. Its owner is told also where no call was made, or no answer is read.
        self._unhandled(execution.context, self._failure)
        return self.failed(execution, error) or []

    # -- the end

    def cleanup_execution(self, error: BaseException | None) -> Execution | None:
        """Return the run of the actor's ``__cleanup__``, or None if it has none. ``error`` has ended the actor."""
        if self.ending is not None:  # although no message has ended by it
            self.ended_itself(self.ending)
        method = getattr(self.actor, "__cleanup__", None) if self.state == "ready" else None
        if method is None:
            return None
        is_async = inspect.iscoroutinefunction(method)
        return Execution(0, method, (error,), {}, self.lone("__cleanup__"), no_reply=True, is_async=is_async)

    def errand(
        self,
        name: str,
        method: Callable[..., object],
        argument: object,
        done: Callable[[object, BaseException | None], None],
    ) -> Execution:
        """Return the run of a function without a caller; ``done`` is given its value or error, once or more."""
        return Execution(0, method, (argument,), {}, self.lone(name), done=done)

    def report(self, what: str, error: BaseException) -> None:
        """Report an error of this actor that no caller waits for."""
        hooks.run(self._before_raised)
        context = self.lone(what)
        failure = tell_stray(error, context.call, what)
        self._unhandled(context, replace(describe_exception(error), failure=failure))

    def lone(self, what: str) -> CallContext:
        """Return the context of code that runs on this actor without a call: ``__cleanup__``, a task."""
        instance = self.instance or ActorInstance(self.name, "", self.mesh_id, Shape.unity().extent.point(0))
        alone = Shape((), Slice(offset=self.rank, sizes=(), strides=()))
        return CallContext(instance, what, alone, self.rank)

    def ended(self) -> None:
        """The actor has ended: drop the references to it."""
        self.state = "ended"
        self.actor = self.cls = None
        self._endpoints = {}
