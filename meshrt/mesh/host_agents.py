"""The host agents of the program: their greeting, the dispatch of their messages to other parts, and their end.

Placed by engines (`meshrt.mesh.placement`), each with a link of its own (`meshrt.mesh.agents`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import sys
import threading
from collections.abc import Sequence
from typing import assert_never

from meshrt.mesh.agent_reports import AgentReports
from meshrt.mesh.agents import AgentLink, AgentPulse
from meshrt.mesh.code import CodeServer, path_for_hosts
from meshrt.mesh.engine import Engine, Placed, Request
from meshrt.mesh.home import Home
from meshrt.mesh.invitations import Invitations
from meshrt.mesh.lifecycle import Lifecycle
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.placement import Placement
from meshrt.mesh.printed import PrintedElsewhere
from meshrt.mesh.registry import Registry
from meshrt.mesh.relays import Relays
from meshrt.mesh.run import Run, working_directory
from meshrt.mesh.services import Services
from meshrt.mesh.terminal import Terminal
from meshrt.mesh.upkeep import Upkeep
from meshrt.store.protocol import store_path
from meshrt.wire import tree
from meshrt.wire.addresses import HostAddress, socket_path
from meshrt.wire.certificate import Certificate
from meshrt.wire.code import AskCode
from meshrt.wire.control import Address

__all__ = ["HostAgents"]

#: Bytes of the script's arguments that the ranks are told.
_ARGV_MAX = 512 << 10
#: Seconds for an agent that runs to open its port.
_OPEN = 5.0


class HostAgents:
    """The agents of one root. Any thread, unless said otherwise.

    Args:
        run: The content of the greeting.
        loop: Reads what they send, and closes their links at its end.
        registry, services, lifecycle, reports: Receive their messages.
        terminal: Shows what they write to their standard error.
        upkeep: Checks the program's directories, as often as the agents are pinged.
        home: Is told of agents whose stores serve.
        relays: Takes connections that lead from one machine to another one.

    Attributes:
        program: What engines are told of it.
    """

    def __init__(
        self,
        run: Run,
        loop: RootLoop,
        registry: Registry,
        services: Services,
        lifecycle: Lifecycle,
        reports: AgentReports,
        terminal: Terminal,
        upkeep: Upkeep,
        home: Home,
        relays: Relays,
    ) -> None:
        self._run = run
        self._loop = loop
        self._registry = registry
        self._services = services
        self._lifecycle = lifecycle
        self._reports = reports
        self._terminal = terminal
        self.program = Invitations(run, loop, registry.own, terminal.announce, relays.take)
        self._placement = Placement(self.program, self._connect, self._attach)
        self._pulse = AgentPulse(self._placement.all, upkeep.look, terminal.announce)
        self._home = home
        self._relays = relays
        self._code = CodeServer()
        self._printed = PrintedElsewhere(run.run_directory, run.limits.logs, registry, reports, terminal.announce)
        home.on_wanted.append(self._start_home)
        services.measures.others.append(home.without_ranks)
        loop.post(lambda: self._pulse.start(loop.running))
        loop.on_end.append(self._close)
        loop.on_end.append(self._code.close)
        loop.on_failure.append(self._fail)

    def of(self, engine: Engine | None, request: Request) -> list[AgentLink]:
        """Return the agents of an engine (None: the local one) for a mesh, see `Engine.place`. Not on the loop."""
        agents = self._placement.of(engine, request)
        if self._run.certificate is not None:
            self._certify(self._run.certificate)
        return agents

    def spare(self, lost: AgentLink, used: Sequence[AgentLink], ranks: int) -> AgentLink:
        """Return an agent in the place of one that is lost, see `Placement.spare`. Not on the loop."""
        return self._placement.spare(lost, used, ranks)

    def _certify(self, certificate: Certificate) -> None:
        """The program has several machines: have all agents open a port, also those that were placed before."""
        closed = [agent for agent in self.all() if agent.address is not None and not agent.address.ports]
        for agent in closed:
            agent.certify(certificate)
        for agent in closed:
            agent.joined.wait(_OPEN)  # one that a signal has stopped opens it when it goes on

    def _start_home(self) -> None:
        """Start an agent on this machine that has no ranks. Any thread; waits for nothing."""
        threading.Thread(target=self._place_home, name="meshrt-home", daemon=True).start()

    def _place_home(self) -> None:
        try:
            self.of(None, Request(None, 0))
        except Exception as error:
            text = f"no host agent can be started here; sending large arrays to other machines needs one: {error}"
            logging.getLogger("meshrt").warning(text)
            self._loop.post(self._home.failed)

    def all(self) -> list[AgentLink]:
        """Return those that have not ended."""
        return self._placement.all()

    def end(self) -> None:
        """Wait for the end of all, and kill what does not end. After the loop."""
        self._placement.end()
        self._printed.end()

    def abandon(self) -> None:
        """Close the links in a forked child: the agents would not see the end of its parent."""
        for agent in self.all():
            agent.abandon()
        self._relays.abandon()

    # -- links

    def _connect(self, placed: Placed) -> AgentLink:
        write = functools.partial(self._terminal.write, err=True)
        link = AgentLink(placed, self._on_agent, self._on_rank, self._on_gone, write)
        link.send(
            tree.Hello(
                secret=self._run.secret,
                run_id=placed.mark,
                directory=_path_bytes(self._run.directory),
                run_directory=_path_bytes(str(self._run.run_directory)),
                sys_path=path_for_hosts(sys.path)
                if placed.machine
                else [_path_bytes(entry or working_directory()) for entry in sys.path],
                argv=_short(sys.argv) or [""],
                host=placed.host,
                root_pid=self._run.pid,
                store_limit=self._run.limits.store,
                families=link.families,
                logs_limit=self._run.limits.logs,
                machine=placed.machine,
                certificate=self._run.certificate,
            )
        )
        return link

    def _attach(self, agent: AgentLink) -> None:
        self._home.add(agent)
        self._loop.post(lambda: agent.attach(self._loop.running))

    def _close(self) -> None:
        for agent in self.all():
            agent.close()

    def _fail(self) -> None:
        for agent in self.all():
            agent.kill()
            if not self._loop.has_begun:  # the loop has not read from it
                agent.close()

    # -- their messages, on the loop

    def _on_agent(self, agent: AgentLink, message: tree.FromAgent) -> None:
        match message:
            case tree.Joined() as joined:
                agent.has_joined(joined)
            case tree.Started(mesh=mesh_id, rank=rank, pid=pid):
                self._lifecycle.started(mesh_id, rank, pid)
            case tree.Gone(mesh=mesh_id, rank=rank, fate=fate):
                clock = agent.clock
                self._lifecycle.gone(mesh_id, rank, fate if clock is None else fate.on_root_clock(clock))
            case tree.MeshStopped(mesh=mesh_id):
                self._lifecycle.stopped_on(agent, self._registry.meshes[mesh_id])
            case tree.Output() as output:
                self._reports.output(output)
            case tree.Printed() as printed:
                self._printed.printed(agent, printed)
            case tree.Pulse() as pulse:
                self._reports.pulse(pulse)
            case tree.Gathered() as gathered:
                self._services.gathers.received(agent, gathered)
            case tree.Serves():
                self._home.serves(agent)
            case tree.Measured() as measured:
                self._services.measures.received(agent, measured)
            case tree.Pong() as pong:
                agent.answered(pong)
                self._pulse.answered(agent)
            case tree.DroppedOfRanks(ranks=ranks):
                self._reports.dropped(ranks)
            case AskCode() as question:
                self._code.ask(question, agent.send)
            case tree.Warn(text=text):
                self._terminal.announce(text)
            case tree.Locate() as question:
                self._locate(agent, question)
            case tree.AskWay(machine=machine, agent_pid=pid, why=why):
                target = self._agent_at(machine, pid or self._home.agent(0.0))
                way = None if target is None else self._relays.to_store(agent, target, why)
                agent.send(tree.StoreWay(machine, pid, way))
            case unknown:
                assert_never(unknown)

    def _locate(self, agent: AgentLink, question: tree.Locate) -> None:
        """An agent asks where the store of another host listens."""
        if question.agent_pid:
            agent.send(
                tree.Located(
                    question.machine, question.agent_pid, self._address_of(question.machine, question.agent_pid)
                )
            )
        else:  # that of the script, which has not been needed so far
            self._home.want(
                lambda: agent.send(
                    tree.Located(
                        question.machine, question.agent_pid, self._address_of(question.machine, self._home.agent(0.0))
                    )
                )
            )

    def _address_of(self, machine: int, agent_pid: int) -> HostAddress | None:
        agent = self._agent_at(machine, agent_pid)
        return None if agent is None else agent.address

    def _agent_at(self, machine: int, agent_pid: int) -> AgentLink | None:
        found = (agent for agent in self.all() if not agent.gone and agent.address is not None)
        return next((each for each in found if each.where[:2] == (machine, agent_pid)), None)

    def _on_rank(self, address: Address, message: tree.FromRank) -> None:
        if isinstance(message, tree.Event) and message.ev == "failure.record":
            for agent in self.all():  # which of them had not ended before that
                agent.look()
        self._services.on_rank(address, message)

    def _on_gone(self, agent: AgentLink) -> None:
        self._placement.lose(agent)
        directory = self._run.directory
        sockets = [socket_path(directory, *address) for address in self._registry.placed_on(agent)]
        # Those of another machine are there, and its agent's pid may be that of another one here.
        for path in () if agent.machine else (store_path(directory, agent.pid), *sockets):
            with contextlib.suppress(FileNotFoundError):  # it had removed some itself
                os.unlink(path)
        self._printed.gone(agent)
        self._relays.gone(agent)
        self._home.remove(agent)
        self._services.measures.gone(agent)
        self._lifecycle.lose(agent)


def _path_bytes(path: str) -> bytes:
    """Return a path as the kernel knows it: bytes, which may be invalid UTF-8."""
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:
        return path.encode(errors="backslashreplace")  # no such path can exist


def _short(argv: list[str]) -> list[str]:
    """Return as much of the arguments as a control message takes."""
    lengths = itertools.accumulate(4 * len(argument) for argument in argv)
    return [argument for argument, length in zip(argv, lengths, strict=True) if length < _ARGV_MAX]
