"""The root's end of the control tree: one `AgentLink` per host agent."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable
from typing import Any, Protocol

from meshrt.errors import ProtocolError
from meshrt.host.osutil import kill_child
from meshrt.mesh.agent_output import AgentOutput
from meshrt.transport.link import Link
from meshrt.wire.frames import control_decoder
from meshrt.wire.messages import Address, control_frame, unpack_control

__all__ = ["AgentLink", "AgentPulse", "Engine", "Placed"]


class Placed(Protocol):
    """A host agent that an engine has started."""

    host: str
    process: subprocess.Popen[bytes]
    link_socket: Any
    #: What marks every process of this agent, see `meshrt.host.osutil.RUN_VARIABLE`.
    mark: str


class Engine(Protocol):
    """Places one host agent per host; everything else is the same for all engines."""

    def place(self, run_id: str) -> list[Placed]:
        """Start the agents and return them; does not wait until they serve."""


class AgentLink:
    """A host agent as the root sees it. Sends from any thread, reads on the root's loop.

    Args:
        placed: The started agent.
        on_message: ``on_message(self, message)`` for the agent's own messages.
        on_rank: ``on_rank(address, message)`` for messages of ranks.
        on_gone: ``on_gone(self)`` once, when the agent has ended.
        write: Takes what the agent writes to its standard error.
    """

    def __init__(
        self,
        placed: Placed,
        on_message: Callable[[AgentLink, dict[str, Any]], None],
        on_rank: Callable[[Address, dict[str, Any]], None],
        on_gone: Callable[[AgentLink], None],
        write: Callable[[str], None],
    ) -> None:
        self.host = placed.host
        self.mark = placed.mark
        self.process = placed.process
        self.output = AgentOutput(placed.process.stderr, write)
        self._link = Link(placed.link_socket, control_decoder())
        self._on_message = on_message
        self._on_rank = on_rank
        self._on_gone = on_gone
        self._loop: Any = None
        #: It has said that its store listens.
        self.serves = False
        self.gone = False

    def attach(self, loop: Any) -> None:
        """Begin to read; on the loop's thread."""
        self._loop = loop
        self.output.attach(loop)
        loop.add_reader(self._link.fileno(), self._readable)
        self._arm()

    def send(self, message: dict[str, Any], address: Address | None = None) -> None:
        """Send a message to the agent, or to one of its ranks. Never blocks; any thread."""
        self.send_frames([control_frame(message, address)])

    def send_frames(self, frames: list[bytes]) -> None:
        """Send messages that are encoded already, with nothing between them. Never blocks; any thread."""
        if not self._link.send([*frames]) and self._loop is not None:
            self._loop.call_soon_threadsafe(self._arm)

    def _arm(self) -> None:
        if self._link.backlog and not self._link.closed:
            self._loop.add_writer(self._link.fileno(), self._writable)

    def _writable(self) -> None:
        if self._link.flush():
            self._loop.remove_writer(self._link.fileno())

    def _readable(self) -> None:
        try:
            frames = self._link.read()
        except ProtocolError:
            # An agent that speaks garbage is as good as dead, and must not stay half alive.
            self.kill()
            frames = None
        if frames is None:
            self._end()
            return
        for frame in frames:
            try:
                message = unpack_control(frame.payload)
                if frame.header is None:
                    self._on_message(self, message)
                else:
                    self._on_rank((frame.header[0], frame.header[1]), message)
            except Exception:
                # One bad message must not take those with it that were read together with it: deaths are among them.
                logging.getLogger("meshrt").exception("a message of host %s", self.host)

    def _end(self) -> None:
        if not self.gone:
            self.gone = True
            self._loop.remove_reader(self._link.fileno())
            self._loop.remove_writer(self._link.fileno())
            self._link.close()
            self.output.detach()  # its last words were written before the link ended
            self._on_gone(self)

    def close(self) -> None:
        """Let go of the agent: it sees the end of its link, kills what is left, and ends. On the loop's thread."""
        if not self.gone:
            self.gone = True
            self._loop.remove_reader(self._link.fileno())
            self._loop.remove_writer(self._link.fileno())
            self._link.send([control_frame({"t": "bye"})])
            self._link.close()
            self.output.detach()

    def abandon(self) -> None:
        """Close the descriptors in a forked child."""
        self._link.sock.close()
        self.output.abandon()

    def kill(self) -> None:
        """Kill the agent itself; its ranks die with it."""
        self.process.kill()

    def kill_ranks(self, pids: list[int]) -> None:
        """Kill ranks of this agent without its help."""
        for pid in pids:
            kill_child(self.process.pid, pid)

    def wait(self, timeout: float) -> bool:
        """Wait for its end and reap it; any thread but the loop's. Returns whether it has ended."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        self.output.read()
        self.output.close()
        return True


class AgentPulse:
    """Tells when a host agent lives but does not answer (it was stopped), and when it is back. On the root's loop."""

    INTERVAL = 1.0
    SILENT_SECONDS = 3.0

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._asked: dict[AgentLink, float] = {}
        self._silent: set[AgentLink] = set()
        self._loop: Any = None
        self._agents: Callable[[], list[AgentLink]] = list
        self._last = 0.0

    def start(self, loop: Any, agents: Callable[[], list[AgentLink]]) -> None:
        """Begin to ping."""
        self._loop = loop
        self._agents = agents
        self._last = loop.time()
        loop.call_later(self.INTERVAL, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        # If the root itself was stopped for a while, every agent seems silent: begin anew.
        late = now - self._last > self.INTERVAL + 1.0
        self._last = now
        for agent in self._agents():
            asked = self._asked.get(agent)
            if agent.gone:
                self._asked.pop(agent, None)
            elif asked is None or late:
                self._asked[agent] = now
                agent.send({"t": "ping"})
            elif now - asked >= self.SILENT_SECONDS and agent not in self._silent:
                self._silent.add(agent)
                self._announce(
                    f"the agent of host {agent.host} (pid {agent.process.pid}) does not answer; its ranks go on"
                )
        self._loop.call_later(self.INTERVAL, self._tick)

    def answered(self, agent: AgentLink) -> None:
        """An agent has answered."""
        self._asked.pop(agent, None)
        if agent in self._silent:
            self._silent.discard(agent)
            self._announce(f"the agent of host {agent.host} answers again")
