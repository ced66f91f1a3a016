"""Ways between processes of machines that do not reach each other: through the root's port, which all of them reach.

::

    rank of n2 --asks--> root --asks--> agent of n1
    rank of n2 --dials--> root's port <--dials-- agent of n1, which gives the connection to its rank

The root passes bytes from one connection to the other (`meshrt.transport.splicing`). It cannot read them: TLS is made
by the two ranks. What the script itself sends to a rank of n1 needs one connection, which the agent of n1 dials. The
links to agents carry none of it, so control messages do not wait for data.
"""

from __future__ import annotations

import functools
import secrets
import socket
from collections.abc import Callable

from meshrt.errors import MeshError
from meshrt.mesh.agents import AgentLink
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.record import MeshRecord
from meshrt.mesh.registry import Registry
from meshrt.mesh.run import Run
from meshrt.mesh.services import Services
from meshrt.transport.connecting import Opened
from meshrt.transport.liveness import ROOT_SECONDS, end_when_silent
from meshrt.transport.splicing import Splicer
from meshrt.wire.addresses import Port, RankAddress
from meshrt.wire.control import Address
from meshrt.wire.operations import Relayed, RelayTo
from meshrt.wire.peer import DataReply
from meshrt.wire.tree import Dial

__all__ = ["PREFIX", "Relays"]

#: What the names begin with that are asked for at the root's port.
PREFIX = "relay/"
#: Seconds for both sides to dial. An agent that is stopped by a signal dials late.
_SECONDS = 60.0
#: So many pairs of hosts are named on the terminal.
_NAMED = 10


class Relays:
    """The ways of one root. On the loop.

    Args:
        registry, services, run, loop: Those of the root.
    """

    def __init__(self, registry: Registry, services: Services, run: Run, loop: RootLoop) -> None:
        self._registry = registry
        self._announce = services.announce
        self._run = run
        self._loop = loop
        self._splicer = Splicer()
        #: By the name that is asked for: takes the connection, and is called when it has not come in time.
        self._expected: dict[str, tuple[Callable[[socket.socket], None], Callable[[], None]]] = {}
        #: Pairs of hosts that the user was told of.
        self._told: set[tuple[str, str]] = set()
        services.serve_ranks_later(RelayTo, self._asked)
        loop.on_end.append(self.close)

    def close(self) -> None:
        """End all of them."""
        for name in tuple(self._expected):
            self._expire(name)
        self._splicer.close()

    def abandon(self) -> None:
        """Close the connections in a forked child."""
        self._splicer.abandon()

    def take(self, name: str, sock: socket.socket) -> None:
        """Take a connection that asks for a way; one that is not expected is closed."""
        expected = self._expected.pop(name, None)
        if expected is None:
            sock.close()
        else:
            end_when_silent(sock, ROOT_SECONDS)
            expected[0](sock)

    def to_script(self, address: RankAddress, why: str, opened: Opened) -> None:
        """Have a rank connect to this process (`meshrt.transport.connecting.Relay`)."""
        try:
            record, agent = self._target(address.mesh_id, address.rank)
        except MeshError as error:
            opened(ConnectionError(str(error)))
            return
        self._tell("", agent, why)
        self._dial(record, agent, address.rank, opened, lambda: opened(TimeoutError("its host did not connect")))

    def _asked(self, asker: Address, asked: RelayTo, answer: DataReply[Relayed]) -> None:
        own = self._registry.meshes[asker[0]].agent_of[asker[1]]
        if asked.mesh in self._registry.own:  # of the script itself, whose port its agent has reached
            answer(Relayed(self._port_for(own), f"rank/{asked.mesh}/{asked.rank}"))
            return
        record, agent = self._target(asked.mesh, asked.rank)
        self._tell(own.host, agent, asked.why)
        pair: list[socket.socket] = []

        def dialled(sock: socket.socket) -> None:
            pair.append(sock)
            if len(pair) == 2:
                self._splicer.add(*pair)

        def overdue() -> None:
            if len(pair) == 1:
                pair[0].close()

        self._dial(record, agent, asked.rank, dialled, overdue)
        name = self._expect(dialled, overdue)
        answer(Relayed(self._port_for(own), name))

    def _target(self, mesh_id: str, rank: int) -> tuple[MeshRecord, AgentLink]:
        record = self._registry.meshes.get(mesh_id)
        if record is None or rank in record.fates:
            raise MeshError("it has ended")
        return record, record.agent_of[rank]

    def _dial(
        self,
        record: MeshRecord,
        agent: AgentLink,
        rank: int,
        dialled: Callable[[socket.socket], None],
        overdue: Callable[[], None],
    ) -> None:
        agent.send(Dial(record.mesh_id, rank, self._port_for(agent), self._expect(dialled, overdue)))

    def _expect(self, dialled: Callable[[socket.socket], None], overdue: Callable[[], None]) -> str:
        name = PREFIX + secrets.token_hex(16)
        self._expected[name] = dialled, overdue
        self._loop.call_later(_SECONDS, functools.partial(self._expire, name))
        return name

    def _expire(self, name: str) -> None:
        expected = self._expected.pop(name, None)
        if expected is not None:
            expected[1]()

    def _port_for(self, agent: AgentLink) -> Port:
        """Return where the machine of an agent reaches this process."""
        return agent.root_port or self._run.ports[0]

    def _tell(self, asker: str, agent: AgentLink, why: str) -> None:
        pair = (asker, agent.host)
        if pair in self._told:
            return
        self._told.add(pair)
        if len(self._told) <= _NAMED:
            who = f"host {asker}" if asker else "the script"
            self._announce(
                f"{who} does not reach host {agent.host} ({why}): what it sends there goes "
                + ("through the script, which is slower" if asker else "by connections that the host makes")
            )
        elif len(self._told) == _NAMED + 1:
            self._announce("further hosts do not reach each other, and are not named")
