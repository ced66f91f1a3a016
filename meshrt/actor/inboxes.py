"""Where the messages of ports arrive: an inbox for each channel that this process has opened.

An inbox: ``open -> closed``. The control thread puts messages in, from links on which other processes send
(`PortLinks`); each message goes to the receiver that has waited longest, or waits in the inbox. A sender stops while
too many of its messages have not been taken: it asks, with some of them, to be answered when that one is taken. It also
asks once to be told when the inbox is closed.
"""

from __future__ import annotations

import functools
import logging
import selectors
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from meshrt.actor.served import ServedLinks
from meshrt.errors import ProtocolError
from meshrt.transport.link import Link
from meshrt.transport.process import ProcessRuntime, current_runtime
from meshrt.wire.frames import Buffer, Frame, pack_header, split_frames
from meshrt.wire.messages import ERROR, NO_ERROR, PORT, RESULT, STORED

__all__ = ["Arrived", "Inbox", "PortLinks", "Waiter", "close_inbox", "close_inboxes"]


class Arrived(NamedTuple):
    """A message of a port. ``taken`` tells its sender that it was taken."""

    frame: Frame
    taken: Callable[[], object] | None = None


class Waiter(Protocol):
    """Waits for one message; finished by it, or by the end of the inbox."""

    def arrived(self, message: Arrived) -> None:
        """The message has come."""

    def closed(self) -> None:
        """None will come any more."""


class Inbox:
    """The messages of one channel. Any thread.

    Args:
        once: It takes one message, and is closed then.
        opened: The line that has opened the channel.

    Attributes:
        passed_on: Its port was pickled here: others may have it.
    """

    def __init__(self, *, once: bool, opened: str = "") -> None:
        self.opened = opened
        self.passed_on = False
        #: How many messages have come, the time of the last one (monotonic), and how many other processes have sent.
        self._come = 0
        self._last = 0.0
        self._senders = 0
        self._lock = threading.Lock()
        self._once = once
        self._messages: deque[Arrived] = deque()
        #: Come before those: they were given to waiters that were dropped without having read them.
        self._returned: deque[Arrived] = deque()
        #: In the order in which they came. A waiter that its user has dropped, after a time-out, takes no message.
        self._waiters: deque[weakref.ref[Waiter]] = deque()
        self._on_close: list[Callable[[], object]] = []
        self.is_closed: bool = False
        #: It was closed as this process ends, which those that send learn by the end of the process.
        self._silent = False
        #: Bytes of what waits here and came from this process itself.
        self._own_bytes: int = 0

    def put(self, message: Arrived) -> bool:
        """Take a message in. Returns False if it is closed: the message is lost."""
        with self._lock:
            if self.is_closed:
                return False
            self._come += 1
            self._last = time.monotonic()
            waiter = None if self._returned else self._next_waiter()
            if waiter is None:
                self._messages.append(message)
        if waiter is not None:
            _give(waiter, message)
        elif self._returned:
            self.hand_out()
        if self._once:
            self.close(keep=True)
        return True

    def give_back(self, message: Arrived) -> None:
        """Take back a message that its waiter was given and has not read; `hand_out` goes on. Takes no lock."""
        if self._once or not self.is_closed:
            self._returned.append(message._replace(taken=None))  # its sender was told

    def hand_out(self) -> None:
        """Have waiters take what was given back, and what has come behind it."""
        while True:
            with self._lock:
                waiter = self._next_waiter() if self._returned or self._messages else None
                if waiter is None:
                    return
                message = self._next_message()
            if message is not None:
                _give(waiter, message)

    def _next_message(self) -> Arrived | None:
        messages = self._returned or self._messages
        return messages.popleft() if messages else None

    def count_own(self, size: int, limit: int) -> bool:
        """Count bytes that this process itself has sent here, or (negative) that were taken. False: above the limit."""
        with self._lock:
            if self._own_bytes + size > limit:
                return False
            self._own_bytes += size
        return True

    def _next_waiter(self) -> Waiter | None:
        while self._waiters:
            waiter = self._waiters.popleft()()
            if waiter is not None:
                return waiter
        return None

    def give_to(self, waiter: Waiter) -> None:
        """Have a waiter take the next message."""
        with self._lock:
            message = self._next_message()
            closed = self.is_closed
            if message is None and not closed:
                self._waiters.append(weakref.ref(waiter))
        if message is not None:
            _give(waiter, message)
        elif closed:
            waiter.closed()

    def when_closed(self, tell: Callable[[], object]) -> None:
        """Call ``tell`` when it is closed and that is told, at once if it was. Each other process asks once."""
        with self._lock:
            self._senders += 1
            if not self.is_closed:
                self._on_close.append(tell)
            told = self.is_closed and not self._silent
        if told:
            tell()

    def known(self) -> str:
        """Return what is known of those that send to it, in words."""
        if self._come:
            come = "1 message was received" if self._come == 1 else f"{self._come} messages were received"
            processes = "1 other process" if self._senders == 1 else f"{self._senders} other processes"
            origin = f" from {processes}" if self._senders else " from this process"
            return f"{come}{origin}, the last one {time.monotonic() - self._last:.1f} s ago"
        passed_on = "" if self.passed_on else ": the port was not passed to another process"
        return f"no message was sent to it{passed_on}"

    def unread(self) -> list[str]:
        """Return the exceptions that have come and were not taken, each in a line."""
        with self._lock:
            return [text for each in (*self._returned, *self._messages) if (text := each.frame.header[3])]

    def close(self, *, keep: bool = False, tell: bool = True) -> None:
        """Take nothing any more. What has come and was not taken is dropped, unless it is kept.

        Args:
            tell: Tell those that send to it.
        """
        with self._lock:
            if self.is_closed:
                return
            self.is_closed, self._silent = True, not tell
            waiters = [waiter() for waiter in self._waiters]
            dropped = () if keep else tuple(self._messages)
            told, self._on_close = self._on_close, []
            self._waiters.clear()
            if not keep:
                self._messages.clear()
                self._returned.clear()
        for waiter in waiters:
            if waiter is not None:
                waiter.closed()
        for message in dropped:
            if message.taken is not None:
                message.taken()
        for each in told if tell else ():
            each()


