"""The agent's end of its link to the root, and how much it keeps for a root that does not read.

The messages that may be left out: see `meshrt.transport.dropping`.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable, Mapping

from meshrt.selection import counted
from meshrt.transport.connecting import peer_address
from meshrt.transport.dropping import EVENT_BYTES, LOG_BYTES, WAIT_BYTES, Dropped, is_left_out
from meshrt.transport.link import Link
from meshrt.transport.liveness import AGENT_SECONDS, LOOK_SECONDS, Silence
from meshrt.wire.addresses import Port
from meshrt.wire.control import Address, Message, control_frame, passed_frame
from meshrt.wire.frames import Frame
from meshrt.wire.tree import DroppedOfRanks, Output, Warn

__all__ = ["RootGoneError", "RootLink"]

#: Bytes of output in one message, and lines.
_OUTPUT_BATCH = 512 << 10
_LINES_BATCH = 2000
#: Ranks in one message that says what was left out.
_RANKS_BATCH = 1000


class RootGoneError(Exception):
    """The root has ended."""


class RootLink:
    """Sends never block.

    Args:
        link: The link to the root.
        selector: Where it is waited for.
        receive: Takes each frame of the root.
        on_room: Called when the root has read what waited for it.
    """

    def __init__(
        self,
        link: Link,
        selector: selectors.BaseSelector,
        receive: Callable[[Frame], None],
        on_room: Callable[[], None],
    ) -> None:
        self._link = link
        self._selector = selector
        self._receive = receive
        #: Lines of output that were left out since the root was told of it.
        self._dropped = 0
        #: Events of ranks that were left out since then.
        self._events: dict[Address, Dropped] = {}
        #: Waiting messages, each of which replaces an earlier one of the same kind and rank.
        self._latest: dict[tuple[type[Message], Address], Message] = {}
        self._on_room = on_room
        self._silence = Silence(AGENT_SECONDS, LOOK_SECONDS)
        selector.register(link.sock, selectors.EVENT_READ, self._on_event)

    def tell(self, message: Message, address: Address | None = None) -> None:
        """Send a message that must not be lost: the agent's own, or that of the rank at ``address``."""
        self._send(control_frame(message, address))

    def _send(self, frame: bytes) -> None:
        if not self._link.send([frame]):
            self._selector.modify(self._link.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, self._on_event)

    @property
    def peer(self) -> Port | None:
        """Where this machine reaches the root; None: by a socket that it has inherited."""
        return peer_address(self._link.sock)

    def is_silent(self) -> bool:
        """Whether the root's machine is silent; asked every `LOOK_SECONDS`."""
        return self._silence.look(self._link.sock)

    @property
    def full(self) -> bool:
        """Whether so much waits to be sent that no more may be added."""
        return self._link.backlog_bytes > WAIT_BYTES

    def pass_on(self, message: Message, payload: memoryview | bytes, address: Address) -> None:
        """Send a message of a rank, which has come as ``payload``, unless too many wait and it may be left out."""
        if is_left_out(message, self._link.backlog_bytes):
            self.note_dropped(address, {message.ev: 1})
        else:
            self._send(passed_frame(message, payload, address))

    def note_dropped(self, address: Address, events: Mapping[str, int]) -> None:
        """Events of a rank were left out: the root is told when it reads."""
        dropped = self._events.setdefault(address, Dropped())
        for event, count in events.items():
            dropped.note(event, count)
        if not self._link.backlog:
            self._tell_dropped()

    def tell_latest(self, message: Message, address: Address) -> None:
        """Send a message that the next one of this kind about the same rank replaces."""
        key = (type(message), address)
        if self._link.backlog_bytes > EVENT_BYTES or key in self._latest:
            self._latest[key] = message
        else:
            self.tell(message)

    def output(self, address: Address, err: bool, lines: list[tuple[str, str]]) -> None:
        """Send lines that a rank has printed; if too many wait, they are in the files only."""
        if self._link.backlog_bytes > LOG_BYTES:
            self._dropped += len(lines)
            return
        batch: list[tuple[str, str]] = []
        size = 0
        for line in lines:
            batch.append(line)
            size += 4 * len(line[1])  # the most that UTF-8 makes of it
            if size > _OUTPUT_BATCH or len(batch) >= _LINES_BATCH:
                self._tell_output(address, err, batch)
                batch, size = [], 0
        if batch:
            self._tell_output(address, err, batch)

    def _tell_output(self, address: Address, err: bool, lines: list[tuple[str, str]]) -> None:
        self.tell(Output(*address, err, lines))

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
            latest, self._latest = self._latest, {}
            for message in latest.values():
                self.tell(message)
            self._tell_dropped()
            self._on_room()
            if self._dropped:
                count, self._dropped = self._dropped, 0
                self.tell(Warn(f"{counted(count, 'line')} of output not shown: the output was too fast; see the files"))

    def _tell_dropped(self) -> None:
        events, self._events = self._events, {}
        ranks = [(*address, dropped.take()) for address, dropped in events.items()]
        for start in range(0, len(ranks), _RANKS_BATCH):
            self.tell(DroppedOfRanks(ranks[start : start + _RANKS_BATCH]))
