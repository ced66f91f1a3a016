"""What a process has asked a store: answers are told apart by number, so whichever thread reads one passes it on.

A question: ``asked -> answered``, or ``-> given up`` by whoever was interrupted, or has waited long enough. Who asks
has no lock while it waits, and may be interrupted, so each change here is one step.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import time
from collections import deque
from typing import Any

from meshrt.transport.interrupts import called_by_python

__all__ = ["Question", "Questions"]


class Question:
    """One of them: its thread waits, any thread answers."""

    __slots__ = ("_answers", "_poll", "_woken", "given_up", "heard", "number")

    def __init__(self, number: int, sock: socket.socket) -> None:
        self.number = number
        self.given_up = False
        #: When the store was last heard of in this matter (monotonic).
        self.heard = time.monotonic()
        self._answers: deque[dict[str, Any]] = deque()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        #: For when another thread has read the answer: nothing is left at the socket then that would tell of it.
        self._woken = -1
        with contextlib.suppress(OSError):  # no descriptor is left: whoever waits looks when its time-out ends
            self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._poll.register(self._woken, select.POLLIN)

    @called_by_python
    def __del__(self) -> None:
        if self._woken >= 0:
            os.close(self._woken)  # not before: another thread may be at it

    def wait(self, seconds: float) -> bool:
        """Wait until there is something to read, or the answer is there. Returns whether that is so."""
        return bool(self._poll.poll(max(0.0, seconds) * 1000) or self._answers)

    def take(self) -> dict[str, Any] | None:
        """Return the answer if it is there; once."""
        try:
            return self._answers.popleft()
        except IndexError:
            return None

    def answer(self, message: dict[str, Any]) -> bool:
        """The answer has come. Returns whether there is somebody for it."""
        self._answers.append(message)
        if self._woken >= 0:
            os.eventfd_write(self._woken, 1)
        # Who gives up looks for an answer after that: one of the two finds both.
        return not self.given_up or self.take() is None


class Questions:
    """Those of one connection. Any thread; `ask`, `unasked` and `answer` with the lock of the connection.

    Attributes:
        owed: How many were not answered yet, whether or not somebody waits for that.
    """

    def __init__(self) -> None:
        self.owed = 0
        self._numbers = itertools.count(1)
        self._open: dict[int, Question] = {}

    def ask(self, sock: socket.socket) -> Question:
        """Return a new one, whose answer will come at a socket."""
        question = Question(next(self._numbers), sock)
        self._open[question.number] = question
        self.owed += 1
        return question

    def unasked(self, question: Question) -> None:
        """It could not be asked: no answer to it will come."""
        self.owed -= 1
        self.close(question)

    def answer(self, message: dict[str, Any]) -> bool:
        """Pass an answer on to whoever waits for it. Returns whether there is somebody."""
        self.owed -= 1
        question = self._open.get(message["n"])
        return question is not None and question.answer(message)

    def heard(self, number: int) -> None:
        """The store is at it."""
        question = self._open.get(number)
        if question is not None:
            question.heard = time.monotonic()

    def close(self, question: Question) -> dict[str, Any] | None:
        """Nobody waits for it any more. Returns the answer if it has come all the same."""
        question.given_up = True
        self._open.pop(question.number, None)
        return question.take()
