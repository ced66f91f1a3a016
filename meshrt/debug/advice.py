"""What is advised to a person who wants to stop an actor that runs."""

from __future__ import annotations

import sys

__all__ = ["FIRST_ONLY", "how_to_stop"]

#: Why an interrupt is refused, where it reaches only the main thread of a rank and event loops that wait. From Python
#: 3.12 on it reaches every thread.
FIRST_ONLY = "" if sys.version_info >= (3, 12) else "Python 3.11 interrupts the first actor of a rank only"


def how_to_stop(actor: str, ranks: str, *, first: bool, thread: bool = False) -> str:
    """Return what stops an actor that runs: a command.

    Args:
        actor: As the person writes it.
        ranks: A selection; "": all ranks.
        first: It is the first actor of its rank, or can be interrupted for another reason.
        thread: A thread of the user's own beside an actor is meant.
    """
    selection = f" {ranks}" if ranks else ""
    if not FIRST_ONLY or (first and not thread):
        return f"interrupt {actor}{selection}"
    if thread:
        return "breakpoint() in its code"
    return f"break {actor}.ENDPOINT{selection} (at its next call)"
