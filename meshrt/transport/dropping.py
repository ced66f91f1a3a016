"""Limits for a peer that does not read: how much may wait for it, and which events are left out then.

A stopped process reads nothing, while its peers go on. Three kinds of messages go up the control tree:

* **May be left out**, and are counted: events that repeat while the peer does not read (`DROPPABLE`). The first ones
  are kept, as they show the cause. Log records and printed lines, of which there are most, leave room for the others.
* **Only the latest counts**: whether a rank answers. It replaces the one before (`meshrt.host.rootlink`).
* **Never lost**: the end of a rank, answers, requests, and events that change a state. Each answers a request of the
  peer, or is sent once; where code could repeat it without end, its thread waits for the peer to read.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TypeGuard

from meshrt.wire.control import Message
from meshrt.wire.tree import Event

__all__ = ["DROPPABLE", "EVENT_BYTES", "LOG_BYTES", "QUESTION_BYTES", "WAIT_BYTES", "Dropped", "is_left_out"]

#: Events that may be left out, and their names in messages to the user.
DROPPABLE: Mapping[str, str] = {
    "unhandled": "exceptions that no caller waits for",
    "failure.record": "failure records",
    "log": "log records",
    "debug.output": "lines printed at breakpoints",
    "debug.missed": "interrupts that arrived too late",
}
#: Bytes that may wait for a peer before such events are left out.
EVENT_BYTES = 4 << 20
#: ... and before log records and printed lines are.
LOG_BYTES = EVENT_BYTES // 2
#: ... and before the sender of anything else waits.
WAIT_BYTES = 32 << 20
#: Bytes waiting for a peer above which no more questions are sent: those to a suspended process would pile up.
QUESTION_BYTES = 4 << 20
#: The most that is counted: a message holds numbers of 64 bits, and a rank may claim any of them.
_COUNT_MAX = (1 << 63) - 1


def is_left_out(message: Message, waiting: int) -> TypeGuard[Event]:
    """Whether a message is not sent to a peer for which ``waiting`` bytes wait."""
    if waiting <= LOG_BYTES or not isinstance(message, Event):
        return False
    return message.ev == "log" or (waiting > EVENT_BYTES and message.ev in DROPPABLE)


class Dropped:
    """How many events of each kind were left out. Any thread, signal handlers too."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._lock = threading.RLock()

    def __bool__(self) -> bool:
        return bool(self._counts)

    def note(self, event: str, count: int = 1) -> None:
        """Some were left out."""
        with self._lock:
            self._counts[event] = min(self._counts.get(event, 0) + count, _COUNT_MAX)

    def take(self) -> dict[str, int]:
        """Return how many since the last time."""
        with self._lock:
            counts, self._counts = self._counts, {}
        return counts
