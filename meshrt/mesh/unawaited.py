"""What tasks of the script raise that nobody awaits.

asyncio logs it when such a task is dropped, and nobody else is told. That is done by the exception handler of the loop,
which is the program's own affair; so what is logged is looked at. A program that has a handler of its own, or does not
want that logged, decides itself what it means.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

__all__ = ["Unawaited"]

_LOGGER = "asyncio"
_SAID = "exception was never retrieved"
#: Errors that are kept: with them, what their frames hold.
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
        """Look from now on."""
        logging.getLogger(_LOGGER).addFilter(self._look)

    def uninstall(self) -> None:
        """Undo `install`."""
        logging.getLogger(_LOGGER).removeFilter(self._look)

    def _look(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if error is not None and _SAID in str(record.msg) and self._counts(error):
            self.errors.append(error)
        return True
