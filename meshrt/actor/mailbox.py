"""The mailbox of one actor: the loop that serves its messages, on the actor's thread.

::

    collect -> decode -> run -> answer          (sync)
    an event loop does the same in one task     (a class with anything async)

Rules:

* One message at a time, in the order of arrival; calls of concurrent endpoints begin in that order, and run beside.
* It ends with a STOP, which stays in the queue for the thread that takes the callers over, with `retire` (the actor
  ends itself, or its owner has ended), or with `stop` (the rank ends).
* At the end of the grace, calls that still run are ended: user code by an exception, where it awaits by cancellation.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import re
import signal
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from meshrt.actor.callers import Callers, Message
from meshrt.actor.concurrent import ConcurrentCalls
from meshrt.actor.ending import ActorEnds, StopInterrupt
from meshrt.actor.execute import Execution, Executor, Parts
from meshrt.errors import MeshError, ProtocolError
from meshrt.transport.link import Link
from meshrt.wire.frames import Frame, pack_header
from meshrt.wire.handshake import Identity
from meshrt.wire.messages import CALL, INIT, RESULT, STOP

if TYPE_CHECKING:
    import asyncio

__all__ = ["Mailbox"]

_log = logging.getLogger("meshrt")

#: Messages that an actor with an event loop reads ahead.
_QUEUE_MAX = 16
#: Seconds that the tasks of an actor have to end, once they are cancelled.
_TASKS_END = 1.0


class Mailbox:
    """Made when the first link to an actor arrives; `serve` runs on the actor's thread.

    Args:
        executor: The actor.
        exiting: Called with an exception that left the event loop: ``SystemExit`` or ``KeyboardInterrupt`` of a task.
        callers: Those that it serves; None: new ones.
    """

    def __init__(
        self, executor: Executor, exiting: Callable[[Executor, BaseException], None], callers: Callers | None = None
    ) -> None:
        self.executor = executor
        self.name = executor.name
        self.callers = Callers() if callers is None else callers
        self.callers.on_cancel = self._withdraw
        executor.write = self.callers.answer_late
        #: Ident of the thread that serves, once it does.
        self.thread: int | None = None
        #: The message that runs now; read by other threads.
        self.running: Execution | None = None
        #: The number of CALLs that were begun so far.
        self.calls = 0
        #: The calls that run concurrently with it.
        self.concurrent = ConcurrentCalls(executor, self.callers)
        #: The error that has ended the rank, if there was one: given to ``__cleanup__``.
        self.error: BaseException | None = None
        #: Whether a STOP has ended it; the seconds that this leaves concurrent calls, None: what is usual.
        self.stopped = False
        self._grace: float | None = None
        self._exiting = exiting
        self._ending: bool | None = None
        #: As `_ending`, of the actor alone.
        self._retiring: bool | None = None
        executor.end = self._end_itself
        #: Calls that ran at the end of the grace have been ended; since then only ``__cleanup__`` runs.
        self._interrupted = False
        #: ``__cleanup__`` runs, or has run.
        self._cleaning = False
        self._loop: asyncio.AbstractEventLoop | None = None
        #: The asyncio task that serves, of an actor with a loop.
        self.task: asyncio.Task[None] | None = None
        self._current_task: Callable[[], asyncio.Task[object] | None] | None = None
        #: Work for the time between two messages, and whether it needs the event loop.
        self._errands: deque[tuple[Execution, bool]] = deque()

    # -- any thread

    def give(self, errand: Execution, *, awaits: bool) -> None:
        """Run an errand between two messages, or in a task of its own if the actor has an event loop.

        Args:
            errand: See `Executor.errand`.
            awaits: It is a coroutine function: a message that blocks the event loop blocks it too.
        """
        self._errands.append((errand, awaits))
        self.callers.wake()
        self._on_loop(self._start_errands)

    def _on_loop(self, function: Callable[..., object], *args: object) -> None:
        """Call a function on the event loop, if there is one. Any thread."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # closed meanwhile: the actor has ended
                loop.call_soon_threadsafe(function, *args)

    def stop(self, *, drain: bool) -> None:
        """End the loop: after what has been sent (``drain``), or after the running message."""
        self._ending = drain
        self.callers.wake()

    def retire(self, error: MeshError | None, *, drain: bool) -> None:
        """End the actor, while the rank lives on: after what was sent before (``drain``), or the running message."""
        self.error = error or self.error
        self._retiring = drain and self._retiring is not False
        self.callers.wake()

    def cut(self) -> Execution | None:
        """End the actor now, while the rank lives on; its callers are told. The control thread.

        Returns:
            What runs on the actor's thread, which `cancel` does not reach while it awaits nothing; not its end.
        """
        self.executor.is_cut = True
        self.retire(None, drain=False)
        self.cancel(cleanup=False)
        return None if self._cleaning else self.running

    def _end_itself(self, end: ActorEnds) -> None:
        """The actor has asked for it. Any thread."""
        self.executor.ending = self.executor.ending or end
        why = f"the actor has aborted: {end.reason}" if end.reason else "the actor has aborted"
        self.retire(MeshError(why) if end.failed else None, drain=not end.failed)

    def waiting(self) -> tuple[int, bool]:
        """Return how many messages have come and are not served yet, and whether there may be more than these."""
        running = self.running
        blocks = running is not None and not running.is_async
        found = self.callers.waiting(unread=blocks)
        if blocks and self.running is not running:
            found = self.callers.waiting(unread=False)  # it may have read meanwhile: the count is not valid
        count, more = found
        # What an event loop has not read is not counted: it may read at any moment.
        return count, more or (self._loop is not None and not blocks and count >= _QUEUE_MAX)

    @property
    def has_errands(self) -> bool:
        """Whether something given to `give` has not been done."""
        return bool(self._errands)

    def do_errands(self) -> None:
        """Run the errands now: no message runs, or the running one waits. Actor's thread."""
        outer = self.running
        if self._loop is not None and (outer is None or outer.is_async):
            return  # its loop goes on
        for errand, awaits in tuple(self._errands):
            if awaits and self._loop is not None:
                continue
            self._errands.remove((errand, awaits))
            errand.nested, before = outer is not None, self._interrupted
            self._step(None, errand)
            if self._interrupted and not before and outer is not None:
                raise StopInterrupt("this rank is stopping")  # the code that waits ends by it

    def cancel(self, *, cleanup: bool) -> None:
        """Cancel the calls that wait in the event loop, if there are any; ``__cleanup__`` too, if ``cleanup``."""
        self._on_loop(self._cancel_running, cleanup)

    def in_user_code(self) -> bool:
        """Whether user code runs on its thread now, which an exception would end; waiting tasks do not count."""
        if self._current_task is None:
            return self.running is not None
        task = self._current_task()
        return task is not None and (task is not self.task or self.running is not None)

    def interrupt(self, *, cleanup: bool) -> None:
        """Serve no further message, and raise in the user code that runs. In a signal handler of the serving thread.

        Args:
            cleanup: Also in ``__cleanup__``, which an interrupt for the call before it must not end.
        """
        self._ending = False
        if not self.in_user_code():
            return
        if self._current_task is None or self._current_task() is self.task:
            if self._cleaning and not cleanup:
                return
            self._interrupted = True
        raise StopInterrupt("this rank is stopping")

    def cancel_call(self, caller: Identity, call_id: int) -> Execution | None:
        """A caller does not want the answer of its call any more. The control thread.

        Returns:
            The call, if it runs on the actor's thread and awaits nothing.
        """
        if not caller.pid:
            return None  # of another pid namespace: the number of a call does not say whose it is
        self.callers.note_cancelled(caller, call_id)
        running = self.running
        if running is not None and not running.is_async and running.is_call(caller, call_id):
            return running
        self._withdraw_response(caller, call_id)
        self._on_loop(self._withdraw, caller, call_id)
        return None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of an actor with anything async, while it runs."""
        return self._loop

    # -- serving

    def serve(self) -> None:
        """Serve messages on this thread until the actor, or the rank, is stopped."""
        self.thread = threading.get_ident()
        callers = self.callers
        while True:
            while (
                not self._errands and self._serves() and (not callers.queue or (callers.slow and callers.set_aside()))
            ):
                callers.collect(None)
            if self._errands:
                self.do_errands()
                continue
            message = self._take()
            if message is None:
                break
            if callers.cancelled and callers.is_cancelled(*message):
                continue
            init = self._serve_one(*message)
            if init is not None:
                self._serve_async(message[0], init)
                return
        self._step(None, self._cleanup())
        self._end()

    def _serves(self) -> bool:
        return self._ending is None and self._retiring is None

    def _cleanup(self) -> Execution | None:
        self._cleaning = True
        return self.executor.cleanup_execution(self.error)

    def _take(self) -> Message | None:
        """Return the next message, or None at the end."""
        callers = self.callers
        if callers.urgent is not None:
            callers.collect_urgent()
        if self._ending is not None:
            callers.take_all_back()
            # Look for messages that were sent before: by a caller that has just connected, or in part.
            while self._ending and not callers.queue and callers.collect(0):
                pass
            if not self._ending or not callers.queue:
                return None
        elif self._retiring is not None:
            while self._retiring and not callers.queue and callers.collect(0):
                pass
            if not self._retiring or not callers.queue:
                self.stopped = True
                return None
        if callers.queue[0][1].kind == STOP:
            why, grace, spawn_id = (*callers.queue[0][1].header[1:], "", None, b"")[:3]
            if not self.executor.is_refused(spawn_id):
                self.stopped = True
                self.error = MeshError(str(why)) if why else self.error
                self._grace = grace if isinstance(grace, int | float) else None
                return None
        return callers.queue.popleft()

    def _decode(self, link: Link, frame: Frame) -> Execution | Parts | None:
        try:
            if frame.kind == CALL:
                self.calls += 1
                return self.executor.decode_call(frame, link)
            if frame.kind == INIT:
                return self.executor.decode_init(frame, link)
            if frame.kind == STOP:  # by the handle of a refused spawn
                return [pack_header(RESULT, [frame.header[0], None])]
            raise ProtocolError(f"an actor does not accept messages of kind {frame.kind}")
        except Exception as error:  # an exception of user code is an answer; this one is about the header
            if not isinstance(error, ProtocolError):
                _log.warning("a caller was disconnected: its message cannot be read: %r", error)
            self.callers.drop(link)
            return None

    def _serve_one(self, link: Link, frame: Frame) -> Execution | None:
        """Serve a message; returns an INIT that wants an event loop instead."""
        work = self._decode(link, frame)
        if frame.kind == INIT and isinstance(work, Execution) and self.executor.is_async:
            return work
        self._step(link, work)
        if frame.kind == INIT:
            self.callers.init_done()
        return None

    def _step(self, link: Link | None, work: Execution | Parts | None) -> None:
        """Run a message and answer it."""
        if isinstance(work, Execution):
            self.callers.keep_backlogs()
            outer, self.running = self.running, work
            try:
                # It may have been cancelled while it was unpickled: who cancels looks at what runs, or this sees it.
                if link is not None and self.callers.cancelled and self.callers.is_noted(link, work.call_id):
                    work = None
                else:
                    work = self.executor.run(work)
            finally:
                self.running = outer
        if link is not None and work:
            self.callers.answer(link, work)
        if self.executor.untold:
            self.executor.tell()

    def _end(self) -> None:
        while self._errands:
            self.executor.cancelled(self._errands.popleft()[0])
        for response in self.executor.responses():
            response.cancelled()
        self.executor.ended()
        if not self.stopped:
            self.callers.flush_all()

    # -- serving with an event loop

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        import uvloop  # start-up: as below

        return uvloop.new_event_loop()

    def _serve_async(self, link: Link, init: Execution) -> None:
        import asyncio  # start-up: only actors with async endpoints pay for it

        loop = self._new_loop()
        task = self.task = loop.create_task(self._serve_task(link, init))
        self._current_task = lambda: asyncio.current_task(loop)
        self._loop = loop
        try:
            while not task.done():
                try:
                    loop.run_until_complete(task)
                except StopInterrupt:
                    pass  # it ended a task of the actor's own
                except (SystemExit, KeyboardInterrupt) as error:
                    # asyncio raises them out of the loop: they end the process, not the task.
                    self._exiting(self.executor, error)
        finally:
            self._loop = None
            loop.close()
            if threading.current_thread() is threading.main_thread():
                # The loop took the wake-up descriptor of signals; leave none set.
                signal.set_wakeup_fd(-1)

    async def _serve_task(self, link: Link, init: Execution) -> None:
        import asyncio  # start-up: as above

        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._loop_exception)
        arrived = asyncio.Event()
        callers = self.callers

        reading = True

        def on_ready() -> None:
            nonlocal reading
            callers.collect(0)
            arrived.set()
            if len(callers.queue) >= _QUEUE_MAX:
                # Messages that wait here take memory; messages that wait in the sockets make their callers wait.
                reading = False
                loop.remove_reader(callers.fileno())

        await self._step_async(link, init)
        callers.init_done()
        self._start_errands()
        loop.add_reader(callers.fileno(), on_ready)
        try:
            while True:
                while self._serves() and (not callers.queue or (callers.slow and callers.set_aside())):
                    if not reading:
                        reading = True
                        loop.add_reader(callers.fileno(), on_ready)
                    arrived.clear()
                    await self._undisturbed(arrived.wait)
                message = self._take()
                if message is None:
                    break
                if not reading and len(callers.queue) < _QUEUE_MAX // 2:
                    reading = True
                    loop.add_reader(callers.fileno(), on_ready)
                if callers.cancelled and callers.is_cancelled(*message):
                    continue
                await self._step_async(message[0], self._decode(*message))
                if message[1].kind == INIT:
                    callers.init_done()
                # Let tasks that the actor started have their turn even if messages keep coming.
                await self._undisturbed(lambda: asyncio.sleep(0))
            soon = functools.partial(self.concurrent.finish_soon, self._grace)
            await self._undisturbed(soon if self.stopped else self.concurrent.finish)
            await self._step_async(None, self._cleanup())
        finally:
            loop.remove_reader(callers.fileno())
            await self._end_tasks()
        self._end()

    def _start_errands(self) -> None:
        while self._errands:
            errand, _ = self._errands.popleft()
            errand.method = _awaiting(errand.method)
            self.concurrent.start(errand)

    async def _undisturbed(self, wait: Callable[[], Awaitable[object]]) -> None:
        """Wait, although user code cancels every task that it finds on the loop: this one serves the actor."""
        import asyncio  # start-up: only actors with async endpoints pay for it

        while True:
            try:
                await wait()
                return
            except asyncio.CancelledError:
                if self.task is not None:
                    self.task.uncancel()

    async def _step_async(self, link: Link | None, work: Execution | Parts | None) -> None:
        """Like `_step`; a coroutine is awaited."""
        if not (isinstance(work, Execution) and work.is_async):
            self._step(link, work)
            self.callers.keep_backlogs()  # the actor's tasks may change what was returned
            return
        self.callers.keep_backlogs()
        if work.is_concurrent:
            self.concurrent.start(work)
            return
        self.running = work
        try:
            answer = await self.executor.run_async(work)
        finally:
            self.running = None
            if work.interrupted and self.task is not None:
                self.task.uncancel()
        if link is not None and answer:
            self.callers.answer(link, answer)
            self.callers.keep_backlogs()
        if self.executor.untold:
            self.executor.tell()

    def _cancel_running(self, cleanup: bool) -> None:
        # On the loop's thread, between two steps of its tasks: what runs are coroutines that wait.
        self.concurrent.cancel()
        if self.running is None or self.task is None or self._interrupted or (self._cleaning and not cleanup):
            return
        self._interrupted = self.running.interrupted = True
        self.task.cancel()

    def _withdraw(self, caller: Identity, call_id: int) -> None:
        """A call that may run is not wanted any more: cancel it where it awaits. On the thread of the actor."""
        running = self.running
        if running is not None and running.is_async and self.task is not None and running.is_call(caller, call_id):
            if not running.interrupted:
                running.interrupted = running.withdrawn = True
                self.task.cancel()
        else:
            self.concurrent.withdraw(caller, call_id)
            self._withdraw_response(caller, call_id)

    def _withdraw_response(self, caller: Identity, call_id: int) -> None:
        """A call may have returned, and owe its answer by a port."""
        running = self.running
        if running is not None and running.is_call(caller, call_id):
            return
        if not self.concurrent.runs(caller, call_id):
            for response in self.executor.responses():
                response.withdraw(caller, call_id)

    @staticmethod
    async def _end_tasks() -> None:
        """Cancel the tasks that the actor started, and let them end."""
        import asyncio  # start-up: as above

        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_TASKS_END)
        await asyncio.get_running_loop().shutdown_asyncgens()

    def _loop_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None:
            loop.default_exception_handler(context)
            return
        if issubclass(type(error), ActorEnds):
            self.executor.ended_itself(error)
            return
        self.executor.report(_task_of(context), error)


def _task_of(context: Mapping[str, object]) -> str:
    """Return what has raised, for a handler of exceptions: a task by its name, if that is not a number of asyncio's."""
    import asyncio  # start-up: as above

    task = context.get("task") or context.get("future")
    name = asyncio.Task.get_name(task) if isinstance(task, asyncio.Task) else ""
    return "a task" if not name or re.fullmatch(r"Task-\d+", name) else f"task {name!r}"


def _awaiting(method: Callable[..., object]) -> Callable[..., Awaitable[object]]:
    """Return a method, plain or not, as a coroutine function."""

    async def run(*args: object) -> object:
        value = method(*args)
        return await value if inspect.isawaitable(value) else value

    return run
