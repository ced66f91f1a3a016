"""The program of this process: begun by its first mesh, ended at exit or by hand. One root at a time."""

from __future__ import annotations

import atexit
import contextlib
import signal
import sys
import threading
from typing import TYPE_CHECKING

from meshrt.actor.errors import why_ended
from meshrt.errors import ShutdownError, one_line
from meshrt.mesh.block import check_grace
from meshrt.mesh.status import die_by
from meshrt.wire.codec import text_of

if TYPE_CHECKING:
    from meshrt.mesh.root import Root

__all__ = ["end_first", "running_root", "shutdown_context", "start_root"]

#: Characters of the error that ended the main thread.
_WHY = 300

_root: Root | None = None
_root_lock = threading.Lock()
#: The interpreter runs its exit handlers, and ours has run: a mesh that starts now would not be ended.
_ended = False


def start_root() -> Root:
    """Return the root of this process; the first call starts it. Any thread.

    Raises:
        ShutdownError: The end of the program.
        UsageError, OSError: As `Root`.
    """
    global _root
    with _root_lock:
        if _root is None or not _root.run.is_here:
            if _ended or sys.is_finalizing():
                raise ShutdownError("the interpreter is ending: no new mesh can be started")
            from meshrt.mesh.root import Root  # start-up: ranks, which import `shutdown_context`, have no root

            first = _root is None
            _root = Root(_forget)
            if first:
                atexit.register(_at_exit)
                _register_main_end()
        return _root


def running_root() -> Root | None:
    """Return the root of this process if there is one. Any thread."""
    root = _root
    return root if root is not None and root.run.is_here else None


def shutdown_context(grace: float = 5.0) -> None:
    """Stop every mesh and end the agents and threads of meshrt. May be called twice; runs by itself at exit.

    Args:
        grace: Seconds that the ranks may take to finish what was sent to them.
    Raises:
        UsageError: The grace is invalid.
    """
    check_grace(grace)
    _shutdown(grace, "")


def _shutdown(grace: float, why: str) -> None:
    """End the root, if there is one; a later mesh starts a new one. ``why``: the error that is the reason."""
    root = _root
    if root is not None:
        root.ending.shutdown(grace, why)


def _forget(root: Root) -> None:
    """Only now may another one start: each would replace the other's runtime of the process."""
    global _root
    with _root_lock:
        if _root is root:
            _root = None


def _register_main_end() -> None:
    """Have `_at_main_end` called when the main thread has ended, before Python waits for other threads.

    `atexit` calls its functions after that. This hook is private to Python's library (``concurrent.futures`` uses it
    for the same reason); where it does not exist, or it is too late, nothing is called.
    """
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        with contextlib.suppress(RuntimeError):
            register(_at_main_end)


def end_first() -> None:
    """Have the program end before what was registered with `atexit` since it has begun: its agents may need that."""
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)


def _at_main_end() -> None:
    """The main thread has ended: Python waits for all others, and calls `_at_exit` behind that."""
    error = getattr(sys, "last_value", None)
    if _root is not None and _root.run.is_here and error is not None and not hasattr(sys, "ps1"):
        _root.ending.main_ended(one_line(f"{type(error).__name__}: {text_of(error)}", _WHY))


def _at_exit() -> None:
    global _ended
    _ended = True
    if _root is not None:
        _root.ending.exits()
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    _shutdown(0.5 if error is None else 0.0, why_ended(error))
    # CPython has one flag per process: an unhandled Ctrl-C has ended the script. Each string that is executed on any
    # thread clears it: `@dataclass` executes one, in modules that are loaded at the end. A shell's loop would go on
    # then. An interactive interpreter ends by itself, whatever its last error was.
    if isinstance(error, KeyboardInterrupt) and not hasattr(sys, "ps1"):
        die_by(signal.SIGINT)
