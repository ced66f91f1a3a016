"""Links that a control thread serves itself: what comes there must not wait for the thread of an actor."""

from __future__ import annotations

import functools
import selectors
from abc import ABC, abstractmethod
from collections.abc import Iterable

from meshrt.errors import ProtocolError
from meshrt.transport.link import Link
from meshrt.wire.frames import Buffer, Frame

__all__ = ["ServedLinks"]


class ServedLinks(ABC):
    """Belongs to the control thread.

    Args:
        selector: That of the control thread; its keys' data are called with the events.
    """

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._links: set[Link] = set()

    @abstractmethod
    def _serve(self, link: Link, frame: Frame) -> None:
        """Serve a message. Raises ProtocolError, TypeError, ValueError: it is invalid, and its sender is cut off."""

    def add(self, link: Link, frames: list[Frame]) -> None:
        """Serve a link, beginning with what has been read from it."""
        self._links.add(link)
        self._want(link, selectors.EVENT_READ)
        self._serve_all(link, frames)

    def close(self) -> None:
        """Close the links, when the selector is closed."""
        for link in self._links:
            link.close()

    def abandon(self) -> None:
        """Close the links in a forked child, where the locks may be held by a thread that does not exist."""
        for link in tuple(self._links):
            link.sock.close()

    def send(self, link: Link, parts: list[Buffer]) -> None:
        """Send a message; a no-op if the peer has ended."""
        if link in self._links and not link.send(parts) and not link.closed:
            self._want(link, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _want(self, link: Link, events: int) -> None:
        ready = functools.partial(self._ready, link)
        if link.sock in self._selector.get_map():
            self._selector.modify(link.sock, events, ready)
        else:
            self._selector.register(link.sock, events, ready)

    def _ready(self, link: Link, events: int) -> None:
        if events & selectors.EVENT_WRITE and link.flush():
            self._want(link, selectors.EVENT_READ)
        if events & selectors.EVENT_READ:
            try:
                frames = link.read()
            except (ProtocolError, MemoryError):
                frames = None
            if frames is None:
                self._drop(link)
            else:
                self._serve_all(link, frames)

    def _serve_all(self, link: Link, frames: Iterable[Frame]) -> None:
        for frame in frames:
            try:
                self._serve(link, frame)
            except (ProtocolError, TypeError, ValueError):
                self._drop(link)
                return

    def _drop(self, link: Link) -> None:
        if link in self._links:
            self._links.remove(link)
            self._selector.unregister(link.sock)
            link.close()
