"""One connection to a debug adapter, as an IDE has it: requests, events in their order, and what the adapter asks.

Written against the specification of the Debug Adapter Protocol alone. It shares no code with the adapters that it
tests, and it is strict: what breaks the protocol ends the connection, and every call after that says what it was. Any
thread may use a `Client`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from meshrt.hooks.facts import Body
from tests.dap.framing import Violation, framed, read_message
from tests.dap.started import Started

__all__ = ["SECONDS", "Address", "Client", "Event", "RequestFailed"]

#: For one answer or one event. Where many processes load a debugger at once, it takes its time.
SECONDS = 30.0
#: ``(host, port)``, or the path of a unix socket, or a command that starts an adapter of its own.
Address = tuple[str, int] | str | list[str]


class RequestFailed(Exception):
    """The adapter answered ``success: false``; the text is its message."""

    def __init__(self, command: str, message: str, body: Body) -> None:
        super().__init__(f"{command}: {message}")
        self.command, self.message, self.body = command, message, body


class Event(NamedTuple):
    """What the adapter told without being asked."""

    name: str
    body: Body


def _refuse(command: str, _arguments: Body) -> Body:
    raise NotImplementedError(f"this client does not support {command}")


class Client:
    """A connection to an adapter.

    Args:
        answer: Answers a request of the adapter with a body; what it raises is sent back as the failure. On a thread of
            its own for each request, so it may take its time, and use the client.
        on_event: Sees each event before anybody who waits for it. On the connection's own thread, so it must not wait.
        on_end: Called once when the connection has ended. On the connection's own thread.
    """

    def __init__(
        self,
        address: Address,
        *,
        answer: Callable[[str, Body], Body] = _refuse,
        on_event: Callable[[Event], None] = lambda _event: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._sock = _connected(address)
        self._answer, self._on_event, self._on_end = answer, on_event, on_end
        self._numbers = itertools.count(1)
        self._send_lock = threading.Lock()
        #: Guards what stands below; told of every change of it.
        self._changed = threading.Condition()
        self._pending: dict[int, tuple[str, Future[Body]]] = {}
        self._events: list[Event] = []
        self._not_taken: list[Event] = []
        #: Why the connection has ended; empty while it lasts.
        self._ended = ""
        self._answering: list[threading.Thread] = []
        self._reader = threading.Thread(target=self._read_loop, name=f"dap-client {address}", daemon=True)
        self._reader.start()

    # ---- asking ------------------------------------------------------------------------------------------------------

    def begin(self, command: str, /, **arguments: object) -> Future[Body]:
        """Send a request and do not wait. The future ends with `RequestFailed`, or ConnectionError or `Violation`."""
        answer: Future[Body] = Future()
        # One lock for number and sending: the numbers on the wire are in order.
        with self._send_lock:
            number = next(self._numbers)
            with self._changed:
                if self._ended:
                    raise ConnectionError(f"{command}: {self._ended}")
                self._pending[number] = command, answer
            message = {"seq": number, "type": "request", "command": command}
            try:
                self._sock.sendall(framed({**message, "arguments": arguments} if arguments else message))
            except OSError as error:
                with self._changed:
                    self._pending.pop(number, None)
                raise ConnectionError(f"{command}: {error}") from error
        return answer

    def request(self, command: str, /, **arguments: object) -> Body:
        """Send a request; return the body of its answer.

        Raises:
            RequestFailed: The adapter refuses; the text is its message.
            ConnectionError: The connection has ended.
            Violation: The adapter has broken the protocol.
        """
        return self.result_of(self.begin(command, **arguments), command)

    def result_of(self, answer: Future[Body], what: str) -> Body:
        """Return what ``answer`` brings; fails the test where it takes too long, with what came instead."""
        try:
            return answer.result(SECONDS)
        except TimeoutError:
            raise AssertionError(f"no answer to {what} within {SECONDS:g} s; {self._story()}") from None

    # ---- listening ---------------------------------------------------------------------------------------------------

    @property
    def events(self) -> list[Event]:
        """All that has come, in order."""
        with self._changed:
            return list(self._events)

    @property
    def output(self) -> str:
        """What the adapter has written to the debug console."""
        return "".join(
            event.body.get("output", "")
            for event in self.events
            if event.name == "output" and event.body.get("category") != "telemetry"
        )

    @property
    def ended(self) -> str:
        """Why the connection has ended; empty while it lasts."""
        return self._ended

    def wait_event(
        self,
        name: str,
        where: Callable[[Body], object] = lambda _body: True,
        seconds: float = SECONDS,
        unless: Future[Body] | None = None,
    ) -> Body:
        """Take the first event ``name`` with a fitting body that nobody has taken yet; others stay for later.

        Args:
            unless: A request without whose success the event will not come: its failure ends the waiting.
        """
        if unless is not None:
            unless.add_done_callback(lambda _answer: self._wake())
        taken: list[Event] = []

        def there() -> bool:
            for event in self._not_taken:
                if event.name == name and where(event.body):
                    self._not_taken.remove(event)
                    taken.append(event)
                    return True
            failed = unless is not None and unless.done() and unless.exception() is not None
            return failed or bool(self._ended)

        with self._changed:
            there_in_time = self._changed.wait_for(there, seconds)
        if taken:
            return taken[0].body
        if unless is not None and unless.done():
            unless.result()
        reason = f"not within {seconds:g} s" if not there_in_time else self._ended
        raise AssertionError(f"no event {name!r}: {reason}; {self._story()}")

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _story(self) -> str:
        with self._changed:
            asked = ", ".join(command for command, _ in self._pending.values())
            came = "; ".join(f"{name} {json.dumps(body)[:200]}" for name, body in self._events[-20:])
        return f"unanswered: {asked or 'nothing'}; events: {came or 'none'}"

    # ---- leaving -----------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """End the connection without a word, and do not wait for that. May be called again, from any thread."""
        with contextlib.suppress(OSError):  # it has ended already
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection without a word: what an IDE that is killed does. May be called again."""
        self.cut()
        for thread in (self._reader, *self._answering):
            if thread is not threading.current_thread():
                thread.join(SECONDS)

    # ---- the connection's own threads --------------------------------------------------------------------------------

    def _read_loop(self) -> None:
        reason: Exception = ConnectionError("the adapter has closed the connection")
        try:
            # Each number once, not in order: debugpy's own adapter numbers messages before it takes turns to send them.
            numbers: set[int] = set()
            with self._sock.makefile("rb") as stream:
                while (message := read_message(stream)) is not None:
                    number = message.get("seq")
                    if not isinstance(number, int) or number < 1 or number in numbers:
                        raise Violation(f"a message has the number {number}, after {len(numbers)} others: {message}")
                    numbers.add(number)
                    self._receive(message)
        except OSError as error:
            reason = ConnectionError(f"the connection is lost: {error}")
        except Violation as error:
            reason = error
        except Exception as error:  # of `on_event`: whoever waits is told, and the thread's failure is shown, too
            reason = ConnectionError(f"the client has failed: {type(error).__name__}: {error}")
            raise
        finally:
            with self._changed:
                self._ended = str(reason)
                pending, self._pending = self._pending, {}
                self._changed.notify_all()
            for command, answer in pending.values():
                answer.set_exception(type(reason)(f"{command}: {reason}"))
            self._sock.close()
            self._on_end()

    def _receive(self, message: Body) -> None:
        match message:
            case {"type": "event", "event": str(name)}:
                event = Event(name, message.get("body") or {})
                self._on_event(event)
                with self._changed:
                    self._events.append(event)
                    self._not_taken.append(event)
                    self._changed.notify_all()
            case {"type": "response", "request_seq": int(number), "command": str(command), "success": bool(success)}:
                with self._changed:
                    asked, answer = self._pending.get(number, ("nothing", None))
                    if answer is None or asked != command:
                        raise Violation(f"answers {command!r} ({number}), asked was {asked}: {message}")
                    del self._pending[number]
                body = message.get("body") or {}
                if success:
                    answer.set_result(body)
                else:
                    answer.set_exception(RequestFailed(command, message.get("message") or "", body))
            case {"type": "request", "seq": int(number), "command": str(command)}:
                arguments = message.get("arguments") or {}
                thread = threading.Thread(
                    target=self._serve, args=(number, command, arguments), name=f"dap-{command}", daemon=True
                )
                self._answering.append(thread)
                thread.start()
            case _:
                raise Violation(f"is no event, response or request: {message}")

    def _serve(self, number: int, command: str, arguments: Body) -> None:
        response: Body = {"type": "response", "request_seq": number, "command": command}
        try:
            body = self._answer(command, arguments)
            response |= {"success": True, **({"body": body} if body else {})}
        except Exception as error:  # whatever it is, the adapter is told, as an IDE does
            response |= {"success": False, "message": f"{type(error).__name__}: {error}"}
        with self._send_lock:
            try:
                self._sock.sendall(framed({"seq": next(self._numbers), **response}))
            except OSError:
                pass  # the connection has ended meanwhile: nobody to be told


def _connected(address: Address) -> socket.socket | Started:
    if isinstance(address, list):
        return Started(address)
    sock = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.settimeout(SECONDS)
        sock.connect(address)
        sock.settimeout(None)
    except OSError as error:
        sock.close()
        raise ConnectionError(f"no adapter at {address}: {error}") from error
    return sock
