"""What a program has on this machine before anything of it runs: its id, its secret, its directories, its pipe."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

import msgspec

from meshrt.mesh.run_id import take_run_id
from meshrt.store.limits import LOGS_LIMIT, RUNS_LIMIT, size_asked_for, store_limit
from meshrt.store.machine import machine_of
from meshrt.transport import directories, dirlock
from meshrt.transport.rootpipe import RootPipe
from meshrt.wire.addresses import HostAddress, Port
from meshrt.wire.certificate import Certificate
from meshrt.wire.handshake import Secret

__all__ = ["Limits", "Run", "working_directory"]

#: Bytes of the logs of ranks for each host agent, and of the directories of programs that have ended.
_LOGS_MAX = 1 << 30
_RUNS_MAX = 4 << 30


class Limits(msgspec.Struct, frozen=True):
    """What the user allows the program to take, in bytes.

    Attributes:
        store: Shared memory of a host (`meshrt.store.limits.store_limit`).
        logs: Logs of the ranks of a host agent.
        runs: Directories of programs that have ended.
    """

    store: int
    logs: int
    runs: int

    @classmethod
    def from_environment(cls) -> Limits:
        """Read them. Raises UsageError for a variable that is not a size."""
        return cls(store_limit(), size_asked_for(LOGS_LIMIT, _LOGS_MAX), size_asked_for(RUNS_LIMIT, _RUNS_MAX))


class Run:
    """One run of a program. The thread that makes the root, unless said otherwise.

    Raises:
        UsageError, OSError: There is no place for its directories, or no descriptor is free. Nothing is left then.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.run_id: str = take_run_id()
        self.pid: int = os.getpid()
        #: Seconds since the epoch; for display only: deadlines use the monotonic clock.
        self.started: float = time.clock_gettime(time.CLOCK_REALTIME)
        #: What every link of the program proves.
        self.secret: Secret = Secret(secrets.token_bytes(32))
        #: What processes on other machines show each other, and where they reach this one; made for the first of them.
        self.certificate: Certificate | None = None
        self.ports: tuple[Port, ...] = ()
        #: Lines for the terminal: for example that a directory is not at its usual place.
        self.notes: list[str] = []
        with contextlib.ExitStack() as undo:  # for the next attempt: descriptors may be short
            self.runtime_directory: Path = directories.create_runtime(self.run_id, self.notes.append)
            undo.callback(directories.discard, self.runtime_directory)
            #: Its end tells agents and ranks that this process has ended.
            self.pipe: RootPipe = RootPipe(self.runtime_directory)
            undo.callback(self.pipe.close)
            self.run_directory: Path = directories.create_run(self.run_id, self.notes.append, limits.runs)
            undo.pop_all()

    @property
    def directory(self) -> str:
        """The runtime directory, as the paths of sockets begin."""
        return str(self.runtime_directory)

    @property
    def address(self) -> HostAddress:
        """Where the script itself listens, for actors of its own."""
        return HostAddress(machine_of(0), 0, os.fsencode(self.runtime_directory), self.ports)

    @property
    def is_here(self) -> bool:
        """Whether this process is the program, and not a fork of it."""
        return os.getpid() == self.pid

    def discard(self) -> None:
        """Undo all of it: the root could not be made."""
        directories.discard(self.run_directory)
        self.pipe.close()
        directories.discard(self.runtime_directory)

    def close(self) -> None:
        """The program has ended: keep the files that a user reads afterwards."""
        self.pipe.close()
        directories.discard(self.runtime_directory)
        if directories.is_empty(self.run_directory):
            directories.remove_tree(self.run_directory)
        dirlock.end(self.run_directory)

    def abandon(self) -> None:
        """Close the pipe in a forked child: otherwise agents and ranks would not see the end of the program."""
        self.pipe.close()


def working_directory() -> str:
    """Return the working directory; "" if it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""
