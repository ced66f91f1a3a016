"""Standard output and error of a rank: line by line, marked with the actor when it is not the rank's first."""

from __future__ import annotations

import io
import os
import threading

from meshrt.actor.context import current_call
from meshrt.host.output import LINE_MAX, MARK, RECORD_MARK

__all__ = ["LineOutput", "install_output"]


class LineOutput(io.RawIOBase):
    """A raw stream on a descriptor that writes whole lines; each thread collects its own until the newline.

    ``flush`` writes an unfinished line; what another thread writes then begins on a line of its own. So lines of two
    threads never mix, and a line of a second actor carries its name (`meshrt.host.output.MARK`).
    """

    def __init__(self, fd: int, name: str = "") -> None:
        #: What Python calls the stream, ``"<stdout>"``: scripts may ask for it.
        self.name = name
        self._fd = fd
        self._lock = threading.RLock()
        self._pending: dict[int, bytes] = {}
        #: The thread whose unfinished line was written last.
        self._open: int | None = None
        self.first_actor = ""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        text = bytes(data)
        thread = threading.get_ident()
        with self._lock:
            whole, newline, rest = (self._pending.pop(thread, b"") + text).rpartition(b"\n")
            if newline:
                self._emit(thread, whole + newline)
            if len(rest) > LINE_MAX:
                # The agent would cut it as well; to go on collecting would cost memory and, copied each time, hours.
                self._emit(thread, rest + b"\n")
            elif rest:
                self._pending[thread] = rest
        return len(text)

    def flush(self) -> None:
        """Write what this thread has collected; its line goes on."""
        thread = threading.get_ident()
        with self._lock:
            rest = self._pending.pop(thread, b"")
            if rest:
                self._emit(thread, rest)

    def push(self) -> None:
        """Write what every thread has collected and end their lines."""
        with self._lock:
            for thread, rest in tuple(self._pending.items()):
                del self._pending[thread]
                self._emit(thread, rest + b"\n")
            if self._open is not None:
                self._emit(self._open, b"\n")

    def keep(self, text: str) -> None:
        """Write lines that are for the log file alone, and not for the terminal."""
        most = LINE_MAX - len(RECORD_MARK)  # a longer one would be cut, and its second part have no mark
        lines = text.encode(errors="backslashreplace").split(b"\n")
        pieces = [line[at : at + most] for line in lines for at in range(0, max(1, len(line)), most)]
        data = b"".join(RECORD_MARK + piece + b"\n" for piece in pieces)
        with self._lock:
            if self._open is not None:
                data = b"\n" + data
                self._open = None
            self._write(data)

    def renew_lock(self) -> None:
        """In a forked child: another thread may have held the lock."""
        self._lock = threading.RLock()

    def _emit(self, thread: int, text: bytes) -> None:
        goes_on = self._open == thread
        call = current_call()
        name = self.first_actor if call is None else call.instance.name
        if name != self.first_actor or (name and MARK in text):  # what an actor prints is no mark of another one
            mark = MARK + name.encode() + MARK
            # Nothing behind the last newline: a line that begins there may be that of another actor.
            text = (b"" if goes_on else mark) + text[:-1].replace(b"\n", b"\n" + mark) + text[-1:]
        if self._open is not None and not goes_on:
            text = b"\n" + text
        self._open = None if text.endswith(b"\n") else thread
        self._write(text)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]


def install_output() -> tuple[LineOutput, LineOutput]:
    """Replace ``sys.stdout`` and ``sys.stderr`` of this process; returns the raw streams."""
    import sys  # start-up: nothing else here needs it

    raws = (LineOutput(1, "<stdout>"), LineOutput(2, "<stderr>"))
    sys.stdout = io.TextIOWrapper(raws[0], encoding="utf-8", errors="backslashreplace", write_through=True)
    sys.stderr = io.TextIOWrapper(raws[1], encoding="utf-8", errors="backslashreplace", write_through=True)
    sys.stdin = open(os.devnull)  # noqa: SIM115 - stays open as long as the process
    return raws
