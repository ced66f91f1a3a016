"""The callers of actors that were stopped: their messages are answered here, so that the actors hold no resources.

An actor: ``stopped -> begins again`` with the next INIT, which takes all its callers over. Every caller is told of both
(`meshrt.wire.messages.STATE`). A caller closes its link once it waits for no answer; a link is never closed from here,
so that all data is read. A name is kept for as long as the process lives: calls that come late find it.
"""

from __future__ import annotations

import errno
import functools
import logging
import selectors
from collections import deque
from collections.abc import Callable

from meshrt.actor.callers import Message
from meshrt.actor.ending import ActorEnds
from meshrt.actor.execute import told_of
from meshrt.errors import ProtocolError
from meshrt.transport.link import Link
from meshrt.transport.process import current_runtime
from meshrt.wire.errors import error_to_wire
from meshrt.wire.frames import Buffer, Frame, pack_header, split_frames
from meshrt.wire.handshake import Identity
from meshrt.wire.messages import CALL, CANCEL, ERROR, INIT, NO_ERROR, NO_REPLY, RESULT, STATE, STOP, STORED

__all__ = ["StoppedActors"]

#: So many STOPs are remembered, of all actors.
_STOPS = 256


class StoppedActors:
    """Served by the control thread, to which everything here belongs.

    Args:
        selector: That of the control thread; its keys' data are called with the events.
        begin: ``begin(actor, links, messages)`` when an INIT has come, which is the first of the messages.
    """

    def __init__(
        self, selector: selectors.BaseSelector, begin: Callable[[str, list[Link], list[Message]], None]
    ) -> None:
        self._selector = selector
        self._begin = begin
        self._links: dict[str, set[Link]] = {}
        #: How actors have ended themselves.
        self._why: dict[str, ActorEnds] = {}
        #: The STOPs that were answered: actor, caller and number.
        self._answered: deque[tuple[str, Identity, int]] = deque(maxlen=_STOPS)

    def __contains__(self, actor: str) -> bool:
        return actor in self._links

    def has_answered(self, actor: str, caller: Identity, call_id: int) -> bool:
        """Whether a STOP was answered."""
        return (actor, caller, call_id) in self._answered

    def add(self, actor: str, links: list[Link], messages: list[Message], why: ActorEnds | None = None) -> None:
        """Serve these callers of a stopped actor, beginning with what has been read from them.

        Args:
            why: It has ended itself so.
        """
        if why is not None:
            self._why[actor] = why
        known = self._links.setdefault(actor, set())
        for link in links:
            try:
                self._selector.register(link.sock, selectors.EVENT_READ, functools.partial(self._ready, actor, link))
            except (OSError, ValueError, KeyError) as error:
                if isinstance(error, OSError) and error.errno != errno.EBADF:
                    logging.getLogger("meshrt").error("a caller of %s cannot be served: %s", actor, error.strerror)
                    link.close()
                else:
                    link.sock.detach()  # user code has closed its descriptor; the number may be another's by now
                continue
            known.add(link)
            self._send(link, _state(stopped=True))
        self._serve(actor, messages)

    def close(self) -> None:
        """Close the links, when the selector is closed."""
        for links in self._links.values():
            for link in links:
                link.close()

    def abandon(self) -> None:
        """Close the links in a forked child, where the locks may be held by a thread that does not exist."""
        for links in self._links.values():
            for link in tuple(links):
                link.sock.close()

    def _ready(self, actor: str, link: Link, events: int) -> None:
        if link not in self._links.get(actor, ()):
            return  # given away since it was found ready
        if events & selectors.EVENT_WRITE:
            if link.flush():
                self._selector.modify(link.sock, selectors.EVENT_READ, self._selector.get_key(link.sock).data)
            return
        try:
            frames = link.read()
        except (ProtocolError, MemoryError):
            frames = None
        if frames is None:
            self._drop(actor, link)
        else:
            self._serve(actor, [(link, frame) for frame in frames])

    def _serve(self, actor: str, messages: list[Message]) -> None:
        for index, (link, frame) in enumerate(messages):
            if frame.kind & STORED:
                try:
                    frame = current_runtime().store.claim(frame)
                except ProtocolError:
                    self._drop(actor, link)
                    continue
                messages[index] = link, frame
            if frame.kind == INIT:
                self._begin_anew(actor, messages[index:])
                return
            try:
                answer = _answer_to(frame, self._why.get(actor))
            except ProtocolError:
                self._drop(actor, link)
                continue
            if frame.kind == STOP:
                self._answered.append((actor, link.client, frame.header[0]))
            if answer:
                self._send(link, answer)

    def _begin_anew(self, actor: str, messages: list[Message]) -> None:
        links = self._links.pop(actor)
        self._why.pop(actor, None)
        for link in links:
            self._selector.unregister(link.sock)
            link.send(_state(stopped=False))
        self._begin(actor, list(links), messages)

    def _send(self, link: Link, parts: list[Buffer]) -> None:
        # One that does not read its answers is not read from.
        if not link.send(parts) and not link.closed:
            self._selector.modify(link.sock, selectors.EVENT_WRITE, self._selector.get_key(link.sock).data)

    def _drop(self, actor: str, link: Link) -> None:
        if link in self._links[actor]:
            self._links[actor].remove(link)
            self._selector.unregister(link.sock)
            link.close()


def _state(*, stopped: bool) -> list[Buffer]:
    return [pack_header(STATE, [0, stopped])]


def _answer_to(frame: Frame, why: ActorEnds | None) -> list[Buffer] | None:
    try:
        if frame.kind == CALL:
            call_id, _, _, _, flags = frame.header
            if why is not None and not flags & NO_REPLY:
                return split_frames(ERROR, [call_id, error_to_wire(told_of(why)), [], "ended"], [])
            return None if flags & NO_REPLY else split_frames(ERROR, [call_id, NO_ERROR, [], "stopped"], [])
        if frame.kind == STOP:
            call_id, *_ = frame.header
            return [pack_header(RESULT, [call_id, None])]
        if frame.kind == CANCEL:
            return None  # its call was answered
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"a message that cannot be read: {error}") from None
    raise ProtocolError(f"an actor does not accept messages of kind {frame.kind}")
