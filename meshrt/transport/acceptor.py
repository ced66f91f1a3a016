"""A listening socket: connections are accepted; of a unix socket, those of this user.

Where no descriptor is left for one, all wait in the backlog, and it is tried again a little later: the thread has other
things to do meanwhile, and nothing spins.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
from collections.abc import Callable
from typing import Protocol

from meshrt.transport.link import Connection, same_user

__all__ = ["Acceptor", "Readers", "SelectorReaders", "listening_socket"]

#: Seconds until it is tried again.
_PAUSE = 0.1


def listening_socket(path: str) -> socket.socket:
    """Return a socket of mode 0600 that listens at ``path``. Raises OSError, and leaves nothing then."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # Linux gives the file the mode of the socket
        listener.bind(path)
        listener.listen(4096)
    except BaseException:
        listener.close()
        raise
    return listener


class Readers(Protocol):
    """Calls functions when sockets can be read: an asyncio loop, or `SelectorReaders`. One thread."""

    def add_reader(self, sock: Connection, function: Callable[[], object], /) -> object:
        """Call ``function`` whenever there is something to read. Raises OSError."""

    def remove_reader(self, sock: Connection, /) -> object:
        """Call nothing any more for a socket that was added. Before it is closed."""


class SelectorReaders:
    """`Readers` on a selector whose keys' data are called with the events."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector

    def add_reader(self, sock: Connection, function: Callable[[], object]) -> None:
        """Call ``function`` whenever there is something to read. Raises OSError."""
        self._selector.register(sock, selectors.EVENT_READ, lambda _events: function())

    def remove_reader(self, sock: Connection) -> None:
        """Call nothing any more for a socket that was added."""
        self._selector.unregister(sock)


class Acceptor:
    """Accepts the connections at one socket. One thread: that of the readers.

    Args:
        readers: Call functions when sockets can be read.
        listener: It listens already. Closed with this.
        peer: What a process that connects is called in the log: "a caller".
        accepted: Called with each socket, which does not block. Where it raises OSError, the socket is closed.
        later: Calls a function after some seconds, on that thread.
        admits: Whether a connection is accepted; others are closed. TCP says nothing of users.
    """

    def __init__(
        self,
        readers: Readers,
        listener: socket.socket,
        peer: str,
        accepted: Callable[[socket.socket], object],
        later: Callable[[float, Callable[[], None]], object],
        admits: Callable[[socket.socket], bool] = same_user,
    ) -> None:
        self._admits = admits
        self.listener = listener
        self._readers = readers
        self._peer = peer
        self._accepted = accepted
        self._later = later
        self._told = self._closed = False
        #: Whether the listener is among those that are read.
        self._waits = False

    def open(self) -> None:
        """Accept the connections that wait, and those that come."""
        if not self._closed:
            self.listener.setblocking(False)
            self._readers.add_reader(self.listener, self._accept)
            self._waits = True

    def close(self) -> None:
        """Listen no more."""
        self._closed = True
        self._pause()
        self.listener.close()

    def _pause(self) -> None:
        if self._waits:
            self._waits = False
            self._readers.remove_reader(self.listener)

    def listen_again(self) -> None:
        """Listen at the same path again if its socket has been removed, as cleaners of temporary files do."""
        if self._closed:
            return
        path = self.listener.getsockname()
        if not path or os.path.lexists(path):
            return
        try:
            listener = listening_socket(path)
        except OSError:  # its directory was removed, too: other code makes it again, or the program ends
            return
        waits = self._waits
        with contextlib.suppress(OSError):
            while waits:  # those who have connected before
                self._pass_on(self.listener.accept()[0])
        self._pause()
        self.listener.close()
        self.listener = listener
        if waits:
            self._reopen()

    def _reopen(self) -> None:
        try:
            self.open()
        except OSError:  # no memory for it: the peers wait
            self._later(_PAUSE, self._reopen)

    def _accept(self) -> None:
        try:
            sock, _ = self.listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # the peer has gone again
        except OSError as error:
            if not self._told:
                logging.getLogger("meshrt").error("%s cannot be accepted yet: %s", self._peer, error.strerror)
            self._told = True
            self._pause()
            self._later(_PAUSE, self._reopen)
            return
        self._told = False
        self._pass_on(sock)

    def _pass_on(self, sock: socket.socket) -> None:
        if not self._admits(sock):
            sock.close()
            return
        sock.setblocking(False)
        try:
            self._accepted(sock)
        except OSError as error:
            logging.getLogger("meshrt").error("%s cannot be served: %s", self._peer, error.strerror)
            sock.close()
