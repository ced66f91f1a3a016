"""The actor ``main``: its endpoint runs the script, on the main thread of the rank."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from meshrt.actor.ending import ActorEnds, CallInterrupt
from meshrt.actor.exiting import InterpreterExit
from meshrt.actor.script_signals import hold_signals, of_script
from meshrt.engine.launch.script import Script
from meshrt.transport.process import current_runtime, has_runtime
from meshrt.uncaught import show_uncaught

if TYPE_CHECKING:
    from meshrt.mesh.typed import Actor, endpoint
else:  # a rank need not load meshes for it
    from meshrt.actor.actor import Actor
    from meshrt.actor.endpoint import endpoint

__all__ = ["Main"]

#: Seconds in which a rank hears that its mesh is being stopped; those for which a failure is told later for that.
_STOPS = 1.0
_EXITS = 0.2


class Main(Actor):
    """A script, which runs once.

    Args:
        rank: This process is a rank of the program; else it has joined, and its signals are its own.
    """

    def __init__(self, *, rank: bool = False) -> None:
        self.exit = InterpreterExit()
        if rank:
            hold_signals()

    @endpoint
    def run(self, words: Sequence[str]) -> None:
        """Run a script as ``python WORDS`` does, to the end of its threads and of its functions of `atexit`.

        Raises:
            SystemExit: The script has ended with another status than 0; it ends the process.
            KeyboardInterrupt: It was interrupted, and not as the mesh is being stopped.
        """
        try:
            with of_script():
                _execute(words)
                self.exit.end_script()
        except SystemExit as end:
            if not _is_good(end.code) and not _is_stopped(_EXITS):
                raise
        except KeyboardInterrupt:
            if not _is_stopped(_STOPS):
                raise
        except Exception as error:
            bdb = sys.modules.get("bdb")
            if bdb is None or not isinstance(error, bdb.BdbQuit) or not _is_stopped(0.0):  # at a prompt
                raise


def _execute(words: Sequence[str]) -> None:
    """Run the script. Its `sys.excepthook` is called; in the place of Python's own there is the report."""
    try:
        Script(words).execute()
    except (SystemExit, ActorEnds, CallInterrupt) as end:
        if not isinstance(end, SystemExit) or not _is_good(end.code):
            raise
    except BaseException as error:
        if sys.excepthook is not sys.__excepthook__ and has_runtime():  # a forked child calls it as it ends
            show_uncaught(error)
        raise


def _is_good(code: object) -> bool:
    """Whether the status of a process that ends by `sys.exit(code)` is 0."""
    return code is None or (isinstance(code, int) and code & 0xFF == 0)


def _is_stopped(seconds: float) -> bool:
    """Whether the mesh is being stopped. The message that says so may come behind the signal that comes with it."""
    if not has_runtime():  # a forked child of the script, which ends on its own
        return False
    runtime, last = current_runtime(), time.monotonic() + seconds
    while not runtime.stopping and time.monotonic() < last:
        time.sleep(0.01)
    return runtime.stopping
