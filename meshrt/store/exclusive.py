"""A lock that a thread cannot take twice: who tries is told, instead of waiting for itself for ever."""

from __future__ import annotations

import threading
from types import TracebackType

from meshrt.errors import UsageError

__all__ = ["Exclusive"]


class Exclusive:
    """Signal handlers and finalizers of user code run wherever its thread happens to be, also inside of the store.

    Raises:
        UsageError: This thread has the lock.
    """

    __slots__ = ("_lock", "_owner")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0

    def __enter__(self) -> None:
        if not self.acquire():
            raise UsageError(
                "shared memory is used inside of another use of it on the same thread: by a signal handler, or by a "
                "__del__ that the garbage collector has run; do it later"
            )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()

    def acquire(self, *, blocking: bool = True) -> bool:
        """Take it. Returns False if this thread has it, or, if it may not wait, another one."""
        own = threading.get_ident()
        if self._owner == own or not self._lock.acquire(blocking=blocking):
            return False
        self._owner = own
        return True

    def release(self) -> None:
        """Give it back."""
        self._owner = 0
        self._lock.release()
