"""How processes that ``meshrt attach`` takes in tell it what becomes of them: its folder, and the socket there.

The folder is in the runtime base of the user. A script stays there until its process runs it, which may be after the
command; the last process removes the folder then. What belongs to processes that have ended is removed by the next
command.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import shutil
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from meshrt.transport.acceptor import listening_socket
from meshrt.transport.kernel import kernel_state
from meshrt.transport.link import peer_of, same_user
from meshrt.transport.writing import write_atomic

__all__ = ["Arrivals", "Folder"]

#: ``"loading"``, ``"here"``, ``"joined"`` or ``"failed"``, and why; by pid.
Arrivals = Mapping[int, tuple[str, str]]

_PREFIX = "attach-"
_SOCKET = "told"
#: Seconds for processes that have arrived, until they have joined: the program has to be started.
_JOINING = 40.0
#: Seconds between two looks at the processes, and bytes of what one of them tells.
_LOOK, _MOST = 0.05, 1 << 16
#: Nanoseconds after which a folder is not one that is just being made.
_MADE = 60_000_000_000


class Folder:
    """The folder of one command. A context: at its end, scripts that may still run are left.

    Args:
        base: The runtime base of the user.
    """

    def __init__(self, base: Path) -> None:
        _sweep(base)
        self._path = base / f"{_PREFIX}{secrets.token_hex(4)}"
        self._path.mkdir(mode=0o700)
        self.teller = str(self._path / _SOCKET)
        self._listener = listening_socket(self.teller)
        self._pending: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.close()
        left = {pid for pid in self._pending if self.script(pid).exists() and kernel_state(pid)}
        for script in self._path.glob("*.py") if left else ():
            if int(script.stem) not in left:
                script.unlink(missing_ok=True)
        if not left:
            shutil.rmtree(self._path, ignore_errors=True)

    def script(self, pid: int) -> Path:
        """Return the file that a process is to run."""
        return self._path / f"{pid}.py"

    def write(self, pid: int, text: str) -> Path:
        """Write the file that a process is to run. Raises OSError."""
        write_atomic(self.script(pid), text, private=True)
        return self.script(pid)

    def expect(self, pid: int) -> None:
        """A process is going to run its file, now or later."""
        self._pending.add(pid)

    def wait(self, seconds: float) -> Arrivals:
        """Return what becomes of the processes that are to run their files.

        Args:
            seconds: For how long one is waited for that runs nothing.
        """
        found: dict[int, tuple[str, str]] = {}
        begun = time.monotonic()
        with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._is_over(found, time.monotonic() - begun, seconds):
                for key, _ in selector.select(_LOOK):
                    guest: _Guest | None = key.data
                    if guest is None:
                        sock = stack.enter_context(self._listener.accept()[0])
                        if same_user(sock):
                            selector.register(sock, selectors.EVENT_READ, _Guest(sock))
                        else:
                            sock.close()
                    elif not guest.read(found):
                        selector.unregister(guest.sock)
        return found

    def _is_over(self, found: Arrivals, passed: float, seconds: float) -> bool:
        silent = passed < seconds and any(map(kernel_state, self._pending - found.keys()))
        joining = passed < seconds + _JOINING and any(state in ("loading", "here") for state, _ in found.values())
        return not (silent or joining)


class _Guest:
    """A process that has come."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._pid = peer_of(sock)[0]
        self._told = b""

    def read(self, found: dict[int, tuple[str, str]]) -> bool:
        """Read what it tells; returns whether there may be more."""
        try:
            data = self.sock.recv(_MOST)
        except OSError:
            data = b""
        self._told = (self._told + data)[-_MOST:]
        *_, last = ["", *self._told.decode("utf-8", "replace").split("\n")[:-1]]
        state, _, why = last.partition(": ")
        if state:
            found[self._pid] = (state, why)
        if not data and state == "here":
            found[self._pid] = ("failed", "it has ended")
        return bool(data)


def _sweep(base: Path) -> None:
    """Remove what was left for processes that have ended."""
    for entry in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            scripts = [int(each.stem) for each in entry.glob("*.py")]
            age = time.time_ns() - os.stat(entry).st_mtime_ns
            if age > _MADE and not any(map(kernel_state, scripts)):
                shutil.rmtree(entry, ignore_errors=True)