def close_inbox(runtime: ProcessRuntime, number: str) -> None:
    """Close a channel of this process, and say which exceptions nobody has received. Any thread."""
    inbox: Inbox | None = runtime.inboxes.pop(number, None)
    if inbox is not None:
        unread = inbox.unread()
        inbox.close(tell=not runtime.stopping)
        _say_unread(unread, f"the channel opened at {inbox.opened}")


def _say_unread(errors: Sequence[str], channel: str) -> None:
    if errors:
        more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
        text = "nobody has received the exception that port.exception() sent to %s: %s%s"
        logging.getLogger("meshrt").error(text, channel, errors[0], more)


def close_inboxes(runtime: ProcessRuntime) -> None:
    """Close all channels of this process."""
    for number in tuple(runtime.inboxes):
        close_inbox(runtime, number)


def _give(waiter: Waiter, message: Arrived) -> None:
    waiter.arrived(message)
    if message.taken is not None:
        message.taken()


class PortLinks(ServedLinks):
    """The links on which other processes send to the ports of this one. Belongs to the control thread.

    Args:
        selector: As of `ServedLinks`.
        call_soon: Calls a function on the control thread. Any thread.
    """

    def __init__(self, selector: selectors.BaseSelector, call_soon: Callable[[Callable[[], object]], None]) -> None:
        super().__init__(selector)
        self._call_soon = call_soon

    def _serve(self, link: Link, frame: Frame) -> None:
        runtime = current_runtime()
        if frame.kind & STORED:
            frame = runtime.store.claim(frame)
        call_id, port, _, error, wants, watch = frame.header
        if frame.kind != PORT or not (type(call_id) is type(watch) is int):
            raise ProtocolError("expected a message for a port")
        inbox: Inbox | None = runtime.inboxes.get(port)
        if watch:
            closed = self._answer(link, split_frames(ERROR, [watch, NO_ERROR, [], "closed"], []))
            if inbox is not None:
                inbox.when_closed(closed)
            elif not runtime.stopping:  # then it may have been open until now; the end of this process is told
                closed()
        taken = self._answer(link, [pack_header(RESULT, [call_id, None])]) if wants else None
        if inbox is None or not inbox.put(Arrived(frame, taken)):
            if taken is not None:
                taken()
            _say_unread([error] if error else [], "a channel that is closed")

    def _answer(self, link: Link, parts: list[Buffer]) -> Callable[[], None]:
        """Return what sends an answer. Any thread may call it."""
        return functools.partial(self._call_soon, functools.partial(self.send, link, parts))
