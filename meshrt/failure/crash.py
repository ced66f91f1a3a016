"""A script that a signal has killed: its parent tells the launcher."""

from __future__ import annotations

import os
import sys
import time

from meshrt.errors import describe_exit, user_stack
from meshrt.failure.causes import is_consequence
from meshrt.failure.record import FailureRecord
from meshrt.failure.report import details
from meshrt.failure.telling import tell
from meshrt.failure.workers import NOTED_WITHIN, Word
from meshrt.hooks.fate import Fate
from meshrt.transport.launcher import launcher_file

__all__ = ["tell_crash"]


def tell_crash(pid: int, number: int, stack: str, hint: str) -> None:
    """Print the stack of a crash, and tell the launcher, if there is one.

    Args:
        pid: Of the script.
        number: Of the signal.
        stack: What faulthandler has written; "": nothing.
        hint: What else is known; "": nothing.
    """
    if stack:
        print(user_stack(stack), file=sys.stderr, flush=True)
    path = launcher_file()
    if path is None or path.exists():
        return  # the script has told of an error itself, which came before
    now = time.monotonic_ns()
    record = FailureRecord(
        kind="signal", blame="platform" if hint else "worker", host=os.uname().nodename, pid=pid,
        fate=Fate("died", signal=number, hint=hint, stack=stack), low=now, high=now, time=time.time_ns() / 1e9,
    )  # fmt: skip
    headline = f"the script (pid {pid}) {describe_exit(None, number)}" + (f" ({hint})" if hint else "")
    word = Word(
        evidence="inferred" if is_consequence(record) else "own",
        low=now - NOTED_WITHIN, high=now, second=int(record.time), headline=headline,
    )  # fmt: skip
    try:
        tell(word, "\n".join([headline, *details(record, "", "", full=True)]), {"records": [record.to_plain()]})
    except OSError as error:
        print(f"meshrt: the failure could not be reported to the launcher: {error.strerror}", file=sys.stderr)
