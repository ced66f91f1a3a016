"""Root side: the debugger opens by itself on the program's own terminal, while the script waits for its ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from meshrt.debug.broker.notices import HOW_TO
from meshrt.debug.broker.sessions import SessionTable
from meshrt.debug.protocol import STOPPED
from meshrt.hooks.plugins import SWITCH_VALUES
from meshrt.hooks.services import RootServices, Waited

__all__ = ["AutoEntry"]

_RETRY_SECONDS = 0.2


class AutoEntry:
    """Opens the prompt in the script's main thread when ranks are stopped and that thread waits in ``get()``.

    It does not open if a terminal of the debugger is open already, if the program has no terminal, or with
    ``MESHRT_DEBUG_AUTO=0``. If a person leaves it with ranks still stopped, it opens again only after further stops.

    Args:
        watched: Whether a person is at a terminal of the debugger.
    """

    def __init__(self, services: RootServices, table: SessionTable, watched: Callable[[], bool]) -> None:
        self._services = services
        self._table = table
        self._watched = watched
        self._wanted = False
        self._trying = False
        self._open = False

    def wave(self) -> None:
        """Take in that ranks have stopped. On the root's loop."""
        self._wanted = True
        self._try()

    def left(self) -> None:
        """Take in that a prompt on the program's own terminal was left: ranks stopped by now do not open it again."""
        self._wanted = False

    def _try(self) -> None:
        self._trying = False
        if not self._wanted or self._open or not self._table.count(STOPPED) or not _at_terminal():
            return
        if self._watched():
            self._again()
            return
        self._open = True
        if not self._services.interject(self._enter):
            self._open = False
            self._again()

    def _again(self) -> None:
        # The script may not have reached the get() in which it will wait.
        if not self._trying:
            self._trying = True
            self._services.call_later(_RETRY_SECONDS, self._try)

    def _enter(self, waited: Waited) -> None:
        """Open the prompt. On the script's main thread."""
        try:
            # The prompt may have been meant for an earlier get().
            if self._wanted and self._table.count(STOPPED):
                self._wanted = False
                from meshrt.debug.prompt.entry import enter_here  # start-up: loads all that a terminal needs

                enter_here(waited)
        except Exception as error:  # an error of the debugger must not reach the script
            self._services.announce(f"the debugger could not be opened here: {type(error).__name__}: {error}; {HOW_TO}")
        finally:
            self._open = False


def _at_terminal() -> bool:
    if SWITCH_VALUES.get(os.environ.get("MESHRT_DEBUG_AUTO", "")) is False:
        return False
    try:
        if sys.stdin is None or sys.stdout is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
            return False
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()  # in the background, reading would stop the program
    except (ValueError, OSError):  # closed, or not the terminal that controls this program
        return False
