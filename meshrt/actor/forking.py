"""No SIGTERM while user code forks.

Until a forked child has put the system's handler back in place of the rank's, a SIGTERM would be lost in it: Python
forgets what arrived during a fork. So the signal waits until the hooks of the fork have run.
"""

from __future__ import annotations

import os
import signal
import threading

__all__ = ["hold_sigterm_in_forks"]

_forking = threading.local()


def hold_sigterm_in_forks() -> None:
    """Call it once, after the hooks that are to run first have been registered."""
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_release)


def _hold() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)
