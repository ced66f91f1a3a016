"""A lock that a thread cannot take twice: the second try is an error, instead of a deadlock.

Ctrl-C is delayed while the main thread has the lock: it could be raised between taking the lock and noting that it is
taken, or just before the release, and no thread could ever take it again. A thread that waits under the lock checks for
Ctrl-C itself (`pause`).
"""

from __future__ import annotations

import threading

from meshrt.errors import UsageError
from meshrt.transport.interrupts import Shield, installed

__all__ = ["Exclusive"]

#: Seconds that Ctrl-C may wait where another thread has the lock.
_PAUSE = 0.05


class Exclusive:
    """Signal handlers and finalizers of user code run wherever its thread happens to be, also inside of the store.

    Raises:
        UsageError: This thread has the lock.
    """

    __slots__ = ("_lock", "_owner", "_shield")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._shield: Shield | None = None

    def __enter__(self) -> None:
        if not self.acquire():
            raise UsageError(
                "shared memory is used during another use of it on the same thread: in a signal handler, or in a "
                "__del__ that the garbage collector has run; do it later"
            )

    def __exit__(self, *_error: object) -> None:
        self.release()

    def acquire(self, *, blocking: bool = True) -> bool:
        """Take it. Returns False if this thread has it, or, if it may not wait, another one."""
        own = threading.get_ident()
        if self._owner == own:
            return False
        shield = installed()
        shield.close()
        try:
            taken = self._lock.acquire(blocking=False)
            while blocking and not taken:
                taken = self._lock.acquire(timeout=_PAUSE)
                if not taken:
                    shield.check()
        except BaseException:
            shield.open()
            raise
        if not taken:
            shield.open()
            return False
        self._owner, self._shield = own, shield
        return True

    def pause(self) -> None:
        """Raise the KeyboardInterrupt that has come while this thread has the lock, and waits for something."""
        if self._shield is not None:
            self._shield.check()

    def release(self) -> None:
        """Give it back."""
        shield, self._shield, self._owner = self._shield, None, 0
        self._lock.release()
        if shield is not None:
            shield.open()
