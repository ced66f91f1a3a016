"""Which host agent keeps count of what the script writes to shared memory: its home.

It is on the machine of the script. Where all agents are on other machines, one is started here that has no ranks, when
it is first needed: for the first large array that goes to another machine, or for a reference.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from meshrt.mesh.agents import AgentLink
from meshrt.mesh.loop import RootLoop

__all__ = ["Home"]


class Home:
    """The home of one root. Any thread, unless said otherwise.

    Args:
        loop: Its thread never waits for an agent.

    Attributes:
        on_wanted: Called when an agent is to be started on this machine.
    """

    def __init__(self, loop: RootLoop) -> None:
        self._loop = loop
        self.on_wanted: list[Callable[[], None]] = []
        #: Those that have not ended.
        self._agents: list[AgentLink] = []
        #: There is an agent on another machine.
        self._elsewhere = False
        #: One is being started here, which no mesh has asked for.
        self._wanted = False
        self._lock = threading.Lock()
        #: Set when an agent has said that its store listens, and when the last agent has ended.
        self._serves = threading.Event()
        self._chosen: AgentLink | None = None
        #: Called, on the loop, when one serves, or when none does.
        self._waiting: list[Callable[[], None]] = []

    def add(self, agent: AgentLink) -> None:
        """An agent was placed. One on another machine shares no memory with the script."""
        if agent.machine:
            self._elsewhere = True
        else:
            self._agents.append(agent)

    def serves(self, agent: AgentLink) -> None:
        """The store of an agent listens. On the loop."""
        agent.serves = True
        if agent in self._agents:
            self._serves.set()
            self._tell()

    def remove(self, agent: AgentLink) -> None:
        """An agent has ended. On the loop."""
        if agent in self._agents:
            self._agents.remove(agent)
            if not self._agents:
                self.failed()

    def failed(self) -> None:
        """There is none to wait for any more. On the loop."""
        self._wanted = False
        self._serves.set()  # a thread that waits for one to serve waits no longer
        self._serves.clear()
        self._tell()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each()

    def want(self, then: Callable[[], None]) -> None:
        """Call ``then`` when an agent serves on this machine, or none does; one is started if need be. On the loop."""
        if self.agent(0.0) or not (self._agents or self._start()):
            then()
        else:
            self._waiting.append(then)

    def agent(self, seconds: float) -> int:
        """Return the pid of the agent whose store knows what the script writes; 0: none serves within that time.

        Args:
            seconds: With some, one is started where all agents are on other machines.
        """
        if seconds and (self._agents or self._start()) and not self._loop.is_this_thread():
            self._serves.wait(seconds)
        # Always the same one while it lives: other processes have been told on which machine the script is.
        if self._chosen is None or self._chosen.gone:
            self._chosen = next((agent for agent in tuple(self._agents) if agent.serves and not agent.gone), None)
        return 0 if self._chosen is None else self._chosen.pid

    def _start(self) -> bool:
        """Have an agent started here, if all are elsewhere. Returns whether one is about to start."""
        with self._lock:
            if self._agents or not self._elsewhere or self._wanted:
                return bool(self._agents) or self._wanted
            self._wanted = True
        for start in self.on_wanted:
            start()
        return True

    def without_ranks(self) -> list[AgentLink]:
        """Return the agent that was started for the script alone, if there is one."""
        return [agent for agent in tuple(self._agents) if agent.serves] if self._wanted else []

    def host_of(self, agent_pid: int) -> str:
        """Return the host of an agent; "" if there is no such agent."""
        return next((agent.host for agent in tuple(self._agents) if agent.pid == agent_pid), "")
