"""An adapter that an IDE starts itself, and speaks to through pipes. A `Client` uses it as it does a socket."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Sequence
from typing import IO

from tests.support.programs import environment

__all__ = ["Started"]

_SECONDS = 30.0


class Started:
    """The pipes to a process. Any thread."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment()
        )
        self._closing = threading.Lock()

    def sendall(self, data: bytes) -> None:
        """Write all of it. Raises OSError."""
        assert self._process.stdin is not None
        try:
            while data:
                data = data[self._process.stdin.write(data) :]
        except ValueError as error:
            raise BrokenPipeError("it is closed") from error

    def makefile(self, _mode: str) -> IO[bytes]:
        """Return what it writes."""
        assert self._process.stdout is not None
        return open(self._process.stdout.fileno(), "rb", closefd=False)

    def shutdown(self, _how: int) -> None:
        """Leave without a word: the process finds its standard input at its end."""
        assert self._process.stdin is not None
        with self._closing, contextlib.suppress(OSError):
            self._process.stdin.close()

    def close(self) -> None:
        """Wait for its end, which is a good one."""
        self.shutdown(0)
        with self._process:
            assert self._process.wait(_SECONDS) == 0
