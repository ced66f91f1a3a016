"""Source texts of the script's code, in processes of ranks on other machines; and how all of it is installed.

Code of ``__main__`` is shipped by value, and its file is not here; or another one of that name is. Tracebacks,
`inspect` and debuggers read texts through `linecache`, which therefore compares a file with the root's.
"""

from __future__ import annotations

import linecache
import os
import selectors
import sys
import time
from collections.abc import Callable
from typing import Any

from meshrt.files import RUNTIME_FILES, is_library_file
from meshrt.host.code.asking import Asker, Asks, NoAnswerError
from meshrt.host.code.finder import RootFinder, compared, may_ask, show_text
from meshrt.host.code.relay import CodeRelay, Kept, code_path
from meshrt.wire.code import digest_of_file
from meshrt.wire.control import Message
from meshrt.wire.handshake import Secret

__all__ = ["RootTexts", "serve_code"]

#: Seconds that a traceback waits for a text, and for which it is not asked for again after that.
_LIMIT = 5.0
#: ... and one of the runtime, which others wait for. The answer comes by a connection of its own.
_SHORT = 0.5
_update = linecache.updatecache


class RootTexts:
    """In the place of `linecache.updatecache`.

    Args:
        asker: Asks the root.
        agent_pid: The process that never asks.
    """

    def __init__(self, asker: Asks, agent_pid: int) -> None:
        self._asker = asker
        self._agent_pid = agent_pid
        #: Files for which there was no answer: until when they are not asked for again.
        self._silent: dict[str, float] = {}

    def update(self, filename: str, module_globals: dict[str, Any] | None = None) -> list[str]:
        """Return the lines of a file, and keep them. None where a file is here that was not compared, and cannot be."""
        if os.getpid() == self._agent_pid or not _is_of_script(filename):
            return _update(filename, module_globals)
        limit = _LIMIT if may_ask(self._agent_pid) else _SHORT
        if self._silent.get(filename, 0.0) < time.monotonic() and self._fetch(filename, limit):
            return linecache.getlines(filename)
        if filename not in compared and os.path.exists(filename):
            return []
        return _update(filename, module_globals)

    def _fetch(self, filename: str, limit: float) -> bool:
        """Have the root's text of a file shown, unless the same is here; returns whether that was done."""
        known = digest_of_file(filename)
        try:
            code = self._asker.ask("", filename, known, limit)
        except NoAnswerError:
            self._silent[filename] = time.monotonic() + _LIMIT
            return False
        if code.kind != "source" or code.data is None:
            compared.add(filename)  # the same; or the root has no such file, and this one is of this host alone
            return False
        show_text(filename, code.data)
        return True


def _is_of_script(filename: str) -> bool:
    return os.path.isabs(filename) and not filename.startswith(RUNTIME_FILES) and not is_library_file(filename)


def serve_code(
    selector: selectors.BaseSelector,
    directory: str,
    secret: Secret,
    host: str,
    tell: Callable[[Message], object],
    warn: Callable[[str], object],
    later: Callable[[float, Callable[[], None]], None],
) -> Kept:
    """Have the processes that this one forks fetch code from the root. In the agent; one thread, that of the selector.

    Args:
        directory: The runtime directory of the agent.
        host: The name of this host.
        tell: Sends a message to the root, which answers with a `meshrt.wire.code.Code`.
        warn: Takes a line for the user.
        later: Calls a function after so many seconds.
    Returns:
        What the answers are given to.
    """
    path, pid = code_path(directory, os.getpid()), os.getpid()
    kept = Kept(tell, warn, host)
    CodeRelay(selector, path, secret, kept, later)
    asker = Asker(path, secret)
    sys.meta_path.insert(0, RootFinder(asker, pid, host))
    linecache.updatecache = RootTexts(asker, pid).update
    return kept
