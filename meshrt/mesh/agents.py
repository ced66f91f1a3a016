"""The root's end of the control tree: one `AgentLink` per host agent."""

from __future__ import annotations

import errno
import functools
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from meshrt.errors import ProtocolError, SpawnError
from meshrt.hooks.clock import ClockComparison, HostClock
from meshrt.host.family import new_family_block
from meshrt.mesh.agent_output import AgentOutput
from meshrt.mesh.engine import Placed
from meshrt.transport.connecting import peer_address
from meshrt.transport.liveness import LOOK_SECONDS, ROOT_SECONDS, Silence, unheard
from meshrt.wire.addresses import HostAddress, Port
from meshrt.wire.certificate import Certificate
from meshrt.wire.control import Address, Message, control_frame
from meshrt.wire.frames import Frame
from meshrt.wire.tree import FROM_AGENT, FROM_RANK, Bye, Certified, FromAgent, FromRank, Joined, Ping, Pong

if TYPE_CHECKING:
    import asyncio

__all__ = ["AgentLink", "AgentPulse"]

#: Seconds between two signs of a machine that answers: the kernel asks each second.
_HEARD = 2.5
#: Errors of a connection whose other side has said nothing for long. The kernel may have heard of the reason.
_SILENT = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)
#: Round trips one after the other by which the clock of a new agent is compared; each later ping is one more.
_ROUND_TRIPS = 8
#: Nanoseconds between two questions whether an agent on another machine lives.
_APART = 20_000_000


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
        on_message: Callable[[AgentLink, FromAgent], None],
        on_rank: Callable[[Address, FromRank], None],
        on_gone: Callable[[AgentLink], None],
        write: Callable[[str], None],
    ) -> None:
        self.host = placed.host
        self.mark = placed.mark
        #: The start of the numbers of its ranks, see `meshrt.host.family`.
        self.families = new_family_block()
        #: Where its processes listen; None: it has not said so yet.
        self.address = placed.address
        #: Set when it has, and when it has ended.
        self.joined = threading.Event()
        if placed.address is not None:
            self.joined.set()
        self.machine = placed.machine
        #: Where its machine reaches this one; None: it is this one, or has not said so yet.
        self.root_port: Port | None = None
        self.placed = placed
        self.output = AgentOutput(placed.stderr, write)
        self._link = placed.link
        self._on_message = on_message
        self._on_rank = on_rank
        self._on_gone = on_gone
        self._loop: asyncio.AbstractEventLoop | None = None
        #: It has closed its end of the link; the loop does not watch it any more.
        self._hung_up = False
        #: It has said that its store listens.
        self.serves = False
        self.gone = False
        #: The address of its end of the link; None: it is not on another machine.
        self.peer: Port | None = None
        #: Seconds from the last sign of its machine to its end, if that was an end of silence.
        self._unheard = 0.0
        #: When it was last known to live, and when its end was noticed; monotonic ns.
        self.alive_at = time.monotonic_ns()
        self.gone_at = 0
        #: Compares the clock of its machine; None: that is the script's.
        self._clocks = ClockComparison(f"{placed.machine:x}") if placed.machine else None
        self._made = self._asked_at = self.alive_at
        #: The number of the latest question by `hear`, and whether it was answered.
        self._question = 0
        self._heard = threading.Event()
        self._silence = Silence(ROOT_SECONDS, LOOK_SECONDS)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to read; on the loop's thread."""
        self._loop = loop
        self.output.attach(loop)
        loop.add_reader(self._link.fileno(), self._readable)
        self._arm()
        if self.machine:
            self.peer = peer_address(self._link.sock)
            loop.call_later(LOOK_SECONDS, self._look_for_silence)

    def _look_for_silence(self) -> None:
        if self.gone:
            return
        if self._silence.look(self._link.sock):
            self._link.error = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            self._end()
        else:
            self._attached.call_later(LOOK_SECONDS, self._look_for_silence)

    def has_joined(self, joined: Joined) -> None:
        """It says where its processes listen, and where it reaches this process. On the loop."""
        self._compare(self._made, joined.clock, joined.wall)
        seen, address = self.peer, joined.address
        if seen is not None and address.ports and all(host != seen[0] for host, _ in address.ports):
            # As this machine sees it, behind a translation of addresses for example.
            address = address._replace(ports=(*address.ports, (seen[0], address.ports[0][1])))
        self.address, self.root_port = address, joined.root
        self.joined.set()
        if self._clocks is not None:
            self.send(Ping(-1, time.monotonic_ns()))

    @property
    def full(self) -> bool:
        """See `Link.full`. Any thread."""
        return self._link.full

    def send(self, message: Message, address: Address | None = None) -> None:
        """Send a message to the agent, or to one of its ranks. Never blocks; any thread."""
        self.send_frames([control_frame(message, address)])

    def send_frames(self, frames: list[bytes]) -> None:
        """Send messages that are encoded already, with nothing between them. Never blocks; any thread."""
        if not self._link.send([*frames]) and self._loop is not None:
            self._loop.call_soon_threadsafe(self._arm)

    @property
    def _attached(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("no loop reads this link yet")
        return self._loop

    def _arm(self) -> None:
        if self._link.backlog and not self._link.closed:
            self._attached.add_writer(self._link.fileno(), self._writable)

    def _writable(self) -> None:
        if self._link.flush():
            self._attached.remove_writer(self._link.fileno())

    def _readable(self) -> None:
        if self.gone:
            return
        try:
            frames = self._link.read()
            if frames is None:
                self._end()
                return
            for frame in frames:
                self._received(frame)
        except ProtocolError as error:
            # An agent that sends invalid data cannot be used any more, and must not stay half alive.
            logging.getLogger("meshrt").error("the agent of host %s is being terminated: it sent %s", self.host, error)
            self.kill()
            self._end()
        if self._link.closed:
            return
        # An agent that ends without reading all that it was sent leaves an error at the socket: libuv calls for that
        # once, and looks no more. What it has sent before is read to its end all the same.
        if not self._hung_up and self._link.hung_up():
            self._hung_up = True
            self._attached.remove_reader(self._link.fileno())
        if self._hung_up:
            self._attached.call_soon(self._readable)

    def _received(self, frame: Frame) -> None:
        """Handle a message. Raises ProtocolError for one that an agent may not send."""
        if frame.header is None:
            receive = functools.partial(self._on_message, self, FROM_AGENT.decode(frame.payload))
        else:
            receive = functools.partial(self._on_rank, _address_of(frame.header), FROM_RANK.decode(frame.payload))
        try:
            receive()
        except Exception:
            # An error here must not lose the messages that were read together with this one: deaths are among them.
            logging.getLogger("meshrt").exception("error while handling a message of host %s", self.host)

    def _end(self) -> None:
        if not self.gone:
            self.gone = True
            self.gone_at = time.monotonic_ns()
            self.joined.set()
            self._heard.set()
            self._attached.remove_reader(self._link.fileno())
            self._attached.remove_writer(self._link.fileno())
            if self.machine and self._link.error is not None:
                self._unheard = unheard(self._link.sock) or 0.0
                self.alive_at = min(self.alive_at, self.gone_at - int(self._unheard * 1e9))
            self._link.close()
            self.output.detach()  # its last lines were written before the link ended
            self._on_gone(self)

    def look(self) -> None:
        """Note that it lives, if it does. Its end is noticed later: this tells what failed before it.

        Of one on another machine only its answers tell that: the kernel here does not know of its end.
        """
        now = time.monotonic_ns()
        if self.gone:
            return
        if self._clocks is not None:
            if now - self._asked_at > _APART and not self.full:
                self._asked_at = now
                self.send(Ping(at=now))
        elif not self._link.hung_up():
            self.alive_at = now

    def is_heard(self) -> bool:
        """Whether its machine answers, whatever the agent itself does."""
        return not self.machine or (unheard(self._link.sock) or 0.0) < _HEARD

    def resume(self) -> bool:
        """Resume it if a signal has stopped it; returns whether one had. Any thread."""
        return not self.gone and self.placed.resume()

    def hear(self, seconds: float) -> bool:
        """Wait until it has reported all earlier events; returns whether it has. Any thread but the loop's.

        Args:
            seconds: Time limit for each of its answers.
        """
        for _ in range(2):  # what it finds ready together with the first question, it reads before the second one
            self._heard.clear()
            self._question += 1
            self.send(Ping(self._question, time.monotonic_ns()))
            if not self._heard.wait(seconds):
                return False
        return True

    def certify(self, certificate: Certificate) -> None:
        """Have it open a port; ``joined`` is set when it has said which, or has ended. Any thread."""
        self.joined.clear()
        self.send(Certified(certificate))
        if self.gone:
            self.joined.set()

    def answered(self, pong: Pong) -> None:
        """It has answered a question of `hear`, or of `AgentPulse`. On the loop."""
        self._compare(pong.at, pong.clock, pong.wall)
        if pong.number < 0 and pong.number > -_ROUND_TRIPS:
            self.send(Ping(pong.number - 1, time.monotonic_ns()))
        if pong.number == self._question:
            self._heard.set()

    def _compare(self, sent: int, clock: int, wall: float) -> None:
        if self._clocks is not None and sent:
            self._clocks.compared(sent, clock, time.monotonic_ns(), time.time_ns() / 1e9 - wall)
            self.alive_at = max(self.alive_at, sent)

    @property
    def clock(self) -> HostClock | None:
        """How to read the times in its messages, and in those of its ranks; None: they are the root's. On the loop."""
        return None if self._clocks is None else self._clocks.clock(time.monotonic_ns())

    def close(self) -> None:
        """Close the link to the agent: it sees that, kills what is left, and ends. On the loop's thread."""
        if not self.gone:
            self.gone = True
            if self._loop is not None:  # there is one, unless it could not be made
                self._loop.remove_reader(self._link.fileno())
                self._loop.remove_writer(self._link.fileno())
                self.output.detach()
            self._link.send([control_frame(Bye())])
            self._link.close()

    def abandon(self) -> None:
        """Close the descriptors in a forked child."""
        self._link.sock.close()
        self.output.abandon()

    def why(self) -> str:
        """Return why its link has ended, if that is known. It may wait a moment for the end of the agent."""
        error = self._link.error
        if not self.machine or error is None or error.errno not in _SILENT:
            return self.placed.said_of_end()
        where = f"its machine ({self.peer[0]})" if self.peer is not None else "its machine"
        last = time.strftime("%H:%M:%S", time.localtime(time.clock_gettime(time.CLOCK_REALTIME) - self._unheard))
        said = f"{where} has not answered for {ROOT_SECONDS} s: the machine or the network has failed"
        said += f"; its last network packet arrived {self._unheard:.1f} s before, at {last}"
        return ". ".join(filter(None, (said, self.placed.said_of_end())))

    @property
    def where(self) -> HostAddress:
        """Where its processes listen, once it has joined. Raises SpawnError: it has ended before."""
        if self.address is None:
            raise SpawnError(f"the agent of host {self.host} has ended before it was ready to start ranks")
        return self.address

    @property
    def pid(self) -> int:
        """The pid of the agent, on its own machine; 0: it has not said so yet."""
        return 0 if self.address is None else self.address.agent_pid

    def kill(self) -> None:
        """Kill the agent itself; its ranks die with it."""
        self.placed.kill()

    def kill_ranks(self, pids: list[int]) -> None:
        """Kill ranks of this agent without its help. What cannot be looked up now ends with the agent."""
        self.placed.kill_ranks(pids)

    def kill_left(self) -> None:
        """Kill what it has left; it has ended. Raises OSError: that cannot be looked up."""
        self.placed.kill_left(self.families)

    def wait(self, timeout: float) -> bool:
        """Wait for its end and reap it; any thread but the loop's. Returns whether it has ended."""
        if not self.placed.wait(timeout):
            return False
        self.output.read()
        self.output.close()
        return True


def _address_of(header: object) -> Address:
    match header:
        case [str() as mesh_id, int() as rank] if type(rank) is int:  # not a bool
            return mesh_id, rank
    raise ProtocolError("a control message with an invalid address; expected a mesh and a rank")


class AgentPulse:
    """Tells when a host agent lives but does not answer (it was stopped), and when it is back. On the root's loop.

    Args:
        agents: Returns those that have not ended.
        each: Called with each ping of all.
        announce: Prints a line.
    """

    INTERVAL = 1.0
    SILENT_SECONDS = 3.0

    def __init__(
        self, agents: Callable[[], list[AgentLink]], each: Callable[[], None], announce: Callable[[str], None]
    ) -> None:
        self._agents = agents
        self._each = each
        self._announce = announce
        self._asked: dict[AgentLink, float] = {}
        self._silent: set[AgentLink] = set()
        self._loop: asyncio.AbstractEventLoop
        self._last = 0.0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to ping."""
        self._loop = loop
        self._last = loop.time()
        loop.call_later(self.INTERVAL, self._tick)

    def _tick(self) -> None:
        self._loop.call_later(self.INTERVAL, self._tick)
        now = self._loop.time()
        # If the root itself was stopped for a while, every agent seems silent: begin again.
        late = now - self._last > self.INTERVAL + 1.0
        self._last = now
        for agent in self._agents():
            agent.look()
            asked = self._asked.get(agent)
            if agent.gone:
                self._asked.pop(agent, None)
            elif asked is None or late:
                self._asked[agent] = now
                agent.send(Ping(at=time.monotonic_ns()))
            elif now - asked >= self.SILENT_SECONDS and agent not in self._silent:
                self._silent.add(agent)
                self._announce(
                    f"the agent of host {agent.host} (pid {agent.pid}) does not answer; its ranks continue to run"
                    if agent.is_heard()
                    else f"the machine of host {agent.host} does not answer; it counts as lost after {ROOT_SECONDS} s"
                )
        self._each()

    def answered(self, agent: AgentLink) -> None:
        """An agent has answered."""
        self._asked.pop(agent, None)
        if agent in self._silent:
            self._silent.discard(agent)
            self._announce(f"the agent of host {agent.host} answers again")
