"""Ranks with modules imported once: a process that imports them, forks the ranks, and ends.

Its ranks become children of the agent: the process in between ends at once and the agent is the subreaper. Each rank's
pid is reported through a pipe, ``"<rank> <pid>\\n"``; whatever follows without a newline says what failed.
"""

from __future__ import annotations

import importlib
import os
import time
import traceback
from collections.abc import Callable
from typing import Any

from meshrt.host.child import become_rank

__all__ = ["fork_through_zygote"]


def fork_through_zygote(
    prepared: list[Any], modules: list[str], env: dict[str, str], main: Callable[..., None]
) -> tuple[int, int]:
    """Fork the zygote. Returns its pid and the pipe that reports the ranks."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid:
        os.close(write_end)
        return pid, read_end
    try:
        os.close(read_end)
        os.environ.update(env)
        for module in modules:
            importlib.import_module(module)
        for child, plumbing in prepared:
            _fork_orphan(child, plumbing, write_end, main)
    except BaseException:
        os.write(write_end, b"preload failed: " + _one_line(traceback.format_exc()))
    finally:
        os._exit(0)


def _one_line(text: str) -> bytes:
    """The last line says what failed; the pipe's lines are taken."""
    return text.strip().splitlines()[-1].encode(errors="replace")


def _fork_orphan(child: Any, plumbing: Any, report: int, main: Callable[..., None]) -> None:
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    if os.fork():
        os._exit(0)
    while os.getppid() != child.birth.agent_pid:
        # The process in between is ending; the kernel gives this one to the agent then.
        time.sleep(0.0005)
    os.write(report, f"{child.birth.rank} {os.getpid()}\n".encode())
    become_rank(child.birth, plumbing, main)
