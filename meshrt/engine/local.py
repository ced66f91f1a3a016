"""The local engine: agents as children of the root, on this machine."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from meshrt.engine.agent_process import start_agent, take_early
from meshrt.errors import describe_exit
from meshrt.host.family import is_of_block
from meshrt.host.osutil import kill_child, kill_run
from meshrt.mesh.engine import Placed, Program, Request
from meshrt.store.machine import machine_of
from meshrt.transport.kernel import is_stopped
from meshrt.transport.link import Link
from meshrt.wire.addresses import HostAddress
from meshrt.wire.frames import control_decoder

__all__ = ["LocalAgent", "LocalEngine", "Started"]

#: Seconds from the end of the link of an agent to that of its process.
_ENDS = 0.1


class Started:
    """A process of this machine that is an agent, or has started one elsewhere."""

    def __init__(self, host: str, mark: str, process: subprocess.Popen[bytes]) -> None:
        self.host = host
        self.mark = mark
        self.stderr = process.stderr
        self._process = process

    def said_of_end(self) -> str:
        """See `Placed.said_of_end`."""
        return ""

    def kill(self) -> None:
        """Kill it. An agent elsewhere ends with its link."""
        self._process.kill()

    def wait(self, timeout: float) -> bool:
        """Wait for its end, and reap it."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def undo(self) -> None:
        """End it, and wait for that."""
        self._process.kill()
        self._process.wait()
        if self.stderr is not None:
            self.stderr.close()


class LocalAgent(Started):
    """An agent that is a child of the root."""

    machine = 0

    def __init__(self, host: str, mark: str, process: subprocess.Popen[bytes], link: Link, directory: bytes) -> None:
        super().__init__(host, mark, process)
        self.link = link
        self.address = HostAddress(machine_of(process.pid), process.pid, directory)

    def said_of_end(self) -> str:
        """Return how its process has ended. It has closed its link, and ends: that is waited for for a moment."""
        if not self.wait(_ENDS):
            return ""
        status = self._process.returncode
        return f"its process {describe_exit(status, None) if status >= 0 else describe_exit(None, -status)}"

    def undo(self) -> None:
        """End one that is not used."""
        self.link.close()
        super().undo()

    def resume(self) -> bool:
        """Resume it if a signal has stopped it."""
        stopped = is_stopped(self._process.pid)
        # In any case: this also undoes a stop that was sent and has not taken effect yet, which cannot be seen.
        self._process.send_signal(signal.SIGCONT)
        return stopped

    def kill_ranks(self, pids: list[int]) -> None:
        """Kill children of it."""
        for pid in pids:
            with contextlib.suppress(OSError):
                kill_child(self._process.pid, pid)

    def kill_left(self, families: int) -> None:
        """Kill what it has left: by its mark, or, where that was cleared, by the number of its rank."""
        kill_run(self.mark, lambda pid: is_of_block(pid, families))


@dataclass(frozen=True)
class LocalEngine:
    """One agent on this machine; with ``agents=N``, N of them, each as one host (``name~0`` ...)."""

    agents: int = 1

    def place(self, program: Program, request: Request, living: Sequence[Placed]) -> list[Placed]:
        """Return all agents, whatever the mesh asks for; does not wait for those that it starts."""
        host = socket.gethostname()
        names = [host] if self.agents == 1 else [f"{host}~{index}" for index in range(self.agents)]
        running = {each.host: each for each in living}
        new: list[LocalAgent] = []
        try:
            new.extend(self._start(name, program) for name in names if name not in running)
        except BaseException:
            for each in new:
                each.undo()
            raise
        running.update((each.host, each) for each in new)
        return [running[name] for name in names]

    @staticmethod
    def _start(host: str, program: Program) -> LocalAgent:
        mark, process, link = take_early(program.run_id) or start_agent(program.new_mark())
        return LocalAgent(host, mark, process, Link(link, control_decoder()), program.directory)
