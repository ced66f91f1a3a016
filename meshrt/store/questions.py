"""The questions of a process to a store: answers have numbers, so each thread that reads one passes it on.

A question: ``asked -> answered``, or ``-> given up`` where its thread was interrupted, or has waited long enough. That
thread has no lock while it waits, and may be interrupted, so each change here is one step.

A store asks other stores without waiting, and is told more than once of one question (`meshrt.store.hostlinks`): it
shares the table of numbers, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections import deque

from meshrt.store.messages import ToProcess
from meshrt.store.protocol import Incoming
from meshrt.transport.interrupts import called_by_python
from meshrt.transport.link import Connection
from meshrt.wire.pending import PendingTable

__all__ = ["Question", "Questions"]


class Question:
    """One of them: its thread waits, any thread answers."""

    __slots__ = ("_answers", "_poll", "_woken", "given_up", "heard", "number")

    def __init__(self, sock: Connection) -> None:
        #: In its answer; 0 until it has one.
        self.number = 0
        self.given_up = False
        #: When the store was last heard of in this matter (monotonic).
        self.heard = time.monotonic()
        self._answers: deque[Incoming[ToProcess]] = deque()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        #: For when another thread has read the answer: nothing is left at the socket then that would tell of it.
        self._woken = -1
        with contextlib.suppress(OSError):  # no descriptor is left: the thread looks when its time-out ends
            self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._poll.register(self._woken, select.POLLIN)

    @called_by_python
    def __del__(self) -> None:
        if self._woken >= 0:
            os.close(self._woken)  # not before: another thread may be at it

    def wait(self, seconds: float) -> bool:
        """Wait until there is something to read, or the answer is there. Returns whether that is so."""
        return bool(self._poll.poll(max(0.0, seconds) * 1000) or self._answers)

    def take(self) -> Incoming[ToProcess] | None:
        """Return the answer if it is there; once."""
        try:
            return self._answers.popleft()
        except IndexError:
            return None

    def answer(self, answer: Incoming[ToProcess]) -> bool:
        """The answer has come. Returns whether its thread waits for it."""
        self._answers.append(answer)
        if self._woken >= 0:
            os.eventfd_write(self._woken, 1)
        # A thread that gives up looks for an answer after that: one of the two finds both.
        return not self.given_up or self.take() is None


class Questions:
    """Those of one connection. Any thread; `ask`, `cancel` and `answer` with the lock of the connection.

    Attributes:
        owed: How many were not answered yet, whether or not a thread waits for that.
    """

    def __init__(self) -> None:
        self.owed = 0
        self._pending: PendingTable[Question] = PendingTable()

    def __len__(self) -> int:
        """Return how many threads wait."""
        return len(self._pending)

    def ask(self, sock: Connection) -> Question:
        """Return a new one, whose answer will come at a socket."""
        question = Question(sock)
        question.number = self._pending.add(question)
        self.owed += 1
        return question

    def cancel(self, question: Question) -> None:
        """It could not be asked: no answer to it will come."""
        self.owed -= 1
        self.close(question)

    def answer(self, number: int, answer: Incoming[ToProcess]) -> bool:
        """Pass an answer on to the thread that waits for it. Returns whether one does."""
        self.owed -= 1
        question = self._pending.find(number)
        return question is not None and question.answer(answer)

    def heard(self, number: int) -> None:
        """The store is at it."""
        question = self._pending.find(number)
        if question is not None:
            question.heard = time.monotonic()

    def close(self, question: Question) -> Incoming[ToProcess] | None:
        """Its thread waits no more. Returns the answer if it has come all the same."""
        question.given_up = True
        self._pending.remove(question.number)
        return question.take()
