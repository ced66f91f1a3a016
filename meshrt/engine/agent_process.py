"""A process of this machine that is an agent: how it is started, and how one is started early.

An agent takes as long to load what it needs as a script. `started_early` starts the one that the first mesh of a
program will most probably need before the script loads its part, so that both do so at the same time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from meshrt.host.osutil import RUN_VARIABLE
from meshrt.mesh.default_engine import default_engine
from meshrt.mesh.run_id import next_run_id
from meshrt.transport.helper import interpreter

__all__ = ["AGENT_PROGRAM", "AgentProcess", "start_agent", "started_early", "take_early"]

AGENT_PROGRAM = Path(__file__).with_name("agent_main.py")
#: How many standard streams there are: theirs are the first descriptors.
_STREAMS = 3


class AgentProcess(NamedTuple):
    """An agent that was started.

    Attributes:
        mark: Marks every process below it, see `RUN_VARIABLE`.
        socket: This end of its control link; it ends when that is closed.
    """

    mark: str
    process: subprocess.Popen[bytes]
    socket: socket.socket

    def undo(self) -> None:
        """End it, and wait for that."""
        self.socket.close()
        self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()


#: The thread that has started it, and the agent.
_early: tuple[int, AgentProcess] | None = None
_lock = threading.Lock()


def start_agent(mark: str) -> AgentProcess:
    """Start an agent; does not wait for it. Raises OSError: no process or descriptor is free."""
    ours, theirs = map(_above_streams, socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
    try:
        process = subprocess.Popen(
            [*interpreter(), str(AGENT_PROGRAM), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            # A session of its own: Ctrl-C at the terminal reaches the script alone.
            start_new_session=True,
            env={**os.environ, RUN_VARIABLE: mark},
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return AgentProcess(mark, process, ours)


def _above_streams(end: socket.socket) -> socket.socket:
    """Return the socket with another descriptor than a standard stream has, which may be closed in this process."""
    if end.fileno() >= _STREAMS:
        return end
    with end:
        return socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _STREAMS))


@contextlib.contextmanager
def started_early(local: bool) -> Iterator[None]:
    """Have an agent start now if this is the first mesh of this process; end it if the block has not taken it.

    Args:
        local: Whether the local engine is asked for. It is not used where there is another default.
    """
    # Loaded where a mesh or a rank is, or was: then there is an agent, or little is left to load.
    if not local or default_engine() is not None or "meshrt.transport.process" in sys.modules:
        yield
        return
    try:
        _start_early()
        yield
    finally:
        _undo_own()


def _start_early() -> None:
    global _early
    with _lock, contextlib.suppress(OSError):  # who starts it again says why it cannot be started
        if _early is None:
            _early = threading.get_ident(), start_agent(f"{next_run_id()}.0")


def _undo_own() -> None:
    """End the agent that this thread has started early, unless it was taken."""
    global _early
    with _lock:
        if _early is None or _early[0] != threading.get_ident():
            return
        left, _early = _early[1], None
    left.undo()


def take_early(run_id: str) -> AgentProcess | None:
    """Return the agent that was started early for this program, once. Any thread."""
    global _early
    with _lock:
        if _early is None or _early[1].mark.partition(".")[0] != run_id:
            return None
        taken, _early = _early[1], None
        return taken


def _in_forked_child() -> None:
    """It is the parent's: only the parent may keep its link open."""
    global _early, _lock
    _lock = threading.Lock()
    if _early is not None:
        _early[1].socket.close()
        _early = None


os.register_at_fork(after_in_child=_in_forked_child)
