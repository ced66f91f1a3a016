"""Agents that a command starts on other machines: ``ssh n1 python agent_main.py -``."""

from __future__ import annotations

import contextlib
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from meshrt.engine.agent_process import AGENT_PROGRAM
from meshrt.engine.elsewhere import Elsewhere
from meshrt.engine.interpreter import AGENT_MODULE, NO_FILE, SCRIPT_PYTHON, why_ended
from meshrt.engine.local import Started
from meshrt.errors import SpawnError, UsageError
from meshrt.host.osutil import RUN_VARIABLE
from meshrt.mesh.engine import Invitation, Placed, Program, Request
from meshrt.mesh.progress import JoiningHosts
from meshrt.transport.link import Link

__all__ = ["CommandEngine", "ssh"]

#: Seconds between two looks at commands that are to start agents.
_LOOK = 0.05


class CommandAgent(Elsewhere, Started):
    """An agent, and the command that has started it.

    Args:
        command: What the command begins with.
        python: The interpreter there.

    Raises:
        SpawnError: There is no such command.
    """

    def __init__(self, host: str, mark: str, command: Sequence[str], python: str, invitation: Invitation) -> None:
        self._command = command
        self._python = python
        self._by_name = False
        self._invitation = invitation
        super().__init__(host, mark, self._run(host, mark, str(AGENT_PROGRAM)))
        self.machine = invitation.machine
        self.link: Link

    def _run(self, host: str, mark: str, *agent: str) -> subprocess.Popen[bytes]:
        """Run the command, with these words for the interpreter, and have it read the invitation."""
        environment = [f"{RUN_VARIABLE}={mark}", f"{SCRIPT_PYTHON}={platform.python_version()}"]
        words = ["env", *environment, self._python, *agent, "-"]
        command = self._command
        try:
            process = subprocess.Popen(
                [*command, shlex.join(words)] if command[0] == "ssh" else [*command, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise SpawnError(f"the agent of host {host} cannot be started: {command[0]}: {error.strerror}") from None
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it has ended, which is told with its last lines
                process.stdin.write(self._invitation.text())
                process.stdin.close()
        return process

    def has_joined(self, seconds: float) -> bool:
        """Whether the agent has joined, within so many seconds. Raises SpawnError: it has ended before, or is unfit."""
        link = self._invitation.accept(seconds)
        if link is not None:
            self.link = link
        elif self._process.poll() is not None:
            said = self._process.stderr.read().decode(errors="replace").strip() if self._process.stderr else ""
            if NO_FILE not in said or self._by_name:
                raise SpawnError(why_ended(self.host, self._python, AGENT_PROGRAM, self._process.returncode, said))
            self._start_by_name()
        return link is not None

    def _start_by_name(self) -> None:
        """There is no meshrt at its path here; it may be elsewhere."""
        self._by_name = True
        if self.stderr is not None:
            self.stderr.close()
        self._process = self._run(self.host, self.mark, "-P", "-m", AGENT_MODULE)
        self.stderr = self._process.stderr

    def undo(self) -> None:
        """End one that is not to join."""
        self._invitation.withdraw()
        super().undo()


@dataclass(frozen=True)
class CommandEngine:
    """One agent per host, each started by a command.

    Args:
        hosts: Their names, as users see them.
        commands: What the command of each host begins with: ``("ssh", "n1")``.
        python: The interpreter there.
        seconds: How long all of them may take to join.
    Raises:
        UsageError: ``seconds`` is no positive number.
    """

    hosts: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    python: str = sys.executable
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise UsageError(f"seconds is a positive number, not {self.seconds!r}")

    def place(self, program: Program, request: Request, living: Sequence[Placed]) -> Sequence[Placed]:
        """Return the agents of the first ``request.hosts`` hosts; starts those that do not run, and waits for them.

        Those that were lost come last.
        """
        if len(self.hosts) != len(self.commands):
            both = f"hosts: {len(self.hosts)}, commands: {len(self.commands)}"
            raise SpawnError(f"{both}; expected a command for each host")
        left = list(living)
        placed: list[Placed] = []
        new: list[CommandAgent] = []
        try:
            hosts = sorted(zip(self.hosts, self.commands, strict=True), key=lambda each: each[0] in request.lost)
            for host, command in hosts[: request.hosts]:
                running = next((each for each in left if each.host == host), None)
                if running is None:
                    new.append(CommandAgent(host, program.new_mark(), command, self.python, program.invite()))
                else:
                    left.remove(running)
                placed.append(running or new[-1])
            self._wait_for(new, program)
        except BaseException:
            for each in new:
                each.undo()
            raise
        return placed

    def _wait_for(self, agents: Sequence[CommandAgent], program: Program) -> None:
        hosts = JoiningHosts([agent.host for agent in agents], program.announce)
        deadline = time.monotonic() + self.seconds
        left = [*agents]
        while left:
            for agent in (*left,):
                if agent.has_joined(_LOOK / len(left)):
                    hosts.joined(agent.host)
                    left.remove(agent)
            if left and time.monotonic() >= deadline:
                late = f"the agent of host {left[0].host} has not joined in time: {hosts}"
                raise SpawnError(f"{late}; seconds= of the engine is {self.seconds:g}")
            hosts.look()


def ssh(*hosts: str, python: str = sys.executable, options: Sequence[str] = (), seconds: float = 60.0) -> CommandEngine:
    """Return an engine that starts an agent on each host by ``ssh``.

    Args:
        hosts: As on ssh's command line.
        python: The interpreter there.
        options: Further words for ssh, before the host.
        seconds: How long all hosts may take to join.
    Raises:
        UsageError: ``seconds`` is no positive number.
    """
    commands = tuple(("ssh", "-o", "BatchMode=yes", *options, host) for host in hosts)
    return CommandEngine(hosts, commands, python, seconds)
