"""What a process says to a store without waiting for anything: it is noted, and sent by whoever has the connection.

Finalizers note what they have to say: they run wherever the collector happens to be. So each change here is one step.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import Any

from meshrt.store.lease import Loan
from meshrt.store.protocol import DescriptorStream

__all__ = ["Unsaid"]


class Unsaid:
    """What is to be said to one store. Any thread, at any time; only `move_to` has the lock of the connection."""

    def __init__(self) -> None:
        #: An operation, and a segment or (of "grant") bytes.
        self._numbers: deque[tuple[str, int]] = deque()
        #: Whole messages.
        self._messages: deque[dict[str, Any]] = deque()

    def __bool__(self) -> bool:
        return bool(self._numbers or self._messages)

    def let_go(self, segment: int) -> None:
        """This process holds a segment once less."""
        self._numbers.append(("let_go", segment))

    def withdraw(self, segment: int) -> None:
        """What this process has lent was not sent."""
        self._numbers.append(("withdraw", segment))

    def give_back(self, size: int) -> None:
        """This process has so many bytes of memory less."""
        self._numbers.append(("grant", size))

    def recall(self, segments: Sequence[int], to: Sequence[Any]) -> None:
        """What was brought to other hosts was not sent (`meshrt.store.deliveries`)."""
        self._messages.append({"t": "recall", "segments": segments, "to": to})

    def take_back(self, segments: Sequence[int], pids: Sequence[int]) -> None:
        """What these processes were given, or lent, was not sent."""
        self._messages.append({"t": "take_back", "segments": segments, "to": pids})

    def undo(self, answer: dict[str, Any]) -> None:
        """Nobody waits for an answer any more: close what came with it, and give back what it gives."""
        for descriptor in answer["descriptors"]:
            os.close(descriptor)
        if answer.get("granted"):
            self.give_back(answer["granted"])
        if "taken" in answer:
            self.let_go(answer["taken"])
        if "there" in answer:
            segments = {Loan(*loan).segment for loans in answer["there"] for loan in loans}
            self.recall(list(segments), answer["to"])

    def move_to(self, stream: DescriptorStream) -> None:
        """Queue all of it."""
        found: dict[str, list[int]] = {}
        while self._numbers:
            operation, number = self._numbers.popleft()
            found.setdefault(operation, []).append(number)
        granted = sum(found.pop("grant", ()))
        if granted:
            stream.queue({"t": "grant", "n": 0, "size": -granted})
        for operation, segments in found.items():
            stream.queue({"t": operation, "segments": segments})
        while self._messages:
            stream.queue(self._messages.popleft())
