"""Descriptors in reserve: a process whose table is full can still look up which processes there are.

A process that kills what is left must not take "no descriptor is free" for "there is nothing". So agent and root open a
few descriptors when they start, and close them for as long as such a look takes.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["RESERVED", "Reserve", "reserve"]

#: How many: what the removal of a directory, or a look at one process, has open at a time.
RESERVED = 4
_FULL = (errno.EMFILE, errno.ENFILE)

P = ParamSpec("P")
T = TypeVar("T")


class Reserve:
    """Empty until `fill`. Any thread."""

    def __init__(self) -> None:
        self._spare: list[int] = []
        self._lock = threading.RLock()

    def fill(self) -> None:
        """Open what is missing, as far as there is room."""
        with self._lock:
            try:
                while len(self._spare) < RESERVED:
                    self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError as error:
                if error.errno not in _FULL:
                    raise

    def release(self) -> None:
        """Close them: from now on there is room for others."""
        with self._lock:
            while self._spare:
                os.close(self._spare.pop())

    def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``function``; once more, with the reserve released, if it fails because no descriptor is free.

        In a process with several threads another one may take what is released.
        """
        try:
            return function(*args, **kwargs)
        except OSError as error:
            if error.errno not in _FULL:
                raise
        with self._lock:
            self.release()
            try:
                return function(*args, **kwargs)
            finally:
                self.fill()

    def forget(self) -> None:
        """Close them in a forked child, which has another lock."""
        self._lock = threading.RLock()
        self.release()


#: That of this process.
reserve = Reserve()
os.register_at_fork(after_in_child=reserve.forget)
