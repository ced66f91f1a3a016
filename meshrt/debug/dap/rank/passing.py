"""Rank side: the messages between an IDE and the engine of a rank, as far as the rank has to understand them.

It learns which threads are stopped, so that deadlines are suspended; whether a pause is requested, and when it is over;
and which evaluation keeps the rank from resuming, and has to be interrupted.

A pause: the engine stops a thread at its next line of Python. A main thread that waits in a call has none. The
debugger's signal interrupts it, and it stops in the signal handler. If no thread can stop, the user is told and may
withdraw the pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from meshrt.debug.dap.engine.evaluations import evaluations, interrupt
from meshrt.debug.dap.stops import Stops
from meshrt.debug.dap.wire import RESUMING, Message, arguments_of, response
from meshrt.errors import MeshError
from meshrt.hooks.services import RankServices

__all__ = ["PATIENCE", "Passing", "Pause"]

#: Seconds within which the engine has received what it is sent.
_ARRIVING = 0.1
#: Seconds that an evaluation has to end by itself when the rank has to resume.
PATIENCE = 1.0
#: Seconds after a request to pause at which blocked calls are interrupted, if no thread is stopped by then.
_KICKS = (0.1, 0.3, 1.0)


class Pause:
    """The pause of one IDE. On the pump's thread.

    Args:
        say: Called with a text for the user about what does not stop.
        clock: Returns seconds, as `time.monotonic` does.
    """

    def __init__(
        self, services: RankServices, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._services = services
        self._say = say
        self._clock = clock
        #: The pause is requested, and no thread has stopped for it yet.
        self.pending = False
        #: When blocked calls are interrupted next.
        self._kicks: list[float] = []
        self._said = False

    def ask(self) -> None:
        """Request a pause."""
        now = self._clock()
        self.pending = True
        self._kicks = [now + seconds for seconds in _KICKS]
        self._said = False

    def stopped(self) -> None:
        """A thread has stopped."""
        self.pending = False
        # One more interruption, as the pause may have stopped another thread: the main thread has to stop, too.
        self._kicks = self._kicks[:1]

    def over(self) -> None:
        """Stopped threads resume, or the pause is withdrawn."""
        self.pending = False
        self._kicks = []

    def until_kick(self) -> float | None:
        """Return the seconds until `kick_if_due` has something to do; None if it has nothing to do."""
        return max(0.0, self._kicks[0] - self._clock()) if self._kicks else None

    def kick_if_due(self, stopped: bool) -> None:
        """Interrupt the main thread if that is due.

        Args:
            stopped: Whether a thread is stopped.
        """
        if not self._kicks or self._kicks[0] > self._clock():
            return
        self._kicks.pop(0)
        try:
            self._services.signal_main()
        except MeshError as error:
            self._kicks = []
            self._say(f"a call that blocks cannot be paused: {error}")
            return
        if not self._kicks and not self._said and not stopped:
            self._said = True
            when = "at the next line of Python code, unless mesh c cancels the pause"
            self._say(f"not paused yet: {self._running()}; the rank stops {when}")

    def _running(self) -> str:
        calls = self._services.current_calls()
        if not calls:
            return "no endpoint is running"
        call = calls[-1]
        what = f"{call.endpoint}() of {call.actor}"
        first = next((actor.name for actor in self._services.actors()), call.actor)
        if call.actor != first:
            only = f"only the first actor of a rank ({first}) can be stopped while it waits"
            return f"{what} waits or is in C code, on its own thread; {only}"
        return f"{what} is in C code or in an await"


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
        interrupt(self._services, self._say, latest)

    def _make_way(self, number: int) -> None:
        """Interrupt what a thread evaluates if the rank was to resume and is still stopped. On the control thread."""
        if self._going == number:
            self.interrupt(evaluations.posted)
