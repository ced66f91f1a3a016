"""What the fault tests observe: processes by pid, and programs that are started, talked to and killed."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import pytest

import meshrt
from meshrt.host.osutil import RUN_VARIABLE
from meshrt.transport.kernel import kernel_state
from meshrt.transport.process import current_runtime
from tests.support.programs import environment
from tests.support.waiting import wait_until

__all__ = [
    "Program",
    "agents",
    "agents_with",
    "all_gone",
    "descendants",
    "is_alive",
    "next_agents_with",
    "runtime_directories",
    "sockets",
]

#: The longest that anything in these tests is waited for, seconds: a watchdog, not a measurement.
LONG = 20.0


def is_alive(pid: int) -> bool:
    """Whether a process runs: neither gone nor a zombie."""
    return kernel_state(pid) not in ("", "Z", "X")


def all_gone(pids: list[int], seconds: float) -> None:
    """Wait until no process of ``pids`` runs."""
    wait_until(lambda: not any(map(is_alive, pids)), seconds, f"the end of {pids}")


_AGENT = """
import sys
sys.path[:0] = {path!r}
from meshrt.engine import agent_main
from meshrt.host import agent, pulse
{settings}
agent_main.main()
"""


def agents_with(settings: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this program agents that run ``settings`` first, which sets constants of ``agent`` and ``pulse``."""
    next_agents_with(settings, folder, monkeypatch)
    meshrt.shutdown_context()  # the next mesh is given such an agent


def next_agents_with(settings: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `agents_with`, and those that there are stay."""
    program = folder / "agent.py"
    program.write_text(_AGENT.format(path=sys.path, settings=settings))
    for user in ("agent_process", "command"):
        monkeypatch.setattr(f"meshrt.engine.{user}.AGENT_PROGRAM", program)


def descendants(pid: int) -> list[int]:
    """Return every process below ``pid``."""
    try:
        return [process.pid for process in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def agents(pid: int | None = None) -> list[int]:
    """Return the host agents of a program (of this process by default), in the order of their start."""
    found = []
    for process in psutil.Process(pid).children():
        with contextlib.suppress(psutil.Error):
            if process.name() == "meshrt-agent":
                # Not by their pids, which begin again some day.
                found.append((int(process.environ()[RUN_VARIABLE].partition(".")[2]), process.pid))
    return [pid for _, pid in sorted(found)]


def runtime_directories() -> list[Path]:
    """Return the runtime directories that exist."""
    base = Path(os.environ["MESHRT_RUNTIME_DIR"])
    return sorted(base.iterdir()) if base.exists() else []


def sockets() -> list[str]:
    """Return the paths at which this program listens: the tools' first, then the ranks', those of stores last."""
    directory = Path(current_runtime().directory)
    found = [str(path) for path in directory.iterdir() if stat.S_ISSOCK(path.stat().st_mode)]
    return sorted(found, key=lambda path: (not path.endswith("/tools"), "/store." in path))


class Program:
    """A script in a process of its own that tells facts: ``tell(name=value)``; killed at the latest at the end.

    Args:
        script: Its source; ``tell`` is there.
        folder: Where the script and its output are written.
        launcher: Runs it, as ``nice`` would.
    """

    _PRELUDE = """
        import json, os, signal, sys, threading, time
        from meshrt import *
        from tests.faults.actors import *
        def tell(**facts):
            os.write(int(os.environ["TELL"]), (json.dumps(facts) + "\\n").encode())
    """

    def __init__(
        self,
        script: str,
        folder: Path,
        *arguments: str,
        env: dict[str, str] | None = None,
        launcher: Sequence[str] = (),
    ) -> None:
        path = folder / "program.py"
        path.write_text(textwrap.dedent(self._PRELUDE) + textwrap.dedent(script))
        self._read_end, write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._buffer = b""
        self._facts: dict[str, Any] = {}
        self._output = folder / "output"
        with open(self._output, "wb") as output:
            self.process = subprocess.Popen(
                [*launcher, sys.executable, str(path), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[write_end],
                env=environment(TELL=str(write_end), **(env or {})),
                start_new_session=True,
            )
        os.close(write_end)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        """What it has printed."""
        return self._output.read_text(errors="replace")

    @property
    def _last_output(self) -> str:
        return self.output[-4000:]

    def told(self, name: str, seconds: float = LONG) -> Any:
        """Wait for a fact and return it."""

        def arrived() -> bool:
            with contextlib.suppress(BlockingIOError):
                self._buffer += os.read(self._read_end, 1 << 16)
            *lines, self._buffer = self._buffer.split(b"\n")
            for line in lines:
                self._facts.update(json.loads(line))
            return name in self._facts or self.process.poll() is not None

        wait_until(arrived, seconds, f"the program tells {name!r}; it has printed:\n{self._last_output}")
        if name not in self._facts:
            arrived()
        if name not in self._facts:
            ended = f"the program ended with status {self.process.returncode} and did not tell {name!r}"
            raise AssertionError(f"{ended}; it has printed:\n{self._last_output}")
        return self._facts[name]

    def ends(self, seconds: float = LONG) -> int:
        """Wait for its end and return the exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the program still runs; it has printed:\n{self._last_output}") from None

    def signal(self, number: int) -> None:
        """Send a signal to the program alone."""
        self.process.send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LONG)
        os.close(self._read_end)
        if kind is not None:
            print(self._last_output)
