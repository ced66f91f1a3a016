"""Which threads of an engine stand, as what is said to it and what it says tell. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from meshrt.debug.dap.wire import RESUMING, Message

__all__ = ["Standing"]


class Standing:
    """The threads of one engine that stand; true if there is one. All messages, both ways, pass by here."""

    def __init__(self) -> None:
        #: How many stops there were.
        self._stops = 0
        #: By thread: which stop it was, and the event that said so.
        self._events: dict[int, tuple[int, Message]] = {}
        #: Requests that let threads go on, if they succeed, by number: how many stops there were before.
        self._resuming: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._events)

    def __iter__(self) -> Iterator[int]:
        """The threads, the one that has stood longest first."""
        return iter(self._events)

    def events(self) -> list[Message]:
        """Return the events that said so."""
        return [event for _, event in self._events.values()]

    def clear(self) -> None:
        """Nothing stands any more."""
        self._events.clear()

    def stands(self, thread: object) -> bool:
        """Whether a thread stands, or all of them do."""
        return any(
            number == thread or (event.get("body") or {}).get("allThreadsStopped")
            for number, (_, event) in self._events.items()
        )

    def asked(self, message: Message) -> None:
        """Take a message to the engine."""
        if message["type"] == "request" and message["command"] in RESUMING:
            self._resuming[message["seq"]] = self._stops

    def said(self, message: Message) -> None:
        """Take a message of the engine."""
        if message["type"] == "response":
            before = self._resuming.pop(message["request_seq"], 0)
            if message["success"]:
                # What has gone on may stand again before this is said.
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
