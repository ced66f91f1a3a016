"""The id of the next program of this process: its first agent may be started, and marked with it, before the root."""

from __future__ import annotations

import os

__all__ = ["next_run_id", "take_run_id"]

_next = ""


def next_run_id() -> str:
    """Return the id that the next program will have."""
    global _next
    _next = _next or os.urandom(4).hex()
    return _next


def take_run_id() -> str:
    """Return it, for the program that has it from now on."""
    global _next
    taken, _next = next_run_id(), ""
    return taken


def _in_forked_child() -> None:
    """Each process has programs of its own."""
    global _next
    _next = ""


os.register_at_fork(after_in_child=_in_forked_child)
