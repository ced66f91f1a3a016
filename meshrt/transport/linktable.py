"""The outgoing links of a process: by key, by descriptor, and for which of their sockets the kernel is asked."""

from __future__ import annotations

import contextlib
import select
import threading
from collections import Counter
from collections.abc import Callable

from meshrt.transport.link import Link
from meshrt.transport.outlink import LinkState, OutLink
from meshrt.wire.addresses import RankAddress
from meshrt.wire.handshake import ClientHandshake

__all__ = ["LOST_MAX", "LinkTable"]

#: With more links that are lost for good, those of meshes that have no others go, the oldest first.
LOST_MAX = 1000


class LinkTable:
    """All outgoing links. Any thread, unless said otherwise.

    Args:
        epoll: Waits for the sockets.
        background: ``background(out, wanted)`` asks for the background to write what is queued (`Waiting.background`).

    Attributes:
        by_key: mesh id, rank and actor -> link.
        by_fd: The same by the descriptor of the socket, of those that are read.
        lock: Held while a link changes between states in which calls are queued and written.
    """

    def __init__(self, epoll: select.epoll, background: Callable[[object, bool], None]) -> None:
        self._epoll = epoll
        self._background = background
        self.by_key: dict[tuple[str, int, str], OutLink] = {}
        self.by_fd: dict[int, OutLink] = {}
        self.lock: threading.Lock = threading.Lock()
        #: How many there are by mesh id; and how many of these are lost for good, the oldest mesh first.
        self._counts: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()

    def obtain(self, key: tuple[str, int, str], address: RankAddress) -> tuple[OutLink, bool]:
        """Return the link to ``key``, and whether it was made now."""
        with self.lock:
            out = self.by_key.get(key)
            if out is not None:
                return out, False
            out = self.by_key[key] = OutLink(key, address)
            self._counts[key[0]] += 1
            return out, True

    def all(self) -> tuple[OutLink, ...]:
        """Return the links that there are now."""
        with self.lock:
            return tuple(self.by_key.values())

    def remove(self, mesh_id: str) -> list[OutLink]:
        """Remove the links to a mesh, and return them."""
        with self.lock:
            return self._remove(mesh_id)

    def _remove(self, mesh_id: str) -> list[OutLink]:
        del self._counts[mesh_id], self._lost[mesh_id]
        return [self.by_key.pop(key) for key in [key for key in self.by_key if key[0] == mesh_id]]

    def lost(self, out: OutLink) -> None:
        """A link is lost for good. Once it is not kept, a later call gets another one, which will be lost, too."""
        with self.lock:
            if self.by_key.get(out.key) is not out:
                return
            self._lost[out.key[0]] += 1
            if self._lost.total() > LOST_MAX:
                for mesh_id, count in tuple(self._lost.items()):
                    if mesh_id != out.key[0] and count == self._counts[mesh_id]:
                        self._remove(mesh_id)
                        break

    def clear(self) -> list[OutLink]:
        """Remove all links, and return them."""
        with self.lock:
            removed = list(self.by_key.values())
            self.by_key.clear()
            self.by_fd.clear()
            self._counts.clear()
            self._lost.clear()
            return removed

    # -- the sockets

    def connected(self, out: OutLink, link: Link, handshake: ClientHandshake) -> bool:
        """Give a link its connection, and begin to read it. Raises OSError.

        Returns:
            Whether the link still waits for one. While it was made, the rank may have ended, or another was made.
        """
        with self.lock:
            if out.state is not LinkState.CONNECTING or self.by_key.get(out.key) is not out or self._is_read(out):
                return False
            out.handshake, out.link = handshake, link
            self.by_fd[link.fileno()] = out
            try:
                self._epoll.register(link.fileno(), select.EPOLLIN)
            except OSError:
                del self.by_fd[link.fileno()]
                out.handshake = out.link = None
                raise
            return True

    def _is_read(self, out: OutLink) -> bool:
        # The number of a closed descriptor may be another link's by now.
        return out.link is not None and self.by_fd.get(out.link.fileno()) is out

    def unregister(self, out: OutLink) -> None:
        """Read a link no more, if it is read."""
        if out.link is not None and self._is_read(out):
            del self.by_fd[out.link.fileno()]
            with contextlib.suppress(OSError):
                self._epoll.unregister(out.link.fileno())

    def release(self, out: OutLink) -> None:
        """Read and write a link no more."""
        self.unregister(out)
        self._background(out, False)

    def want_write(self, out: OutLink) -> None:
        """Have what is queued on a link written when its socket takes more."""
        with self.lock:
            if out.link is not None and not out.writing and self._is_read(out):
                out.writing = True
                self._epoll.modify(out.link.fileno(), select.EPOLLIN | select.EPOLLOUT)
                self._background(out, True)

    def write(self, out: OutLink) -> None:
        """Write what is queued on a link, as far as its socket takes it. The lead is held."""
        link = out.link
        if link is not None and link.flush():
            with self.lock:
                if out.writing and not link.backlog:
                    out.writing = False
                    self._epoll.modify(link.fileno(), select.EPOLLIN)
                    self._background(out, False)
