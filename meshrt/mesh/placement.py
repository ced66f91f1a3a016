"""Which host agents a program has: placed by engines when they are needed, reaped when they have ended."""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from meshrt.errors import SpawnError
from meshrt.mesh.agents import AgentLink
from meshrt.mesh.engine import Engine, Placed, Program, Request

__all__ = ["Placement", "local_engine", "wait_until_joined"]

#: Seconds for which processes are looked for, if no descriptor is free for that, and between two tries.
_LOOK = 2.0
_AGAIN = 0.05
#: Seconds from the joining of an agent on another machine until it can start ranks.
_JOIN = 60.0
#: Loaded by name: an engine is above this floor.
_DEFAULT_ENGINE = ("meshrt.engine.local", "LocalEngine")


class Placement:
    """The agents of one program. Any thread.

    Args:
        program: What engines are told of it.
        connect: Makes the root's end of an agent that was started.
        attach: Starts reading from it, once it is known here, so that its end is noticed.
    """

    def __init__(
        self, program: Program, connect: Callable[[Placed], AgentLink], attach: Callable[[AgentLink], None]
    ) -> None:
        self._program = program
        self._connect = connect
        self._attach = attach
        self._by_engine: dict[Engine | None, list[AgentLink]] = {}
        #: Those that have ended by themselves, with what had placed them.
        self._lost: list[tuple[Engine | None, AgentLink]] = []
        #: Every agent that has not ended.
        self._placed: list[AgentLink] = []
        #: Of all agents that there were on this machine.
        self._pids: set[int] = set()
        self._reapers: list[threading.Thread] = []
        #: Held while an engine places agents, for an unlimited time: the root's loop never waits for it.
        self._placing = threading.RLock()
        self._lock = threading.RLock()

    def of(self, engine: Engine | None, request: Request) -> list[AgentLink]:
        """Return the agents of an engine (None: the local one) for a mesh. One that has ended is replaced.

        Raises:
            SpawnError: As `Engine.place`; or an agent is not ready in time.
        """
        with self._placing:
            known = [agent for agent in self._by_engine.get(engine, []) if not agent.gone]
            # The end of one may be noticed in a moment only.
            living = {id(agent.placed): agent for agent in known if not agent.placed.link.hung_up()}
            request = replace(request, lost=[agent.host for lost, agent in self._lost if lost == engine])
            placed = self._place(engine if engine is not None else local_engine(), request, living)
            agents = [living.get(id(each)) or self._connect(each) for each in placed]
            new = [agent for agent in agents if id(agent.placed) not in living]
            with self._lock:
                self._by_engine[engine] = [*(agent for agent in known if not agent.gone), *new]
                self._placed += new
            for agent in new:
                self._attach(agent)
            for agent in new:
                wait_until_joined(agent)
            return agents

    def spare(self, lost: AgentLink, used: Sequence[AgentLink], ranks: int) -> AgentLink:
        """Return an agent that can take the place of one that is lost, on another host if there is one.

        Args:
            used: Those that are not meant: of the mesh of these ranks.
        Raises:
            SpawnError: There is none, and none could be placed.
        """
        with self._placing:
            engine = next(engine for engine, agent in self._lost if agent is lost)
            living = [agent for agent in self._by_engine.get(engine, []) if not agent.gone]
            if all(agent in used for agent in living):
                living = self.of(engine, Request(1 + sum(not agent.gone for agent in used), ranks))
            for agent in living:
                if agent not in used:
                    return agent
            raise SpawnError("the engine has no other host")

    def _place(self, engine: Engine, request: Request, living: Mapping[int, AgentLink]) -> Sequence[Placed]:
        """Have agents placed, on this machine each with a pid that no earlier one had.

        The pid identifies what the store of an agent keeps, beside the machine, whose number no two others share.
        """
        others: list[Placed] = []
        try:
            while True:
                placed = engine.place(self._program, request, [agent.placed for agent in living.values()])
                new = [each for each in placed if id(each) not in living]
                pids = {each.address.agent_pid for each in new if each.address is not None}
                if self._pids.isdisjoint(pids):
                    self._pids |= pids
                    return placed
                others += new  # they keep their pids until there are others
        finally:
            for each in others:
                _undo(each)

    def all(self) -> list[AgentLink]:
        """Return the agents that have not ended."""
        return list(self._placed)

    def lose(self, agent: AgentLink) -> None:
        """An agent has ended."""
        with self._lock:
            if agent in self._placed:
                self._placed.remove(agent)
                self._lost += [(engine, agent) for engine, agents in self._by_engine.items() if agent in agents]
                # Its ranks die with it; processes that they had detached carry the mark.
                reaper = threading.Thread(target=_reap, args=(agent,), name="meshrt-reap", daemon=True)
                self._reapers = [*(thread for thread in self._reapers if thread.is_alive()), reaper]
                reaper.start()

    def end(self) -> None:
        """Wait for the end of the agents that were disconnected, and kill those that do not end."""
        for agent in self.all():
            if not agent.wait(2.0):
                agent.kill()
                if not agent.wait(1.0):
                    agent.output.close()
                _kill_left(agent)
        for reaper in self._reapers:
            reaper.join(3.0)


def wait_until_joined(agent: AgentLink) -> None:
    """Wait until it has said where its processes listen. Raises SpawnError: it is not ready in time, and was ended."""
    if not agent.joined.wait(_JOIN):
        agent.kill()
        raise SpawnError(f"the agent of host {agent.host} has joined, but was not ready after {_JOIN:g} s")


def _undo(placed: Placed) -> None:
    """End an agent that was never connected to."""
    placed.link.close()
    placed.kill()
    placed.wait(_LOOK)
    if placed.stderr is not None:
        placed.stderr.close()


def _reap(agent: AgentLink) -> None:
    if not agent.wait(2.0) and agent.machine:
        agent.kill()  # the command that has started it there: its machine may never answer again
        agent.wait(1.0)
    _kill_left(agent)


def _kill_left(agent: AgentLink) -> None:
    """Kill what an agent has left: by its mark, or, where that was cleared, by the number of its rank."""
    deadline = time.monotonic() + _LOOK
    while True:
        try:
            agent.kill_left()
            return
        except OSError as error:
            if time.monotonic() >= deadline:
                what = "processes of ranks of host %s cannot be listed and may still run: %s (see ulimit -n)"
                logging.getLogger("meshrt").warning(what, agent.host, error.strerror)
                return
        time.sleep(_AGAIN)


def local_engine() -> Engine:
    """Return the engine that starts agents on this machine."""
    module, name = _DEFAULT_ENGINE
    engine: Engine = getattr(importlib.import_module(module), name)()
    return engine
