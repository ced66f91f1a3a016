"""Reading the outgoing links: the handshake, answers to their calls, and messages on the state of an actor.

A rank says that an actor was stopped, and goes on to answer. The caller closes the link as soon as no call waits for an
answer on it (it is ``idle``), and connects it again for the next call: no call is ever sent to a process that does not
read any more.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from meshrt.errors import ProtocolError
from meshrt.transport.dialling import Dialler
from meshrt.transport.disconnects import Disconnects
from meshrt.transport.link import LATER, Link
from meshrt.transport.linktable import LinkTable
from meshrt.transport.outlink import Early, OutLink
from meshrt.wire.frames import Frame
from meshrt.wire.handshake import ClientHandshake
from meshrt.wire.messages import STATE, STORED

__all__ = ["Reader"]


class Reader:
    """Reads links and delivers answers to the callers. The lead is held.

    Args:
        table: The links.
        dialler: Dials a rank again that hangs up in the handshake.
        disconnects: Gets the links whose connection has ended.
        claim: Takes the shared memory of an answer.
        background: As for `LinkTable`.
    """

    def __init__(
        self,
        table: LinkTable,
        dialler: Dialler,
        disconnects: Disconnects,
        claim: Callable[[Frame], Frame],
        background: Callable[[object, bool], None],
    ) -> None:
        self._table = table
        self._dialler = dialler
        self._disconnects = disconnects
        self._claim = claim
        self._background = background

    def read(self, out: OutLink) -> None:
        """Read a link once."""
        link = out.link
        if link is None:
            return
        try:
            frames = link.read() if out.handshake is None else self._shake(out, link, out.handshake)
        except (ProtocolError, MemoryError):  # not even a few bytes can be read
            self._disconnects.add(out)
            return
        if frames is None:
            if out.handshake is not None and self._dialler.hung_up(out, link):
                return
            self._end(out, link)
            return
        try:
            self._dispatch(out, frames)
        except ProtocolError:
            self._disconnects.add(out)
            return
        if out.stopped and not out.outstanding:
            self.make_idle(out, link)

    def lost_touch(self, out: OutLink, link: Link) -> None:
        """The machine at the other end does not acknowledge what was sent. Any thread."""
        link.error = link.error or OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        if out.handshake is None or not self._dialler.hung_up(out, link):
            self._end(out, link)

    def _end(self, out: OutLink, link: Link) -> None:
        self._dialler.doubt(out, link)
        if not (out.elsewhere and self._is_idle(out, link)):
            self._disconnects.add(out)

    def _is_idle(self, out: OutLink, link: Link) -> bool:
        """Whether a link whose connection has ended is idle now: nothing was lost, the next call looks for a way."""
        with self._table.lock:
            if out.early is not None:
                return False
            out.early = Early()  # first: as in `make_idle`
            if out.outstanding or link.backlog:
                out.early = None
                return False
            self._table.release(out)
            out.idle, out.stopped, out.writing = True, False, False
        link.close()
        return True

    def drain(self, out: OutLink) -> None:
        """Deliver all that a rank has written before it ended. Raises ProtocolError: what follows cannot be read."""
        if out.link is not None:
            self._dispatch(out, out.link.drain())

    def make_idle(self, out: OutLink, link: Link) -> None:
        """Close the connection to a stopped actor, unless it is in use."""
        with self._table.lock:
            # First: `Driver.send` notes the call in `outstanding`, and looks at `early` after that.
            out.early = Early()
            if out.outstanding or not link.at_rest():
                out.early = None
                return
            self._table.release(out)
            out.idle, out.stopped, out.writing = True, False, False
        link.close()

    def _dispatch(self, out: OutLink, frames: list[Frame]) -> None:
        outstanding = out.outstanding
        for frame in frames:
            if frame.kind & STORED:
                frame = self._claim(frame)
            try:
                entry = outstanding.pop(frame.header[0], None)
            except (TypeError, LookupError) as error:
                raise ProtocolError(f"an answer that does not say to what: {error}") from None
            if entry is not None:
                entry[0].deliver(entry[1], frame)
            elif frame.kind == STATE:
                out.stopped = len(frame.header) > 1 and bool(frame.header[1])

    def _shake(self, out: OutLink, link: Link, handshake: ClientHandshake) -> list[Frame] | None:
        while True:
            try:
                data = link.sock.recv(256)
            except OSError as error:
                return [] if error.errno in LATER else None
            if not data:
                return None
            proof = handshake.receive_data(data)
            if proof:
                link.send([proof])
            if handshake.done:
                break
            if not link.pending:
                return []
        if out.server.pid not in (0, handshake.server.pid):
            # What was sent before is lost first, when the end of that process is known.
            raise ProtocolError(f"process {handshake.server.pid} has taken the place of {out.server.pid}")
        out.server = handshake.server
        out.refusals = 0
        self._dialler.proved(out)
        with self._table.lock:
            for parts in out.early.messages if out.early is not None else ():
                link.send(parts)
            out.handshake = out.early = None
        if not link.backlog:
            self._background(out, False)
        else:
            self._table.want_write(out)
        frames = link.feed(handshake.leftover) if handshake.leftover else []
        if link.pending:
            frames += link.read() or []
        return frames
