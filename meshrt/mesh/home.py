"""Which host agent keeps count of what the script writes to shared memory: its home."""

from __future__ import annotations

import threading

from meshrt.mesh.agents import AgentLink
from meshrt.mesh.loop import RootLoop

__all__ = ["Home"]


class Home:
    """The home of one root. Any thread, unless said otherwise.

    Args:
        loop: Its thread never waits for an agent.
    """

    def __init__(self, loop: RootLoop) -> None:
        self._loop = loop
        #: Those that have not ended.
        self._agents: list[AgentLink] = []
        #: Set when an agent has said that its store listens, and when the last agent has ended.
        self._serves = threading.Event()
        self._chosen: AgentLink | None = None

    def add(self, agent: AgentLink) -> None:
        """An agent was placed. One on another machine shares no memory with the script."""
        if agent.machine:
            return
        self._agents.append(agent)

    def serves(self, agent: AgentLink) -> None:
        """The store of an agent listens. On the loop."""
        agent.serves = True
        self._serves.set()

    def remove(self, agent: AgentLink) -> None:
        """An agent has ended. On the loop."""
        if agent in self._agents:
            self._agents.remove(agent)
        if not self._agents:
            self._serves.set()  # a thread that waits for one to serve waits no longer
            self._serves.clear()

    def agent(self, seconds: float) -> int:
        """Return the pid of the agent whose store knows what the script writes; 0: none serves within that time."""
        if seconds and self._agents and not self._loop.is_this_thread():
            self._serves.wait(seconds)
        # Always the same one while it lives: other processes have been told on which machine the script is.
        if self._chosen is None or self._chosen.gone:
            self._chosen = next((agent for agent in tuple(self._agents) if agent.serves and not agent.gone), None)
        return 0 if self._chosen is None else self._chosen.pid

    def host_of(self, agent_pid: int) -> str:
        """Return the host of an agent; "" if there is no such agent."""
        return next((agent.host for agent in tuple(self._agents) if agent.pid == agent_pid), "")
