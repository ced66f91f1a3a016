"""What the runtime logs in the script, where the script has set up no logging: on its terminal, as all else of it.

Python would print such records bare, and nobody could tell whose words these are.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

__all__ = ["TerminalLog"]

_log = logging.getLogger("meshrt")


class TerminalLog(logging.Handler):
    """Writes records of the logger "meshrt" that no other handler would get.

    Args:
        announce: Writes a text of the runtime's own. Any thread.
    """

    def __init__(self, announce: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._announce = announce

    def begin(self) -> None:
        """Take what is logged from now on."""
        _log.addHandler(self)

    def end(self) -> None:
        """Leave it to Python again."""
        _log.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        if self._has_another():
            return
        text = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        self._announce(text)

    def _has_another(self) -> bool:
        """Whether the program has said what becomes of these records."""
        logger: logging.Logger | None = _log
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False
