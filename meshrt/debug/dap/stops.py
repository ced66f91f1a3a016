"""Which threads of an engine are stopped, learned from the messages to it and from it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from meshrt.debug.dap.wire import RESUMING, Message

__all__ = ["Stops"]


class Stops:
    """The stopped threads of one engine; true if there is one. It is given all messages, in both directions."""

    def __init__(self) -> None:
        #: The number of stops so far.
        self._stops = 0
        #: By thread: the number of its stop, and the event.
        self._events: dict[int, tuple[int, Message]] = {}
        #: By number of a request that resumes threads if it succeeds: the number of stops before it.
        self._resuming: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._events)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the threads, the one that has been stopped longest first."""
        return iter(self._events)

    def events(self) -> list[Message]:
        """Return the ``stopped`` events of these threads."""
        return [event for _, event in self._events.values()]

    def clear(self) -> None:
        """Forget all stops: no thread is stopped any more."""
        self._events.clear()

    def has_stopped(self, thread: object) -> bool:
        """Return whether a thread is stopped, by itself or as one of all."""
        return any(
            number == thread or (event.get("body") or {}).get("allThreadsStopped")
            for number, (_, event) in self._events.items()
        )

    def asked(self, message: Message) -> None:
        """Note a message to the engine."""
        if message["type"] == "request" and message["command"] in RESUMING:
            self._resuming[message["seq"]] = self._stops

    def said(self, message: Message) -> None:
        """Note a message from the engine."""
        if message["type"] == "response":
            before = self._resuming.pop(message["request_seq"], 0)
            if message["success"]:
                # A thread that has resumed may stop again before this answer.
                self._events = {thread: stop for thread, stop in self._events.items() if stop[0] > before}
        elif message["type"] == "event":
            body = message.get("body") or {}
            thread = int(body.get("threadId") or 0)
            if message["event"] == "stopped":
                self._stops += 1
                self._events.pop(thread, None)
                self._events[thread] = self._stops, message
            elif message["event"] == "continued":
                if body.get("allThreadsContinued", True):
                    self._events.clear()
                else:
                    self._events.pop(thread, None)
