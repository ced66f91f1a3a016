"""Standard output and error of a rank: line by line, marked with the actor when it is not the rank's first."""

from __future__ import annotations

import io
import os
import threading

from meshrt.actor.context import current_call
from meshrt.host.output import LINE_MAX, MARK

__all__ = ["LineOutput", "install_output"]


class LineOutput(io.RawIOBase):
    """A raw stream on a descriptor that writes whole lines; each thread collects its own until the newline.

    So lines of two threads never mix, and a line of a second actor carries its name (`meshrt.host.output.MARK`).
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._local = threading.local()
        self.first_actor = ""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        text = bytes(data)
        pending = getattr(self._local, "pending", b"") + text
        whole, newline, rest = pending.rpartition(b"\n")
        self._local.pending = rest
        if newline:
            self._write(whole + newline)
        elif len(rest) > LINE_MAX:
            # The agent would cut it as well; collecting on would cost memory and, copied each time, hours.
            self.push()
        return len(text)

    def push(self) -> None:
        """Write what this thread has collected although no newline came."""
        rest = getattr(self._local, "pending", b"")
        if rest:
            self._local.pending = b""
            self._write(rest + b"\n")

    def _write(self, lines: bytes) -> None:
        call = current_call()
        if call is not None and call.instance.name != self.first_actor:
            mark = MARK + call.instance.name.encode() + MARK
            lines = b"".join(mark + line + b"\n" for line in lines[:-1].split(b"\n"))
        while lines:
            lines = lines[os.write(self._fd, lines) :]


def install_output() -> tuple[LineOutput, LineOutput]:
    """Replace ``sys.stdout`` and ``sys.stderr`` of this process; returns the raw streams."""
    import sys  # start-up: nothing else here needs it

    raws = (LineOutput(1), LineOutput(2))
    sys.stdout = io.TextIOWrapper(raws[0], encoding="utf-8", errors="backslashreplace", write_through=True)
    sys.stderr = io.TextIOWrapper(raws[1], encoding="utf-8", errors="backslashreplace", write_through=True)
    sys.stdin = open(os.devnull)  # noqa: SIM115 - stays open as long as the process
    return raws
