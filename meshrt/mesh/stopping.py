"""The end of a mesh: the requests to host agents, what is done if they do not answer, and when it is complete.

::

    running --stop--> asked: every agent --"stopped" of each, or its end--> (over)
                        `--grace + 0.8 s--> its ranks are killed here, and the agent is waited for no longer
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable

from meshrt.errors import SpawnError
from meshrt.hooks.fate import Fate
from meshrt.mesh.agents import AgentLink
from meshrt.mesh.future import Future
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.record import MeshRecord
from meshrt.mesh.registry import Registry
from meshrt.mesh.restarts import Restarts
from meshrt.transport.driver import Driver
from meshrt.wire.tree import Stop

__all__ = ["OverdueAgents", "Stopping"]

#: Seconds beyond the grace after which an agent that has not ended a mesh is no longer waited for (it kills at 0.5).
_OVERDUE = 0.8
#: Seconds for each answer of such an agent.
_HEAR = 2.0


class OverdueAgents:
    """Host agents that did not answer in time, when a mesh or the program was to end: their reports are waited for.

    Args:
        announce: Prints a line.
    """

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._agents: set[AgentLink] = set()
        #: Those that did not answer at the end of the program either: failures on their ranks are not known.
        self.unheard: set[AgentLink] = set()

    def add(self, agent: AgentLink) -> None:
        """One has not ended its part of a mesh in time."""
        self._agents.add(agent)

    def resume(self, agents: list[AgentLink]) -> None:
        """Make agents that a signal has stopped report failures: they end now anyway."""
        for agent in agents:
            if agent.resume():
                self._agents.add(agent)
                self._announce(
                    f"the agent of host {agent.host} (pid {agent.pid}) was stopped by a signal: it is "
                    "resumed, as the program ends"
                )

    def hear(self) -> None:
        """Wait for their reports. Any thread but the loop's."""
        for agent in self._agents - self.unheard:
            if not agent.hear(_HEAR):
                self.unheard.add(agent)
                self._announce(
                    f"the agent of host {agent.host} (pid {agent.pid}) does not answer at the end of the "
                    "program: failures on its ranks are not known, so the exit status is 1"
                )


class Stopping:
    """Ends meshes.

    Args:
        registry, driver, restarts, loop, overdue: Those of the root.
        announce: Prints a line.

    Attributes:
        on_killed: Called with the mesh id, the rank and its fate when a rank was ended without its agent. On the loop.
    """

    def __init__(
        self,
        registry: Registry,
        driver: Driver,
        restarts: Restarts,
        loop: RootLoop,
        overdue: OverdueAgents,
        announce: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._driver = driver
        self._restarts = restarts
        self._loop = loop
        self._overdue = overdue
        self._announce = announce
        self._lock = threading.RLock()
        self.on_killed: list[Callable[[str, int, Fate], None]] = []
        loop.on_failure.append(self._fail_all)

    def stop(self, mesh_id: str, grace: float, why: str = "") -> Future[None]:
        """End a mesh; every caller gets the same future. Any thread.

        Args:
            grace: Seconds for what was sent before.
            why: The error that is the reason.
        """
        record = self._registry.meshes[mesh_id]
        record.interrupt_after(grace)
        with self._lock:
            if record.stopped is not None:
                if grace <= 0 and not record.stopped.finished:
                    record.grace = 0.0
                    self._send_stop(record, 0.0, why, drain=False)
                return record.stopped
            record.grace = max(0.0, grace)
            stopped = record.begin_stop(self._driver)
            if self._loop.failure:
                stopped.resolve(None)
        # The request to stop takes another way than calls do, and must not arrive before them.
        self._driver.queues.when_written(
            mesh_id, grace, lambda left: self._send_stop(record, left, why, drain=grace > 0)
        )
        self._loop.post(lambda: self.check(record))
        return stopped

    def _send_stop(self, record: MeshRecord, grace: float, why: str, *, drain: bool) -> None:
        # Before the ranks hear of it: one that is interrupted takes what waits here, and has counted without it.
        record.cut.more(self._driver.queues.unwritten(record.mesh_id))
        for agent in record.agents:
            if not agent.gone:
                agent.send(Stop(record.mesh_id, grace, drain, why))
        # By its id: most have ended long before, and may be forgotten.
        self._loop.post_later(grace + _OVERDUE, functools.partial(self._stop_overdue, record.mesh_id))

    def _stop_overdue(self, mesh_id: str) -> None:
        """An agent does not answer (it was stopped itself?): end its ranks without it. On the loop."""
        record = self._registry.meshes.get(mesh_id)
        if record is None:
            return
        for agent in record.agents:
            if agent.gone or agent in record.stopped_agents:
                continue
            ranks = [rank for rank in record.alive() if record.agent_of[rank] is agent]
            agent.kill_ranks([record.pids[rank] for rank in ranks if rank in record.pids])
            for rank in ranks:
                fate = Fate("stopped", host=agent.host, pid=record.pids.get(rank, 0))
                for killed in self.on_killed:
                    killed(record.mesh_id, rank, fate)
            record.stopped_agents.add(agent)
            self._overdue.add(agent)
        self.check(record)

    def check(self, record: MeshRecord) -> None:
        """Complete the stop of a mesh if all its ranks have ended. On the loop."""
        stopped = record.stopped
        if stopped is None or stopped.finished:
            return
        while record.homeless:
            rank = record.homeless.pop()
            for killed in self.on_killed:
                killed(record.mesh_id, rank, Fate("stopped", host=record.agent_of[rank].host))
        if all(agent in record.stopped_agents or agent.gone for agent in record.agents) and not record.alive():
            record.over_at = time.monotonic_ns()
            if text := record.cut.text(record.grace, record.abandoned):
                self._announce(text)
            self._driver.lost.fail_pending()
            self._driver.forget(record.mesh_id)
            self._restarts.forget(record.mesh_id)
            self._registry.mesh_ended(record.mesh_id)
            stopped.resolve(None)

    def _fail_all(self) -> None:
        for record in self._registry.running():
            self.fail(record)

    def fail(self, record: MeshRecord) -> None:
        """End a mesh that is not served any more because the loop has failed. Any thread, also two of them."""
        for agent in record.agents:
            agent.kill()
        fate = Fate("unborn", hint=self._loop.failure, when=time.time_ns() / 1e9)
        for rank in record.alive():
            for callback in self._registry.gone(record.mesh_id, rank, fate):
                callback()
        record.initialized.reject(SpawnError(self._loop.failure))
        if record.stopped is not None:
            record.stopped.resolve(None)
        self._driver.lost.fail_pending()
