"""The standard error of a host agent: why it does not start, and the output of modules that it preloads."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

__all__ = ["AgentOutput"]

#: Lines that an error carries, and bytes after which a line without a newline is cut.
_LINES = 20
_LINE_MAX = 8 << 10


class AgentOutput:
    """Forwards it line by line, and keeps the last lines. One thread at a time.

    Not inherited from the script: what is printed there reaches no notebook, and no error.

    Args:
        pipe: The end to read from; None where the engine does not read it.
        write: Takes whole lines.
    """

    def __init__(self, pipe: IO[bytes] | None, write: Callable[[str], None]) -> None:
        self._pipe = pipe
        self._write = write
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rest = b""
        self._tail: deque[str] = deque(maxlen=_LINES)
        if pipe is not None:
            os.set_blocking(pipe.fileno(), False)

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines."""
        return tuple(self._tail)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read when there is something; on the loop's thread."""
        if self._pipe is not None:
            self._loop = loop
            loop.add_reader(self._pipe.fileno(), self.read)

    def detach(self) -> None:
        """Read what is there, as if it were all, and no more by itself; on the loop's thread."""
        if self._loop is not None and self._pipe is not None:
            self._loop.remove_reader(self._pipe.fileno())
            self._loop = None
        self.read()
        self._end_line()

    def read(self) -> None:
        """Read what is there."""
        with contextlib.suppress(BlockingIOError):
            while self._pipe is not None:
                data = os.read(self._pipe.fileno(), 1 << 16)
                if not data:
                    self.close()
                    return
                *lines, self._rest = (self._rest + data).split(b"\n")
                if len(self._rest) > _LINE_MAX:
                    lines, self._rest = [*lines, self._rest], b""
                self._pass_on(lines)

    def close(self) -> None:
        """Close the pipe."""
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            if self._loop is not None:
                self._loop.remove_reader(pipe.fileno())
                self._loop = None
            pipe.close()
            self._end_line()

    def abandon(self) -> None:
        """Close the descriptor in a forked child."""
        if self._pipe is not None:
            self._pipe.close()

    def _end_line(self) -> None:
        rest, self._rest = self._rest, b""
        if rest:
            self._pass_on([rest])

    def _pass_on(self, lines: list[bytes]) -> None:
        texts = [line.decode(errors="replace") for line in lines]
        if texts:
            self._tail.extend(text[-_LINE_MAX:] for text in texts)
            self._write("".join(f"{text}\n" for text in texts))
