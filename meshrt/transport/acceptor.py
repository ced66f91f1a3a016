"""A listening unix socket in a selector: connections of this user are accepted.

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

from meshrt.transport.link import same_user

__all__ = ["Acceptor", "listening_socket"]

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


class Acceptor:
    """Accepts the connections of this user at one socket. One thread: that of the selector.

    Args:
        selector: Its keys' data are called with the events.
        listener: It listens already. Closed with this.
        peer: What a process that connects is called in the log: "a caller".
        accepted: Called with each socket, which does not block.
        later: Calls a function after some seconds, on that thread.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        peer: str,
        accepted: Callable[[socket.socket], object],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._selector = selector
        self._listener = listener
        self._peer = peer
        self._accepted = accepted
        self._later = later
        self._told = self._closed = False

    def open(self) -> None:
        """Accept the connections that wait, and those that come."""
        if not self._closed:
            self._listener.setblocking(False)
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Listen no more."""
        self._closed = True
        if self._listener in self._selector.get_map():
            self._selector.unregister(self._listener)
        self._listener.close()

    def listen_again(self) -> None:
        """Listen at the same path again if its socket has been removed, as cleaners of temporary files do."""
        path = self._listener.getsockname()
        if self._closed or not path or os.path.lexists(path):
            return
        try:
            listener = listening_socket(path)
        except OSError:  # its directory was removed, too: other code makes it again, or the program ends
            return
        before, waits = self._listener, self._listener in self._selector.get_map()
        with contextlib.suppress(OSError):
            while waits:  # those who have connected before
                self._pass_on(before.accept()[0])
        if waits:
            self._selector.unregister(before)
        before.close()
        self._listener = listener
        if waits:
            self.open()

    def _accept(self, _events: int) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # the peer has gone again
        except OSError as error:
            if not self._told:
                logging.getLogger("meshrt").error("%s cannot be let in, and waits: %s", self._peer, error.strerror)
            self._told = True
            self._selector.unregister(self._listener)
            self._later(_PAUSE, self.open)
            return
        self._told = False
        self._pass_on(sock)

    def _pass_on(self, sock: socket.socket) -> None:
        if not same_user(sock):
            sock.close()
            return
        sock.setblocking(False)
        self._accepted(sock)
