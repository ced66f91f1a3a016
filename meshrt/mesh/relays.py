"""Ways between processes of machines that do not reach each other: through the root's port, which all of them reach.

::

    rank of n2 --asks--> root --asks--> agent of n1
    rank of n2 --dials--> root's port <--dials-- agent of n1, which gives the connection to its rank

The root passes bytes from one connection to the other (`meshrt.transport.splicing`). It cannot read them: TLS is made
by the two ranks. What the script itself sends to a rank of n1 needs one connection, which the agent of n1 dials. The
links to agents carry none of it, so control messages do not wait for data. A store takes the place of a rank on both
sides: its agent asks, and dials.
"""

from __future__ import annotations

import functools
import secrets
import socket
from collections.abc import Callable
from typing import NamedTuple

from meshrt.errors import MeshError
from meshrt.mesh.agents import AgentLink
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.registry import Registry
from meshrt.mesh.run import Run
from meshrt.mesh.services import Services
from meshrt.transport.connecting import Opened
from meshrt.transport.liveness import ROOT_SECONDS, end_when_silent
from meshrt.transport.splicing import Splicer
from meshrt.wire.addresses import STORE, Port, RankAddress, Way, rank_name
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


class _Expected(NamedTuple):
    """A connection that is to come: of ``agent``, or to it.

    ``dialled`` takes it, ``overdue`` is called when it has not come in time.
    """

    agent: AgentLink
    dialled: Callable[[socket.socket], None]
    overdue: Callable[[], None]


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
        #: By the name that is asked for.
        self._expected: dict[str, _Expected] = {}
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
            expected.dialled(sock)

    def gone(self, agent: AgentLink) -> None:
        """An agent has ended: nothing that leads to it is waited for any more."""
        for name in [name for name, each in self._expected.items() if each.agent is agent]:
            self._expire(name)

    def to_script(self, address: RankAddress, why: str, opened: Opened) -> None:
        """Have a rank connect to this process (`meshrt.transport.connecting.Relay`)."""
        try:
            agent = self._agent_of(address.mesh_id, address.rank)
        except MeshError as error:
            opened(ConnectionError(str(error)))
            return
        self._tell(None, agent, why)
        self._dial(agent, address.name, opened, lambda: opened(TimeoutError("its host did not connect")))

    def to_store(self, asker: AgentLink, agent: AgentLink, why: str) -> Way:
        """Return the way from the store of a host to that of another one."""
        return self._between(asker, agent, STORE, why)

    def _asked(self, asker: Address, asked: RelayTo, answer: DataReply[Relayed]) -> None:
        own = self._registry.meshes[asker[0]].agent_of[asker[1]]
        if asked.mesh in self._registry.own:  # of the script itself, whose port its agent has reached
            answer(Relayed(self._port_for(own), rank_name(asked.mesh, asked.rank)))
            return
        agent = self._agent_of(asked.mesh, asked.rank)
        answer(Relayed(*self._between(own, agent, rank_name(asked.mesh, asked.rank), asked.why)))

    def _between(self, asker: AgentLink, agent: AgentLink, target: str, why: str) -> Way:
        """Have an agent dial for one of its processes; returns where one of the asker's host is to dial."""
        self._tell(asker, agent, why)
        pair: list[socket.socket] = []

        def dialled(sock: socket.socket) -> None:
            pair.append(sock)
            if len(pair) == 2:
                self._splicer.add(*pair)

        def overdue() -> None:
            if len(pair) == 1:
                pair[0].close()

        self._dial(agent, target, dialled, overdue)
        return Way(self._port_for(asker), self._expect(_Expected(agent, dialled, overdue)))

    def _agent_of(self, mesh_id: str, rank: int) -> AgentLink:
        record = self._registry.meshes.get(mesh_id)
        if record is None or rank in record.fates:
            raise MeshError("it has ended")
        return record.agent_of[rank]

    def _dial(
        self, agent: AgentLink, target: str, dialled: Callable[[socket.socket], None], overdue: Callable[[], None]
    ) -> None:
        agent.send(Dial(target, self._port_for(agent), self._expect(_Expected(agent, dialled, overdue))))

    def _expect(self, expected: _Expected) -> str:
        name = PREFIX + secrets.token_hex(16)
        self._expected[name] = expected
        self._loop.call_later(_SECONDS, functools.partial(self._expire, name))
        return name

    def _expire(self, name: str) -> None:
        expected = self._expected.pop(name, None)
        if expected is not None:
            expected.overdue()

    def _port_for(self, agent: AgentLink) -> Port:
        """Return where the machine of an agent reaches this process."""
        return agent.root_port or self._run.ports[0]

    def _tell(self, asking: AgentLink | None, agent: AgentLink, why: str) -> None:
        """``asking``: None: the script, as are all of its machine."""
        elsewhere = asking if asking is not None and asking.machine else None
        asker = "" if elsewhere is None else elsewhere.host
        pair = (asker, agent.host)
        if pair in self._told:
            return
        self._told.add(pair)
        if len(self._told) <= _NAMED:
            address = self._port_for(agent) if elsewhere is None else elsewhere.peer
            who = (f"host {asker}" if asker else "the script") + (f" ({address[0]})" if address else "")
            self._announce(
                f"{who} cannot connect to host {agent.host} ({why}); data for that host goes "
                + ("through the script, which is slower" if asker else "through connections that the host opens")
            )
        elif len(self._told) == _NAMED + 1:
            self._announce("more hosts cannot connect to each other; they are not listed")
