"""What ranks print on another machine than the script's: sent to the root, which writes the files.

The root confirms what it has written. At most `WINDOW` bytes are on their way, so that other messages do not wait
behind output. What is beyond waits here, up to `LIMIT` bytes; then the oldest lines of the rank that has most are left
out, and the root is told how many. So a rank never waits because it prints.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from meshrt.host.output import LastLines, Log, unmarked
from meshrt.wire.control import Address
from meshrt.wire.tree import Printed

__all__ = ["LIMIT", "WINDOW", "OutputQueue", "SentLog"]

#: Bytes on their way, and bytes that wait, of all ranks of an agent.
WINDOW = 1 << 20
LIMIT = 32 << 20
#: Bytes of one message.
_BATCH = 128 << 10


class _Waiting:
    """The output of one rank."""

    __slots__ = ("done", "left_out", "pieces", "size")

    def __init__(self) -> None:
        #: Whether it is of standard error, and whole lines.
        self.pieces: deque[tuple[bool, bytes]] = deque()
        self.size = 0
        #: Lines that were left out before these.
        self.left_out = 0
        #: Nothing follows.
        self.done = False


class OutputQueue:
    """The output of the ranks of one agent. On its thread.

    Args:
        send: Sends a message to the root.
        sent: Called when nothing waits any more.
    """

    def __init__(self, send: Callable[[Printed], None], sent: Callable[[], None]) -> None:
        self._send = send
        self._sent = sent
        #: The next one to be sent of comes first.
        self._waiting: dict[Address, _Waiting] = {}
        self._size = 0
        self._under_way = 0

    def add(self, address: Address, err: bool, lines: bytes) -> None:
        """A rank has printed whole lines."""
        waiting = self._waiting.setdefault(address, _Waiting())
        waiting.pieces.append((err, lines))
        waiting.size += len(lines)
        self._size += len(lines)
        self._pump()
        while self._size > LIMIT:
            self._leave_out(max(self._waiting.values(), key=lambda each: each.size))

    def _leave_out(self, waiting: _Waiting) -> None:
        _, lines = waiting.pieces.popleft()
        waiting.size -= len(lines)
        self._size -= len(lines)
        waiting.left_out += lines.count(b"\n")

    def end(self, address: Address) -> None:
        """A rank has ended: its file is closed behind what waits."""
        self._waiting.setdefault(address, _Waiting()).done = True
        self._pump()

    def kept(self, cost: int) -> None:
        """The root has written so much."""
        self._under_way -= cost
        self._pump()

    def waits(self, mesh: str) -> bool:
        """Whether output of a mesh was not sent yet."""
        return any(of == mesh for of, _ in self._waiting)

    def give_up(self, mesh: str) -> None:
        """Leave out what waits of a mesh: the root does not take it in time."""
        for address in [address for address in self._waiting if address[0] == mesh]:
            waiting = self._waiting[address]
            while waiting.pieces:
                self._leave_out(waiting)
            self._send_next(address)  # how many are left out
        self._sent()

    def _pump(self) -> None:
        if not self._waiting:
            return
        while self._waiting and self._under_way < WINDOW:
            self._send_next(next(iter(self._waiting)))
        if not self._waiting:
            self._sent()

    def _send_next(self, address: Address) -> None:
        waiting = self._waiting.pop(address)
        printed = self._next(address, waiting)
        if waiting.pieces:
            self._waiting[address] = waiting  # behind the others
        self._under_way += printed.cost
        self._send(printed)

    def _next(self, address: Address, waiting: _Waiting) -> Printed:
        """Take the next message of a rank."""
        err = waiting.pieces[0][0] if waiting.pieces else False
        lines: list[bytes] = []
        size = 0
        while waiting.pieces and waiting.pieces[0][0] == err and size < _BATCH:
            lines.append(waiting.pieces.popleft()[1])
            size += len(lines[-1])
        waiting.size -= size
        self._size -= size
        left_out, waiting.left_out = waiting.left_out, 0
        return Printed(*address, err, b"".join(lines), left_out, waiting.done and not waiting.pieces)


class SentLog(Log):
    """In the place of a log file (`meshrt.host.output.RankLog`): what one rank prints goes to the root."""

    def __init__(self, address: Address, queue: OutputQueue, warn: Callable[[str], None]) -> None:
        super().__init__(warn)
        self._address = address
        self._queue = queue

    def take(self, pieces: Sequence[bytes], err: bool) -> list[tuple[str, str]]:
        """Take lines; returns those to be shown: none, the root shows what it writes."""
        if pieces:
            self.tail.extend(unmarked(pieces[-LastLines.COUNT :]).texts)
            self._queue.add(self._address, err, b"".join(piece + b"\n" for piece in pieces))
        return []

    def close(self) -> None:
        """Nothing follows."""
        self._queue.end(self._address)
