"""Connecting to ranks: a link becomes ``connecting``, once its rank listens.

A rank that does not listen at the address that is known here is dialled when the control tree says that it does, and
where. One that hangs up before both sides are proved is dialled again; so is any while something is short that a
connection takes.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable

from meshrt.errors import ProtocolError
from meshrt.transport.connecting import Connector
from meshrt.transport.disconnects import DISCONNECTED_SECONDS, Disconnects
from meshrt.transport.link import LATER, Link
from meshrt.transport.linktable import LinkTable
from meshrt.transport.outlink import OutLink
from meshrt.transport.tree import Tree
from meshrt.transport.turns import Turns
from meshrt.wire.addresses import HostAddress
from meshrt.wire.handshake import ROLE_DATA, ClientHandshake, Identity

__all__ = ["DIALS", "Dialler"]

#: How often a rank is dialled that hangs up before both sides are proved.
DIALS = 5
#: Seconds until it is tried again where something is short that it takes: memory, descriptors, time.
_CONNECT_AGAIN = 0.1
_SHORT = LATER | {errno.EMFILE, errno.ENFILE, errno.ENOSPC}


class Dialler:
    """Connects links. Any thread.

    Args:
        connector: Makes the connections.
        secret: Each side of a link proves that it has it.
        identity: Returns the identity of this process for each handshake.
        tree: Tells when a rank listens; calls after a while.
        table: Reads what was connected.
        disconnects: Gets the links that cannot be connected.
        wake: Has the leading thread look at those.
    """

    def __init__(
        self,
        connector: Connector,
        secret: bytes,
        identity: Callable[[], Identity],
        tree: Tree,
        table: LinkTable,
        disconnects: Disconnects,
        wake: Callable[[], None],
    ) -> None:
        self._connector = connector
        self._secret = secret
        self._identity = identity
        self._tree = tree
        self._table = table
        self._disconnects = disconnects
        self._wake = wake
        self._lock = threading.Lock()
        #: Links to a rank (mesh id, rank) that wait until it listens, in the order in which they are to be connected.
        self._awaiting: dict[tuple[str, int], list[OutLink]] = {}
        self._turns = Turns(tree.call_later)

    def connect(self, out: OutLink) -> None:
        """Dial a rank, now or as soon as it listens: in the order of these calls, in which actors begin there, too."""
        place = out.key[:2]
        with self._lock:
            if place in self._awaiting:
                self._awaiting[place].append(out)
                return
        # Not started yet, ended, or not where this process has been told: the tree knows. One that was started again
        # may be on another machine, and a host is not searched that may be gone.
        moved = out.before is not None and out.address.host.ports
        if moved or not self._connector.knows(out.address) or self._dial(out) is not None:
            with self._lock:
                waiting = self._awaiting.setdefault(place, [])
                waiting.append(out)
                is_first = len(waiting) == 1
            if is_first:
                self._tree.when_born(*place, lambda host: self._all_located(place, host))

    def leave_idle(self, out: OutLink) -> None:
        """Connect an idle link, though nothing is to be sent yet."""
        with self._table.lock:
            idle, out.idle = out.idle, False
        if idle:
            self.connect(out)

    def hung_up(self, out: OutLink, link: Link) -> bool:
        """Dial a rank that has hung up in the handshake; returns whether the link is still connecting.

        The rank waits only so long for the proof of a caller, and one of the two had no time. Nothing was sent to it.
        """
        self._table.unregister(out)
        self.proved(out)
        self.doubt(out, link)
        link.close()
        out.refusals += 1
        if out.elsewhere and out.refusals == 1:  # its host has no such rank yet, or not any more
            self._tree.when_born(out.key[0], out.key[1], lambda host: self._located(out, host))
            return True
        return out.refusals < DIALS and self._dial(out) is None

    def proved(self, out: OutLink) -> None:
        """The handshake of a link is over."""
        if out.elsewhere:
            self._turns.end(out)

    def doubt(self, out: OutLink, link: Link) -> None:
        """A connection has ended: another way may be needed to where it has led."""
        if out.elsewhere:
            self._connector.doubt(out.address)
            if link.error is not None:
                out.trouble = f"cannot be reached from here: {link.error.strerror}"

    def _all_located(self, place: tuple[str, int], host: HostAddress | None) -> None:
        while True:
            with self._lock:
                waiting = self._awaiting[place]
                if not waiting:
                    del self._awaiting[place]
                    return
                out = waiting[0]
            self._located(out, host)
            with self._lock:
                waiting.pop(0)

    def _located(self, out: OutLink, host: HostAddress | None) -> None:
        if host is not None:
            out.address = out.address._replace(host=host)
        self._dial_again(out)

    def _dial_again(self, out: OutLink, until: float = 0.0) -> None:
        """Dial a rank that listens, or has ended; where something is short, again and again for a while."""
        try:
            error = self._dial(out) if out.fate is None else None
        except ProtocolError as foreign:  # the socket of another user
            self._give_up(out, str(foreign))
            return
        if error is None:
            return
        if error.errno in _SHORT:
            out.trouble = f"could not be connected to: {error.strerror}"
            until = until or time.monotonic() + DISCONNECTED_SECONDS
            if time.monotonic() < until:
                self._tree.call_later(_CONNECT_AGAIN, lambda: self._dial_again(out, until))
                return
        self._disconnects.add(out)
        self._wake()

    def _dial(self, out: OutLink) -> OSError | None:
        """Dial once, on another machine when it is the turn of the link; returns the error, if there is one now."""
        out.elsewhere = self._connector.is_elsewhere(out.address)
        if not out.elsewhere:
            return self._connect(out)
        search = out.search = object()
        if self._connector.knows(out.address):
            return self._take_turn(out, search)
        self._connector.search(out.address, lambda: self._searched(out, search))
        return None

    def _searched(self, out: OutLink, search: object) -> None:
        """The host of a rank was searched. Any thread."""
        error = self._take_turn(out, search) if _is_wanted(out, search) else None
        if error is not None:
            self._give_up(out, error.strerror or str(error))

    def _take_turn(self, out: OutLink, search: object) -> OSError | None:
        if not self._turns.take(out, lambda: self._has_turn(out, search)):
            return None
        error = self._connect(out)
        if error is not None:
            self._turns.end(out)
        return error

    def _has_turn(self, out: OutLink, search: object) -> None:
        """It is the turn of a link that has waited for it. Any thread."""
        if self._table.by_key.get(out.key) is out and _is_wanted(out, search):
            self._searched(out, search)
        else:
            self._turns.end(out)

    def _connect(self, out: OutLink) -> OSError | None:
        try:
            link = self._connector.connect(out.address)
        except OSError as error:
            return error
        if link is not None:
            return self._begin(out, link)
        search = out.search = object()
        self._connector.find(out.address, lambda found: self._found(out, search, found))
        return None

    def _found(self, out: OutLink, search: object, found: Link | OSError) -> None:
        """A way to a rank of another machine was found, or not. Any thread."""
        if not _is_wanted(out, search):
            if isinstance(found, Link):
                found.close()
            return
        out.search = None
        error = found if isinstance(found, OSError) else self._begin(out, found)
        if error is not None:
            self._turns.end(out)
            self._give_up(out, error.strerror or str(error))

    def _give_up(self, out: OutLink, why: str) -> None:
        out.trouble = f"could not be connected to: {why}"
        self._disconnects.add(out)
        self._wake()

    def _begin(self, out: OutLink, link: Link) -> OSError | None:
        """Begin the handshake on a new connection; returns the error, if there is one."""
        handshake = ClientHandshake(self._secret, ROLE_DATA, "/".join(map(str, out.key)), self._identity())
        try:
            wanted = self._table.connected(out, link, handshake)
        except OSError as error:
            link.close()
            return error
        if not wanted:
            link.close()
            self.proved(out)
        elif not link.send([handshake.hello()]):
            self._table.want_write(out)
        return None


def _is_wanted(out: OutLink, search: object) -> bool:
    """Whether a link still waits for what a search has begun."""
    return out.search is search and out.fate is None and out.early is not None
