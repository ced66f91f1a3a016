"""Host agents that did not answer in time, when a mesh or the program was to end: what they know is waited for."""

from __future__ import annotations

from collections.abc import Callable

from meshrt.mesh.agents import AgentLink

__all__ = ["OverdueAgents"]

#: Seconds for each answer of such an agent.
_HEAR = 2.0


class OverdueAgents:
    """Those of one root.

    Args:
        announce: Prints a line.
    """

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._agents: set[AgentLink] = set()
        #: Those that did not answer at the end of the program either: what has failed on their ranks is not known.
        self.unheard: set[AgentLink] = set()

    def add(self, agent: AgentLink) -> None:
        """One has not ended its part of a mesh in time."""
        self._agents.add(agent)

    def resume(self, agents: list[AgentLink]) -> None:
        """Have agents that a signal has stopped tell what has failed meanwhile: they end now anyway."""
        for agent in agents:
            if agent.resume():
                self._agents.add(agent)
                self._announce(
                    f"the agent of host {agent.host} (pid {agent.process.pid}) was stopped by a signal: it is "
                    "continued, as the program ends"
                )

    def hear(self) -> None:
        """Wait for what they have to tell. Any thread but the loop's."""
        for agent in self._agents - self.unheard:
            if not agent.hear(_HEAR):
                self.unheard.add(agent)
                self._announce(
                    f"the agent of host {agent.host} (pid {agent.process.pid}) does not answer at the end of the "
                    "program: what has failed on its ranks is not known, so the exit status is 1"
                )
