"""Rank side: the messages between an IDE and the engine of a rank, as far as the rank has to understand them.

It learns which threads are stopped, so that deadlines are suspended; whether a pause is requested, and when it is over;
and which evaluation keeps the rank from resuming, and has to be interrupted.
"""

from __future__ import annotations

from collections.abc import Callable

from meshrt.debug.dap.engine.evaluations import Interruption, evaluations
from meshrt.debug.dap.rank.pause import Pause
from meshrt.debug.dap.stops import Stops
from meshrt.debug.dap.wire import RESUMING, Message, arguments_of, response
from meshrt.hooks.services import RankServices

__all__ = ["PATIENCE", "Passing"]

#: Seconds within which the engine has received what it is sent.
_ARRIVING = 0.1
#: Seconds that an evaluation has to end by itself when the rank has to resume.
PATIENCE = 1.0


class Passing:
    """On the pump's thread.

    Args:
        say: Called with a text for the user about what does not go as requested.
        send: Sends a message to the IDE.
        withdraw: Withdraws a pause from the engine.
        leaving: Called when the engine is about to answer the goodbye of the IDE.
    """

    def __init__(
        self,
        services: RankServices,
        say: Callable[[str], None],
        send: Callable[[Message], None],
        withdraw: Callable[[], None],
        leaving: Callable[[], None],
    ) -> None:
        self._services = services
        self._say = say
        self._send = send
        self._withdraw = withdraw
        self._leaving = leaving
        self.pause = Pause(services, say)
        self._stops = Stops()
        #: The ``stopped`` events from before this IDE came: only the IDE before it was told.
        self._unheard: list[Message] = []
        #: Numbers of ``disconnect`` requests, and of ``configurationDone`` requests.
        self._goodbyes: set[int] = set()
        self._configured: set[int] = set()
        #: The number of a request to resume threads, until they resume; 0 for none.
        self._going = 0
        #: The IDE has said goodbye.
        self.over = False

    @property
    def stopped(self) -> bool:
        """Whether a thread is stopped."""
        return bool(self._stops)

    def another_ide(self) -> None:
        """Another IDE takes over: the messages from here on are its messages."""
        self._unheard = self._stops.events()
        self._configured.clear()

    def request(self, message: Message) -> bool:
        """Take a request of the IDE. Returns True if it is answered here, as the engine would not answer it."""
        command, number = message["command"], message["seq"]
        if command == "continue" and not self._stops:
            # The engine would answer only after a thread has stopped and resumed.
            if self.pause.pending:
                self._withdraw()
            self.pause.over()
            self._send(response(message, {"allThreadsContinued": True}))
            return True
        if command == "pause":
            self.pause.ask()
            if self._stops.has_stopped(arguments_of(message).get("threadId")):
                # The thread is stopped already, so the pause is meant for the evaluation that keeps it busy.
                self.pause.stopped()
                self._services.call_later(_ARRIVING, lambda: self.interrupt(evaluations.posted))
                self._send(response(message))
                return True
            latest = evaluations.posted
            self._services.call_later(PATIENCE, lambda: self.interrupt(latest))
        elif command in RESUMING:
            self.pause.over()
            self._going = number
            self._services.call_later(PATIENCE, lambda: self._make_way(number))
        elif command == "disconnect":
            self._goodbyes.add(number)
        elif command == "configurationDone":
            self._configured.add(number)
        self._stops.asked(message)
        return False

    def said(self, message: Message) -> list[Message]:
        """Take a message of the engine. Returns the messages to send after it: stops from before the IDE came."""
        self._stops.said(message)
        if message["type"] == "event":
            if message["event"] in ("stopped", "continued"):
                self._going = 0
            if message["event"] == "stopped":
                self.pause.stopped()
        elif message["type"] == "response":
            number = message["request_seq"]
            if number == self._going and not message["success"]:
                self._going = 0  # nothing has to resume, so nothing has to be interrupted
            if number in self._goodbyes:
                self.over = True
                # Before the answer: the IDE may attach again as soon as it has it, as it does to restart a session.
                self._leaving()
            if number in self._configured:
                self._configured.discard(number)
                unheard, self._unheard = self._unheard, []
                return [stop for stop in self._stops.events() if any(stop is each for each in unheard)]
        return []

    def interrupt(self, latest: int) -> None:
        """Interrupt the evaluations of an IDE, up to number ``latest``. Any thread."""
        Interruption(self._services, self._say, "what is being evaluated is interrupted, as it has not ended", latest)

    def _make_way(self, number: int) -> None:
        """Interrupt what a thread evaluates if the rank was to resume and is still stopped. On the control thread."""
        if self._going == number:
            self.interrupt(evaluations.posted)
