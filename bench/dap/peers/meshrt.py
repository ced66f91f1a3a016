"""meshrt: one proc mesh along one dimension, and the router of the program's own, or ``meshrt dap`` beside it."""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

from bench.peers.protocol import Peer

__all__ = ["PEER", "Debuggee", "Router"]

PATIENCE = 60.0
LISTENS = "an IDE can attach "


class Process:
    """A Python process that is told things line by line; what it says is read all the time."""

    def __init__(self, *arguments: str) -> None:
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._addresses: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self._follow(self._process.stdout, self._hear)
        self._follow(self._process.stderr, self._complain)

    def address(self) -> tuple[str, int]:
        """Wait until it has said where an IDE can attach. Raises queue.Empty where it never does."""
        return self._addresses.get(timeout=PATIENCE)

    def tell(self, order: str) -> None:
        """Have it do something."""
        stdin: Any = self._process.stdin
        stdin.write(f"{order}\n")
        stdin.flush()

    def wait(self) -> None:
        """Wait for its next line. Raises queue.Empty where there is none."""
        self._said.get(timeout=PATIENCE)

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()

    def _follow(self, stream: IO[str] | None, heard: Callable[[str], None]) -> None:
        def read() -> None:
            for line in stream or ():
                heard(line.rstrip("\n"))

        threading.Thread(target=read, daemon=True).start()

    def _hear(self, line: str) -> None:
        if not self._listens(line):
            self._said.put(line)

    def _complain(self, line: str) -> None:
        if not self._listens(line):
            print(line, file=sys.stderr)

    def _listens(self, line: str) -> bool:
        if LISTENS not in line:
            return False
        words = line.partition(LISTENS)[2].replace(";", " ").split()
        host, _, port = next(word for word in words if word.startswith("127.0.0.1:")).partition(":")
        self._addresses.put((host, int(port)))
        return True


def configuration_of(pid: int, port: int) -> dict[str, Any]:
    """Return the launch configuration with which an IDE attaches to a program at a port."""
    command = [sys.executable, "-m", "meshrt", "dap", str(pid), "--no-serve", "--port", str(port)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout
    return dict(json.loads(said.partition(":\n")[2]))


class Router(Process):
    """``meshrt dap`` beside a program."""

    def __init__(self, pid: int) -> None:
        super().__init__("-m", "meshrt", "dap", str(pid), "--port", "0")
        self.at = self.address()
        self.configuration = configuration_of(pid, self.at[1])


class Debuggee(Process):
    """A running :mod:`bench.dap.program`, and where an IDE can attach to it."""

    def __init__(self, ranks: int) -> None:
        super().__init__("-m", "bench.dap.program", str(ranks))
        self.wait()
        self.at = self.address()
        self.configuration = configuration_of(self.pid, self.at[1])

    def stop(self) -> None:
        """End it, whatever it does."""
        self.end()


async def start(count: int) -> Any:
    """Start ``count`` ranks of a program that asks for a port."""
    return Debuggee(count)


PEER = Peer(start)
