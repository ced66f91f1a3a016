"""The mailbox of one actor: its links, the order of its messages, and the loop that serves them.

::

    thread of the actor:   collect -> decode -> run -> answer          (sync)
                           an event loop does the same in one task     (a class with async endpoints)

Rules:

* One message at a time, in the order of arrival; what one caller sent stays in order.
* CALLs that arrive before INIT wait for it; from INIT on everything keeps its order.
* A caller that does not read its answers is not read from, until it does; the others are served meanwhile.
* An answer that the socket did not take whole is copied before the next message runs: user code may change its arrays.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections import deque
from typing import Any

from meshrt.actor.execute import Execution, Executor
from meshrt.errors import ProtocolError
from meshrt.transport.link import Link
from meshrt.wire.frames import Frame, pack_header
from meshrt.wire.messages import CALL, INIT, RESULT, STOP

__all__ = ["Mailbox"]

_EVENTS = 64
#: Messages that an actor with an event loop reads ahead.
_QUEUE_MAX = 16


class Mailbox:
    """Made by the control thread when the first link to an actor arrives; `serve` runs on the actor's thread."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.name = executor.name
        #: Ident of the thread that serves, once it does.
        self.thread: int | None = None
        #: The message that runs now; read by the control thread.
        self.running: Execution | None = None
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        self._links: dict[int, Link] = {}
        self._slow: set[Link] = set()
        self._arrivals: deque[tuple[Link, bytes]] = deque()
        self._queue: deque[tuple[Link, Frame]] = deque()
        self._early: deque[tuple[Link, Frame]] = deque()
        #: Whether an INIT has come: what follows it keeps its place in the queue.
        self._begun = False
        self._stop: bool | None = None
        self._loop: Any = None
        #: The asyncio task that serves, of an actor with async endpoints.
        self.task: Any = None

    # -- control thread

    def add_link(self, link: Link, leftover: bytes) -> None:
        """Serve this caller too; ``leftover`` came behind its handshake. Any thread."""
        self._arrivals.append((link, leftover))
        self._wake()

    def stop(self, *, drain: bool) -> None:
        """End the loop: after what has been sent (``drain``), or after the running message. Any thread."""
        self._stop = drain
        self._wake()

    def _wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def abandon(self) -> None:
        """Close the links in a forked child, which serves nobody."""
        self.executor.abandon()
        for link in tuple(self._links.values()):
            link.sock.close()

    def close(self) -> None:
        """Close what it holds, when `serve` has returned and the process lives on."""
        for link in (*self._links.values(), *(link for link, _ in self._arrivals)):
            link.close()
        self._epoll.close()
        os.close(self._wake_fd)

    @property
    def loop(self) -> Any:
        """The event loop of an actor with async endpoints, once it runs."""
        return self._loop

    @property
    def queued(self) -> int:
        """Messages that wait, as far as they have been read."""
        return len(self._queue) + len(self._early)

    # -- collecting

    def _collect(self, timeout: float | None) -> bool:
        """Take what has come; returns whether there was anything."""
        events = self._epoll.poll(timeout, _EVENTS)
        for fd, event in events:
            link = self._links.get(fd)
            if link is None:
                if fd == self._wake_fd:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(fd)
                    self._take_arrivals()
            elif event & select.EPOLLOUT:
                self._flush(link)
            else:
                self._read(link)
        return bool(events)

    def _take_arrivals(self) -> None:
        while self._arrivals:
            link, leftover = self._arrivals.popleft()
            self._links[link.fileno()] = link
            self._epoll.register(link.fileno(), select.EPOLLIN)
            if leftover:
                try:
                    self._queue_frames(link, link.feed(leftover))
                except ProtocolError:
                    self._drop(link)

    def _read(self, link: Link) -> None:
        try:
            frames = link.read()
        except ProtocolError:
            frames = None
        if frames is None:
            self._drop(link)
        else:
            self._queue_frames(link, frames)

    def _queue_frames(self, link: Link, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.kind == INIT:
                self._begun = True
            if frame.kind == CALL and not self._begun:
                self._early.append((link, frame))
            else:
                self._queue.append((link, frame))

    def _drop(self, link: Link) -> None:
        # What the caller sent before it went is served all the same: a broadcast is not waited for.
        self._links.pop(link.fileno(), None)
        self._slow.discard(link)
        with contextlib.suppress(OSError):
            self._epoll.unregister(link.fileno())
        link.close()

    # -- answering

    def _answer(self, link: Link, parts: list[Any] | None) -> None:
        if parts and not link.send(parts) and not link.closed:
            self._slow.add(link)
            self._epoll.modify(link.fileno(), select.EPOLLOUT)

    def _flush(self, link: Link) -> None:
        if link.flush():
            self._slow.discard(link)
            self._epoll.modify(link.fileno(), select.EPOLLIN)

    def _before_user_code(self) -> None:
        for link in self._slow:
            link.keep_backlog()

    # -- serving

    def serve(self) -> None:
        """Serve messages on this thread until stopped."""
        self.thread = threading.get_ident()
        while True:
            while not self._queue and self._stop is None:
                self._collect(None)
            if self._stop is not None and not self._queue_more():
                self._finish_sync()
                return
            link, frame = self._queue.popleft()
            try:
                init = self._serve_one(link, frame)
            except ProtocolError:
                self._drop(link)
                continue
            if init is not None:
                self._serve_async(link, init)
                return

    def _serve_one(self, link: Link, frame: Frame) -> Execution | None:
        """Serve a message; returns an INIT that wants an event loop instead."""
        if frame.kind == CALL:
            self._step(link, self.executor.decode_call(frame))
        elif frame.kind == INIT:
            work = self.executor.decode_init(frame)
            if isinstance(work, Execution) and self.executor.is_async:
                return work
            self._step(link, work)
            self._init_done()
        elif frame.kind == STOP:
            self._cleanup()
            self._on_stop(link, frame)
        return None

    def _step(self, link: Link, work: Execution | list[Any] | None) -> None:
        if isinstance(work, Execution):
            if self._slow:
                self._before_user_code()
            self.running = work
            try:
                work = self.executor.run(work)
            finally:
                self.running = None
        self._answer(link, work)

    def _init_done(self) -> None:
        self._queue.extendleft(reversed(self._early))
        self._early.clear()

    def _queue_more(self) -> bool:
        """When stopping: look for messages that were sent before. Returns whether there is something to serve."""
        if not self._stop:
            return False
        while not self._queue and self._collect(0):
            pass  # a caller that has only just come, or a long message of which a part is there
        return bool(self._queue)

    def _on_stop(self, link: Link, frame: Frame) -> None:
        self.executor.stopped()
        self._answer(link, [pack_header(RESULT, [frame.header[0], None])])

    def _cleanup(self) -> None:
        work = self.executor.cleanup_execution()
        if work is not None:
            self.running = work
            try:
                self.executor.run(work)
            finally:
                self.running = None

    def _finish_sync(self) -> None:
        self._cleanup()
        self.executor.stopped()
        self._flush_all()

    def _flush_all(self) -> None:
        for link in tuple(self._slow):
            link.sock.settimeout(0.2)
            link.flush()

    # -- serving with an event loop

    def _serve_async(self, link: Link, init: Execution) -> None:
        import uvloop  # start-up: only actors with async endpoints pay for it

        loop = self._loop = uvloop.new_event_loop()
        try:
            loop.run_until_complete(self._serve_task(link, init))
        finally:
            with contextlib.suppress(Exception):
                loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            if threading.current_thread() is threading.main_thread():
                # The loop took the wake-up descriptor of signals; give it back to nobody.
                signal.set_wakeup_fd(-1)

    async def _serve_task(self, link: Link, init: Execution) -> None:
        import asyncio  # start-up: as above

        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._loop_exception)
        self.task = asyncio.current_task()
        arrived = asyncio.Event()

        reading = True

        def on_ready() -> None:
            nonlocal reading
            self._collect(0)
            arrived.set()
            if len(self._queue) >= _QUEUE_MAX:
                # What waits here takes memory; what waits in the sockets makes its callers wait.
                reading = False
                loop.remove_reader(self._epoll.fileno())

        self._step(link, init)
        self._init_done()
        loop.add_reader(self._epoll.fileno(), on_ready)
        try:
            while True:
                while not self._queue and self._stop is None:
                    arrived.clear()
                    await arrived.wait()
                if self._stop is not None and not self._queue_more():
                    break
                if not reading and len(self._queue) < _QUEUE_MAX // 2:
                    reading = True
                    loop.add_reader(self._epoll.fileno(), on_ready)
                link, frame = self._queue.popleft()
                try:
                    await self._serve_one_async(link, frame)
                except ProtocolError:
                    self._drop(link)
                # Let tasks that the actor started have their turn even if messages keep coming.
                await asyncio.sleep(0)
            await self._cleanup_async()
            self.executor.stopped()
            self._flush_all()
        finally:
            loop.remove_reader(self._epoll.fileno())
            for task in asyncio.all_tasks(loop) - {asyncio.current_task()}:
                task.cancel()

    async def _serve_one_async(self, link: Link, frame: Frame) -> None:
        executor = self.executor
        if frame.kind == CALL:
            work = executor.decode_call(frame)
            if isinstance(work, Execution) and executor.is_coroutine(work):
                self._before_user_code()
                self.running = work
                try:
                    self._answer(link, await executor.run_async(work))
                finally:
                    self.running = None
            else:
                self._step(link, work)
        elif frame.kind == INIT:
            self._step(link, executor.decode_init(frame))
            self._init_done()
        elif frame.kind == STOP:
            await self._cleanup_async()
            self._on_stop(link, frame)

    async def _cleanup_async(self) -> None:
        work = self.executor.cleanup_execution()
        if work is None:
            return
        method = work.method

        async def cleanup(exc: Any) -> None:
            result = method(exc)
            if hasattr(result, "__await__"):
                await result

        work.method = cleanup
        self.running = work
        try:
            await self.executor.run_async(work)
        finally:
            self.running = None

    def _loop_exception(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None:
            loop.default_exception_handler(context)
            return
        self.executor.report("a task", error)
