"""``Endpoint.options``: what holds for every call that is made through one endpoint object."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable
from typing import TypeVar, cast

from meshrt.errors import LimitReached, UsageError
from meshrt.mesh.call import StreamCall
from meshrt.mesh.future import AnyFuture, Settled
from meshrt.mesh.sending import C
from meshrt.mesh.target import Target
from meshrt.transport.driver import Driver
from meshrt.transport.expiry import Expiring
from meshrt.transport.threads import may_wait

__all__ = ["CallOptions"]

X = TypeVar("X")


class CallOptions:
    """Any thread.

    Args:
        timeout: Seconds, > 0, after which a call that is not answered is cancelled; None: none.
        limit: How many calls may be unanswered at a time; None: any number.
    Raises:
        UsageError: One of them is invalid.
    """

    def __init__(self, timeout: float | None, limit: int | None) -> None:
        if timeout is not None and not (0 < timeout < math.inf):
            raise UsageError(f"timeout={timeout!r}: expected a positive, finite number of seconds")
        if limit is not None and (type(limit) is not int or limit < 1):
            raise UsageError(f"limit={limit!r}: expected a limit for unanswered calls, an integer of 1 or more")
        self._timeout = timeout
        self._limit = math.inf if limit is None else limit
        self._changed = threading.Lock()
        self._waiting: list[weakref.ref[Settled[None]]] = []
        self._unanswered: set[AnyFuture] = set()
        #: Calls that are being sent.
        self._sending = 0

    def send(
        self,
        send: Callable[[Target, str, X, dict[str, object], Callable[[Driver, Target, str], C]], C],
        target: Target,
        endpoint: str,
        args: X,
        kwargs: dict[str, object],
        kind: Callable[[Driver, Target, str], C],
    ) -> C:
        """Send a call by ``send``. On a thread it waits while the limit is reached.

        Raises:
            LimitReached: On an event loop, and the limit is reached.
        """
        driver = target.runtime().driver
        begun = driver.clock.now()
        self._enter(driver, f"{target.name}.{endpoint}")
        try:
            call = send(target, endpoint, args, kwargs, kind)
        except BaseException:
            self._left(None)
            raise
        # For its users a stream is no future; its last one is done when all are.
        last = cast(AnyFuture, list(call)[-1] if isinstance(call, StreamCall) else call)
        with self._changed:
            self._sending -= 1
            self._unanswered.add(last)
        last.when_done(lambda: self._left(last), background=False)
        if self._timeout is not None:
            driver.expiry.add(cast(Expiring, call), self._timeout, begun)
        return call

    def _enter(self, driver: Driver, endpoint: str) -> None:
        while True:
            with self._changed:
                if self._is_free():
                    self._sending += 1
                    return
            if may_wait():
                self._wait(driver).get()
                continue
            driver.poll_nowait()
            if not self._is_free():
                raise LimitReached(endpoint, int(self._limit))

    def _is_free(self) -> bool:
        return len(self._unanswered) + self._sending < self._limit

    def _wait(self, driver: Driver) -> Settled[None]:
        """Return a future that is done when a call may be sent, or another one was sent in its place."""
        room: Settled[None] = Settled(driver, "an answer to one of the calls that limit= allows")
        with self._changed:
            if self._is_free():
                room.resolve(None)
            else:
                self._waiting.append(weakref.ref(room))
        return room

    def _left(self, answered: AnyFuture | None) -> None:
        with self._changed:
            if answered is None:
                self._sending -= 1
            else:
                self._unanswered.discard(answered)
            waiting, self._waiting = self._waiting, []
        for reference in waiting:
            room = reference()  # None: it was interrupted
            if room is not None:
                room.resolve(None)

    async def wait_ready(self, driver: Driver) -> None:
        """Wait, on an event loop, until fewer calls are unanswered than the limit."""
        while not self._is_free():
            await self._wait(driver)
