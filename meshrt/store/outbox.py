"""Messages of a process to a store without a wait: they are queued, and sent by the thread with the connection.

Finalizers queue messages too, and may run at any place of any thread. So each change here is one step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from meshrt.store.messages import (
    Delivered,
    GiveBack,
    Granted,
    Host,
    Imported,
    LetGo,
    Recall,
    TakeBack,
    Taken,
    ToProcess,
    Withdraw,
)
from meshrt.store.protocol import DescriptorStream, Incoming, close_descriptors

__all__ = ["Outbox"]


class Outbox:
    """The messages for one store. Any thread, at any time; only `move_to` has the lock of the connection."""

    def __init__(self) -> None:
        #: Segments.
        self._let_go: deque[int] = deque()
        self._withdrawn: deque[int] = deque()
        #: Bytes.
        self._given_back: deque[int] = deque()
        self._messages: deque[Recall | TakeBack] = deque()

    def __bool__(self) -> bool:
        return bool(self._let_go or self._withdrawn or self._given_back or self._messages)

    def let_go(self, segment: int) -> None:
        """This process holds a segment once less."""
        self._let_go.append(segment)

    def withdraw(self, segment: int) -> None:
        """What this process has shared was not sent."""
        self._withdrawn.append(segment)

    def give_back(self, size: int) -> None:
        """This process has so many bytes of memory less."""
        self._given_back.append(size)

    def recall(self, segments: Sequence[int], to: Sequence[Host]) -> None:
        """What was delivered to other hosts was not sent (`meshrt.store.deliveries`)."""
        self._messages.append(Recall(segments, to))

    def take_back(self, segments: Sequence[int], pids: Sequence[int]) -> None:
        """What these processes were given was not sent."""
        self._messages.append(TakeBack(segments, pids))

    def undo(self, answer: Incoming[ToProcess]) -> None:
        """An answer has come too late: close what came with it, and give back what it gives."""
        close_descriptors(answer.descriptors)
        match answer.message:
            case Granted(size=size):
                self.give_back(size)
            case Taken(segment=segment):
                self.let_go(segment)
            case Imported(loan=loan):
                self.let_go(loan.segment)
            case Delivered(to=to, there=there) if to:
                self.recall(list({loan.segment for loans in there for loan in loans}), to)

    def move_to(self, stream: DescriptorStream) -> None:
        """Queue all of it."""
        given_back = sum(_taken_from(self._given_back))
        if given_back:
            stream.queue(GiveBack(given_back))
        if self._let_go:
            stream.queue(LetGo(_taken_from(self._let_go)))
        if self._withdrawn:
            stream.queue(Withdraw(_taken_from(self._withdrawn)))
        while self._messages:
            stream.queue(self._messages.popleft())


def _taken_from(numbers: deque[int]) -> list[int]:
    found = []
    while numbers:
        found.append(numbers.popleft())
    return found
