"""Rank side: what passes between an IDE and the engine of a rank, as far as the rank has to know what it says.

Which threads stand, so that deadlines stand still too; whether a pause is asked for, and when it is over; what is in
the way of going on, and is to end.
"""

from __future__ import annotations

from collections.abc import Callable

from meshrt.debug.dap.engine.evaluations import Interruption, evaluations
from meshrt.debug.dap.rank.pause import Pause
from meshrt.debug.dap.standing import Standing
from meshrt.debug.dap.wire import RESUMING, Message, response
from meshrt.hooks.services import RankServices

__all__ = ["PATIENCE", "Passing"]

#: Seconds within which the engine has taken what it is sent.
_ARRIVING = 0.1
#: Seconds that what is evaluated has to end by itself when the rank is to go on.
PATIENCE = 1.0


class Passing:
    """On the pump's thread.

    Args:
        say: Told, for a person, what does not go as it was asked for.
        send: Sends a message to the IDE.
        withdraw: Has the engine stop nothing any more for a pause.
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
        self._standing = Standing()
        #: What stood when the IDE came: the one before it was told.
        self._unheard: list[Message] = []
        #: Numbers of requests that say goodbye, and that end what an IDE sets at first.
        self._goodbyes: set[int] = set()
        self._configured: set[int] = set()
        #: The number of a request that is to let threads go on, until they do.
        self._going = 0
        #: The IDE has said goodbye.
        self.over = False

    @property
    def standing(self) -> bool:
        """Whether a thread stands."""
        return bool(self._standing)

    def another_ide(self) -> None:
        """What is said from here on is another IDE's."""
        self._unheard = self._standing.events()
        self._configured.clear()

    def request(self, message: Message) -> bool:
        """The IDE asks for something. Returns whether it is answered here: the engine would not do so."""
        command, number = message["command"], message["seq"]
        if command == "continue" and not self._standing:
            # The engine would answer when something has stood and goes on.
            if self.pause.pending:
                self._withdraw()
            self.pause.over()
            self._send(response(message, {"allThreadsContinued": True}))
            return True
        if command == "pause":
            self.pause.ask()
            if self._standing.stands((message.get("arguments") or {}).get("threadId")):
                # It can only mean what keeps the rank from answering.
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
        self._standing.asked(message)
        return False

    def said(self, message: Message) -> list[Message]:
        """The engine says something. Returns what the IDE is to be told behind it: what stood before it came."""
        self._standing.said(message)
        if message["type"] == "event":
            if message["event"] in ("stopped", "continued"):
                self._going = 0
            if message["event"] == "stopped":
                self.pause.stopped()
        elif message["type"] == "response":
            number = message["request_seq"]
            if number == self._going and not message["success"]:
                self._going = 0  # nothing is to go on: nothing is in the way of that
            if number in self._goodbyes:
                self.over = True
                # Before the answer: the IDE may come back as soon as it has that, as it does to restart a session.
                self._leaving()
            if number in self._configured:
                self._configured.discard(number)
                unheard, self._unheard = self._unheard, []
                return [stop for stop in self._standing.events() if any(stop is each for each in unheard)]
        return []

    def interrupt(self, latest: int) -> None:
        """Interrupt what is evaluated for an IDE, up to the evaluation of that number. Any thread."""
        Interruption(self._services, self._say, "what is being evaluated is interrupted, as it has not ended", latest)

    def _make_way(self, number: int) -> None:
        """A person has let the rank go on, and it still stands: it is at work on something. On the control thread."""
        if self._going == number:
            self.interrupt(evaluations.posted)
