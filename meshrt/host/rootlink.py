"""The agent's end of its link to the root, and how much output of ranks it takes on."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from typing import Any

from meshrt.transport.link import Link
from meshrt.wire.frames import Frame, control_decoder
from meshrt.wire.messages import Address, control_frame

__all__ = ["RootGoneError", "RootLink"]

#: Bytes of output that may wait for a root that does not read; beyond, lines go to the files only.
_OUTPUT_LIMIT = 4 << 20
#: Bytes of output in one message.
_OUTPUT_BATCH = 512 << 10


class RootGoneError(Exception):
    """The root has ended."""


class RootLink:
    """Sends never block.

    Args:
        control: The connected socket.
        selector: Where it is waited for.
        receive: Takes each frame of the root.
    """

    def __init__(
        self, control: socket.socket, selector: selectors.BaseSelector, receive: Callable[[Frame], None]
    ) -> None:
        self._link = Link(control, control_decoder())
        self._selector = selector
        self._receive = receive
        #: Lines of output that were left out since the root was told of it.
        self._dropped = 0
        selector.register(control, selectors.EVENT_READ, self._on_event)

    def tell(self, message: dict[str, Any], address: Address | None = None) -> None:
        """Send a message: the agent's own, or that of the rank at ``address``."""
        if not self._link.send([control_frame(message, address)]):
            self._selector.modify(self._link.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, self._on_event)

    def output(self, address: Address, err: bool, lines: list[tuple[str, str]]) -> None:
        """Send lines that a rank has printed, unless too many wait already."""
        if self._link.backlog_bytes > _OUTPUT_LIMIT:
            self._dropped += len(lines)
            return
        batch: list[tuple[str, str]] = []
        size = 0
        for line in lines:
            batch.append(line)
            size += 4 * len(line[1])  # the most that UTF-8 makes of it
            if size > _OUTPUT_BATCH:
                self._tell_output(address, err, batch)
                batch, size = [], 0
        if batch:
            self._tell_output(address, err, batch)

    def _tell_output(self, address: Address, err: bool, lines: list[tuple[str, str]]) -> None:
        self.tell({"t": "output", "mesh": address[0], "rank": address[1], "err": err, "lines": lines})

    def _on_event(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush()
        if events & selectors.EVENT_READ:
            frames = self._link.read()
            if frames is None:
                raise RootGoneError
            for frame in frames:
                self._receive(frame)

    def _flush(self) -> None:
        if self._link.flush():
            self._selector.modify(self._link.sock, selectors.EVENT_READ, self._on_event)
            if self._dropped:
                count, self._dropped = self._dropped, 0
                self.tell({"t": "warning", "text": f"{count} lines of output were too fast; they are in the files"})
