"""The actor ``main``: its endpoint runs the script, on the main thread of the rank."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

from meshrt.actor.held_interrupts import hold_interrupts, interruptible
from meshrt.engine.launch.script import Script, show
from meshrt.transport.process import current_runtime, has_runtime

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
        if rank:
            hold_interrupts()
            signal.signal(signal.SIGTERM, functools.partial(_on_term, signal.getsignal(signal.SIGTERM)))

    @endpoint
    def run(self, words: Sequence[str]) -> None:
        """Run a script as ``python WORDS`` does.

        Raises:
            SystemExit: The script has ended with another status than 0; it ends the process.
            KeyboardInterrupt: It was interrupted, and not as the mesh is being stopped.
        """
        try:
            with interruptible():
                Script(words).execute()
        except SystemExit as end:
            if end.code not in (None, 0) and not _is_stopped(_EXITS):
                raise
        except KeyboardInterrupt as error:
            if not _is_stopped(_STOPS):
                _call_hook(error)
                raise
        except Exception as error:
            bdb = sys.modules.get("bdb")
            if bdb is None or not isinstance(error, bdb.BdbQuit) or not _is_stopped(0.0):  # at a prompt
                _call_hook(error)
                raise


def _on_term(of_rank: object, number: int, frame: FrameType | None) -> None:
    """SIGTERM ends a script at once, as without a handler; where the mesh is being stopped it interrupts the script."""
    if not _is_stopped(_STOPS):
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    if callable(of_rank):
        of_rank(number, frame)


def _call_hook(error: BaseException) -> None:
    """Show an error as the script has asked for; without a hook of its own the report takes the place of Python's."""
    if sys.excepthook is not sys.__excepthook__:
        try:
            show(error)
        except Exception:
            print("Error in sys.excepthook:", file=sys.stderr)
            traceback.print_exc()


def _is_stopped(seconds: float) -> bool:
    """Whether the mesh is being stopped. The message that says so may come behind the signal that comes with it."""
    if not has_runtime():  # a forked child of the script, which ends on its own
        return False
    runtime, last = current_runtime(), time.monotonic() + seconds
    while not runtime.stopping and time.monotonic() < last:
        time.sleep(0.01)
    return runtime.stopping
