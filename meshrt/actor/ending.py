"""The exceptions that end user code, and SIGTERM while user code forks.

Until a forked child has put the system's handler back in place of the rank's, a SIGTERM would be lost in it: Python
forgets what arrived during a fork. So the signal waits until the hooks of the fork have run.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

__all__ = ["ActorEnds", "CallInterrupt", "StopInterrupt", "ends_actor", "hold_sigterm_in_forks"]

_forking = threading.local()


class StopInterrupt(SystemExit):
    """Raised in user code to end it when the rank ends."""


class ActorEnds(BaseException):
    """Raised in the message in which an actor ends itself.

    Args:
        reason: As given.
        failed: By ``abort``.
    """

    def __init__(self, reason: str, failed: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.failed = failed
        #: The number of the failure, once that is noted.
        self.number = ""


class CallInterrupt(BaseException):
    """Raised in user code to end a call that its caller has cancelled, with ``interrupt``."""


_CALL_ONLY = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit, BaseExceptionGroup, CallInterrupt)


def ends_actor(kind: type[BaseException]) -> bool:
    """Whether an exception of an endpoint ends its actor: a class of the program that is no `Exception`.

    It says that no handler is meant to go on. Those of Python are errors of the call.
    """
    cancelled = getattr(sys.modules.get("asyncio.exceptions"), "CancelledError", Exception)
    return not issubclass(kind, (*_CALL_ONLY, cancelled))


def hold_sigterm_in_forks() -> None:
    """Call it once, after the hooks that are to run first have been registered."""
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_release)


def _hold() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)
