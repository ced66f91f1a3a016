"""Messages of a process to a store without a wait: they are queued, and sent by the thread with the connection.

Finalizers queue messages too, and may run at any place of any thread. So each change here is one step.
"""

from __future__ import annotations

from collections import deque

from meshrt.store.messages import (
    Delivered,
    GiveBack,
    Granted,
    Imported,
    LetGo,
    Recall,
    TakeBack,
    Taken,
    ToProcess,
    Withdraw,
)
from meshrt.store.protocol import DescriptorStream, Incoming, close_descriptors

__all__ = ["Outbox", "Unanswered"]


#: Segments in one message: a store takes no list of 65,536, and no message of 1 MiB.
_MOST = 10_000

Unanswered = Recall | TakeBack | Withdraw | GiveBack


class Outbox:
    """The messages for one store. Any thread, at any time; only `move_to` has the lock of the connection."""

    def __init__(self) -> None:
        #: Segments.
        self._let_go: deque[int] = deque()
        self._messages: deque[Unanswered] = deque()

    def __bool__(self) -> bool:
        return bool(self._let_go or self._messages)

    def let_go(self, segment: int) -> None:
        """This process holds a segment once less: there may be thousands at a time, which go in one message."""
        self._let_go.append(segment)

    def add(self, message: Unanswered) -> None:
        """Add another message."""
        self._messages.append(message)

    def undo(self, answer: Incoming[ToProcess]) -> None:
        """An answer has come too late: close what came with it, and give back what it gives."""
        close_descriptors(answer.descriptors)
        match answer.message:
            case Granted(size=size):
                self.add(GiveBack(size))
            case Taken(segment=segment):
                self.let_go(segment)
            case Imported(loan=loan):
                self.let_go(loan.segment)
            case Delivered(to=to, there=there) if to:
                self.add(Recall(list({loan.segment for loans in there for loan in loans}), to))

    def move_to(self, stream: DescriptorStream) -> None:
        """Queue all of it."""
        while self._let_go:
            count = min(len(self._let_go), _MOST)  # other threads only add
            stream.queue(LetGo([self._let_go.popleft() for _ in range(count)]))
        while self._messages:
            stream.queue(self._messages.popleft())
