"""Exceptions of tasks of the script that are never awaited.

asyncio logs such an exception when the task is dropped, and reports it nowhere else. The exception handler of the loop
does that, which belongs to the program; so the log records are watched. A program that has a handler of its own, or
switches that logging off, handles these exceptions itself.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

__all__ = ["Unawaited"]

_LOGGER = "asyncio"
_SAID = "exception was never retrieved"
#: How many errors are kept: each keeps the objects of its frames.
_KEPT = 10


class Unawaited:
    """The errors of such tasks.

    Args:
        counts: Whether an error is to be kept.
    """

    def __init__(self, counts: Callable[[BaseException], bool]) -> None:
        self._counts = counts
        #: The latest ones. Nothing is done with them at once: a task may be dropped on any thread, under any lock.
        self.errors: deque[BaseException] = deque(maxlen=_KEPT)

    def install(self) -> None:
        """Begin to watch."""
        logging.getLogger(_LOGGER).addFilter(self._look)

    def uninstall(self) -> None:
        """Undo `install`."""
        logging.getLogger(_LOGGER).removeFilter(self._look)

    def _look(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if error is not None and _SAID in str(record.msg) and self._counts(error):
            self.errors.append(error)
        return True
