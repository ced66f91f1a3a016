"""The root's loop, on the thread ``meshrt-root``: host agents, terminals, and the driver in the background.

::

    made --begin--> on_start, thread --> on_run, what was posted, --end--> on_end, closed
                                     `-> on_failure, closed: nothing is served any more

The parts of the root that run on it put functions into its lists when they are made. Each list is called in order.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

__all__ = ["RootLoop"]

#: Seconds for which its end is waited for.
_END = 5.0


class RootLoop:
    """The loop of one root. Any thread, unless said otherwise.

    Attributes:
        on_start: Called on the thread that begins the loop, before that runs.
        on_run: Awaited on the loop when it runs, before what was posted. What they raise is a failure of the loop.
        on_end: Called on the loop when it is to end.
        on_failure: Called on the loop's thread when the loop could not be made, or has failed; after that it is closed.
    """

    def __init__(self) -> None:
        self.on_start: list[Callable[[], None]] = []
        self.on_run: list[Callable[[], Awaitable[None]]] = []
        self.on_end: list[Callable[[], None]] = []
        self.on_failure: list[Callable[[], None]] = []
        self._lock = threading.RLock()
        self._running: asyncio.AbstractEventLoop | None = None
        #: What is to run first; None: the loop takes it at once.
        self._posted: list[Callable[[], None]] | None = []
        self._ended: asyncio.Event | None = None
        self._failure = ""
        self._linger = 0.0
        self._thread = threading.Thread(target=self._run, name="meshrt-root", daemon=True)

    @property
    def failure(self) -> str:
        """Why it has ended before its time; "": it has not."""
        return self._failure

    @property
    def has_begun(self) -> bool:
        """Whether it has run what was posted first."""
        return self._posted is None

    @property
    def running(self) -> asyncio.AbstractEventLoop:
        """The event loop. Raises RuntimeError before it runs."""
        if self._running is None:
            raise RuntimeError("the root's loop does not run yet")
        return self._running

    def is_this_thread(self) -> bool:
        """Whether the calling thread is the loop's, which must not block."""
        return threading.current_thread() is self._thread

    def begin(self) -> None:
        """Start the thread, once."""
        with self._lock:
            if not self._thread.is_alive():
                # Loaded here, while the agent starts in parallel: on another thread the interpreter may end first,
                # and then forbids the import.
                import uvloop  # noqa: F401 - start-up: as said

                for function in self.on_start:
                    function()
                self._thread.start()

    def begin_and_wait(self) -> None:
        """Start it, and wait until it runs. Not on its thread."""
        begun = threading.Event()
        self.begin()
        self.post(begun.set)
        begun.wait(_END)

    def post(self, function: Callable[[], None]) -> None:
        """Run ``function`` on the loop, in order."""
        with self._lock:
            if self._posted is not None:
                self._posted.append(function)
                return
        with contextlib.suppress(RuntimeError):  # the loop has been closed, and with it the object of the function
            self.running.call_soon_threadsafe(function)

    def post_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run ``function`` on the loop after ``seconds``."""
        self.post(lambda: self.call_later(seconds, function))

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """As `post_later`. On the loop."""
        self.running.call_later(seconds, function)

    def linger(self, seconds: float) -> None:
        """Keep it running for so many seconds after `on_end`, for data still to be written. On the loop."""
        self._linger = max(self._linger, seconds)

    def end(self) -> None:
        """End it, and wait for that. Any other thread."""
        if self._thread.is_alive():
            self.post(self._set_ended)
            self._thread.join(_END)

    def _set_ended(self) -> None:
        if self._ended is not None:
            self._ended.set()

    def _run(self) -> None:
        import uvloop  # start-up: see `begin`

        try:
            loop = uvloop.new_event_loop()
        except Exception as error:  # it takes some descriptors
            self._fail(error)
            return
        loop.slow_callback_duration = math.inf  # with `-X dev` of the script it would be told of this loop
        try:
            loop.run_until_complete(self._serve(loop))
        except BaseException as error:
            self._fail(error)
        finally:
            loop.close()

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio  # start-up: see `begin`

        self._running = loop
        self._ended = asyncio.Event()
        for run in self.on_run:
            await run()
        with self._lock:
            posted, self._posted = self._posted or [], None
        for function in posted:
            function()
        await self._ended.wait()
        for function in self.on_end:
            function()
        await asyncio.sleep(self._linger)

    def _fail(self, error: BaseException) -> None:
        """Nothing can be served any more: fail all waits."""
        why = f"the runtime failed in this process: {type(error).__name__}: {error}"
        logging.getLogger("meshrt").critical(why, exc_info=error)
        self._failure = why
        for function in self.on_failure:
            function()
