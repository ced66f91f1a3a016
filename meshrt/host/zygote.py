"""Ranks with modules imported once: a process that imports them, forks the ranks, and ends.

Its ranks become children of the agent: the process in between ends at once and the agent is the subreaper. Each rank's
pid is reported through a pipe, ``"<rank> <pid>\\n"``; text without a newline at the end is the error.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable

from meshrt.host.child import Child, Plumbing, become_rank
from meshrt.host.osutil import die_with_parent

__all__ = ["Zygote"]


class Zygote:
    """The agent's side of such a process. The constructor forks it.

    Args:
        mesh_id: The mesh that it is for.
        prepared: ``(child, plumbing)`` of each rank.
        modules, env: What it imports, in which environment.
        main: What a rank runs.
    """

    def __init__(
        self,
        mesh_id: str,
        prepared: list[tuple[Child, Plumbing]],
        modules: list[str],
        env: dict[str, str],
        main: Callable[..., None],
    ) -> None:
        self.mesh_id = mesh_id
        self.children = [child for child, _ in prepared]
        self.pipe, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._buffer = b""
        agent = os.getpid()
        try:
            self.pid = os.fork()
        except OSError:
            os.close(self.pipe)
            os.close(write_end)
            raise
        if self.pid == 0:
            os.close(self.pipe)
            os.set_blocking(write_end, True)
            _be_zygote(agent, prepared, modules, env, write_end, main)
        os.close(write_end)
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except OSError:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self.pipe)
            raise

    def reports(self) -> list[tuple[int, int]]:
        """Return ``(rank, pid)`` of the ranks that have been forked since the last time."""
        with contextlib.suppress(BlockingIOError):
            self._buffer += os.read(self.pipe, 1 << 16)
        *lines, self._buffer = self._buffer.split(b"\n")
        return [(int(rank), int(pid)) for rank, _, pid in (line.partition(b" ") for line in lines)]

    def kill(self) -> None:
        """Kill it; the ranks that it has forked go on."""
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> str:
        """Reap it and close its pipe; returns why the ranks that it has not reported did not start."""
        os.waitpid(self.pid, 0)
        os.close(self.pipe)
        os.close(self.pidfd)
        return self._buffer.decode(errors="replace") or "the process that preloads modules died"


def _be_zygote(
    agent: int,
    prepared: list[tuple[Child, Plumbing]],
    modules: list[str],
    env: dict[str, str],
    report: int,
    main: Callable[..., None],
) -> None:
    try:
        die_with_parent(agent)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.environ.update(env)
        for module in modules:
            importlib.import_module(module)
        for child, plumbing in prepared:
            _fork_orphan(child, plumbing, report, main)
    except BaseException:
        os.write(report, b"preload failed: " + _one_line(traceback.format_exc()))
    finally:
        os._exit(0)


def _one_line(text: str) -> bytes:
    """The last line says what failed; the pipe's lines are taken."""
    return text.strip().splitlines()[-1].encode(errors="replace")


def _forked() -> int:
    # That a module has started a thread is a warning, and where warnings are errors one of those from Python 3.15 on.
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return os.fork()


def _fork_orphan(child: Child, plumbing: Plumbing, report: int, main: Callable[..., None]) -> None:
    middle = _forked()
    if middle:
        os.waitpid(middle, 0)
        return
    middle = os.getpid()
    orphan = _forked()
    if orphan:
        os.write(report, f"{child.birth.rank} {orphan}\n".encode())
        os._exit(0)
    while os.getppid() == middle:
        # The process in between is ending; the kernel gives this one to the agent then.
        time.sleep(0.0005)
    become_rank(child.birth, plumbing, main)
