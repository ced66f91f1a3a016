"""A process that a test talks to, line by line, and waits for with a limit."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Sequence
from typing import Self

from tests.dap.client import SECONDS

__all__ = ["Talking"]


class Talking:
    """A process with pipes to its standard input and output; a context manager, at whose end it is killed."""

    def __init__(self, command: Sequence[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors = ""
        self._threads = [
            threading.Thread(target=self._read_lines, name="talking-output", daemon=True),
            threading.Thread(target=self._read_errors, name="talking-errors", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.end()

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def said(self, count: int = 1, seconds: float = SECONDS) -> list[str]:
        """The next ``count`` lines of its standard output, sorted; fails the test with its errors if it ends before."""
        lines: list[str] = []
        for _ in range(count):
            try:
                line = self._lines.get(timeout=seconds)
            except queue.Empty:
                raise AssertionError(f"{count} lines expected, not within {seconds:g} s; got {lines}") from None
            if line is None:
                self._threads[1].join(SECONDS)
                raise AssertionError(f"{count} lines expected, ended after {lines}: {self._errors}")
            lines.append(line)
        return sorted(lines)

    def end(self) -> None:
        """Kill it. May be called again."""
        self.process.kill()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        for thread in self._threads:
            thread.join(SECONDS)

    def _read_lines(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                self._lines.put(line.rstrip())
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            self._errors = stream.read()
