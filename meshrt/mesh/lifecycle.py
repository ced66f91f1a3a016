"""Births and ends of ranks, as host agents report them, and what the root does about them. On the root's loop.

A rank: ``asked -> born -> gone``, or ``born -> asked`` again (`meshrt.mesh.restarts`).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from meshrt.errors import MeshError, RankPlace, SpawnError, last_lines
from meshrt.hooks.fate import LAUNCHER_SIGNALS, Fate
from meshrt.hooks.table import hooks
from meshrt.mesh.agents import AgentLink
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.record import MeshRecord, Owner
from meshrt.mesh.registry import Registry
from meshrt.mesh.restarts import Restarts
from meshrt.mesh.services import Services
from meshrt.mesh.stopping import Stopping
from meshrt.mesh.supervision import Supervision
from meshrt.selection import counted
from meshrt.transport.driver import Driver
from meshrt.wire.control import Address
from meshrt.wire.operations import ActorBegun, ActorEnded, CutOff

__all__ = ["Lifecycle"]

#: Seconds after the birth of its last rank after which a mesh has settled: actors are there, and calls are under way.
_SETTLED = 0.08


class Lifecycle:
    """Births and ends of ranks, and of the actors on them.

    Args:
        registry, driver, services, supervision, restarts, stopping, loop: Those of the root.
    """

    def __init__(
        self,
        registry: Registry,
        driver: Driver,
        services: Services,
        supervision: Supervision,
        restarts: Restarts,
        stopping: Stopping,
        loop: RootLoop,
    ) -> None:
        self._registry = registry
        self._driver = driver
        self._services = services
        self._supervision = supervision
        self._restarts = restarts
        self._stopping = stopping
        self._loop = loop
        self._failing_soon = False
        #: Called when a mesh has settled and is not being stopped: what the program may need later is loaded then.
        self.on_settled: list[Callable[[], None]] = []
        #: Called with an agent that is lost, and a mesh that has ranks to be started again elsewhere.
        self.on_homeless: list[Callable[[AgentLink, MeshRecord], None]] = []
        #: Called with mesh id, rank, and why what its actors have spawned ends ("": no error).
        self.on_rank_gone: list[Callable[[str, int, str], None]] = []
        #: Meshes that a rank has made: they end with it.
        self._owned: dict[Address, list[str]] = {}
        stopping.on_killed.append(self.gone)
        services.on_report(ActorBegun, self._actor)
        services.on_report(ActorEnded, self._actor_ended)
        services.on_report(CutOff, self._cut)

    def started(self, mesh_id: str, rank: int, pid: int) -> None:
        """A rank listens."""
        record = self._registry.meshes[mesh_id]
        for callback in self._registry.born(mesh_id, rank, pid):
            callback()
        self._services.on_born(mesh_id, rank)
        record.progress.update(len(record.pids))
        if len(record.pids) == len(record.shape):
            record.initialized.resolve(None)
            self._loop.call_later(_SETTLED, lambda: self._settled(record))

    def _settled(self, record: MeshRecord) -> None:
        if record.stopped is None:
            for function in self.on_settled:
                function()

    def gone(self, mesh_id: str, rank: int, fate: Fate) -> None:
        """A rank has ended: tell all that wait for it; a no-op the second time."""
        record = self._registry.meshes[mesh_id]
        if rank in record.fates:
            return
        fate = replace(fate, when=time.time_ns() / 1e9)
        if (
            fate.kind == "died"
            and record.script
            and (record.joined or record.stopped)
            and fate.signal in LAUNCHER_SIGNALS
        ):
            fate = replace(fate, kind="stopped", hint=f"was ended by {signal.Signals(fate.signal).name}")
        if fate.kind == "died" and record.stopped is not None:
            self._services.announce(f"{record.name} {record.place(rank)} {fate} while it was being stopped")
            if not record.grace:
                # Behind the interrupt: an error is on its way, and this one follows from its end.
                fate = replace(fate, kind="stopped")
        if fate.kind == "died" and record.script and fate.exit_code == 0:
            fate = replace(fate, kind="stopped", hint="has ended its script, with exit status 0")
        refusal = self._restarts.refuses(record, rank, fate)
        if refusal is None:
            self._start_again(record, rank, replace(fate, restarts=True))
            return
        if fate.kind == "unborn" and rank in record.incarnations:
            # It had been there: requests to it, and its creator, must not wait for ever.
            fate = replace(fate, kind="died", hint=f"its restart failed: {fate.hint}")
        # A caller that waits is told by the error of the call.
        owed = self._services.owed_by(mesh_id, rank)
        for callback in self._registry.gone(mesh_id, rank, fate):
            callback()
        self._fail_pending_soon()
        self._services.on_gone(mesh_id, rank, fate, owed)
        if rank not in record.pids:
            record.progress.update(len(record.shape))
            record.initialized.reject(_unstarted(record, rank, fate))
            if fate.kind == "unborn" and record.stopped is None:
                # An incomplete mesh cannot be used, and its owner has only an error, not a handle to stop it.
                self._stopping.stop(mesh_id, 0.0, str(record.initialized.exception(0)))
        if fate.kind == "died" and record.stopped is None and (refusal or not owed):
            again = f"; the rank is not restarted: {refusal}" if refusal else ""
            self._services.announce(f"{record.name} {record.place(rank)} {fate}{again}")
        if fate.kind in ("died", "host"):
            self._supervision.lost(record, rank, fate)
        if fate.kind == "stopped" and fate.signal == signal.SIGKILL and record.grace > 0:
            record.cut.killed(rank)
        self._end_owned(mesh_id, rank, fate)

    def _start_again(self, record: MeshRecord, rank: int, fate: Fate) -> None:
        mesh_id = record.mesh_id
        owed = self._services.owed_by(mesh_id, rank)
        where = record.place(rank)
        for callback in self._registry.restarted(mesh_id, rank, fate, self._restarts.begin(mesh_id, rank)):
            callback()
        self._fail_pending_soon()
        self._services.on_gone(mesh_id, rank, fate, owed)
        self._end_owned(mesh_id, rank, fate)
        if fate.kind == "host":
            record.homeless.add(rank)  # `lose` goes on, with all of them
            return
        self._services.announce(f"{record.name} {where} {fate}; restarting it (restart {record.incarnations[rank]})")
        record.agent_of[rank].send_frames(record.births([rank]))

    def _fail_pending_soon(self) -> None:
        if not self._failing_soon:
            # Many ranks may end together: tell the callers once, so that their error can name all of them.
            self._failing_soon = True
            self._loop.post(self._fail_pending)

    def _end_owned(self, mesh_id: str, rank: int, fate: Fate) -> None:
        self._restarts.forget_spawner((mesh_id, rank))
        why = f"the rank of the actor that spawned this actor {fate}" if fate.kind != "stopped" else ""
        for rank_gone in self.on_rank_gone:
            rank_gone(mesh_id, rank, why)
        for owned in self._known(self._owned.pop((mesh_id, rank), ())):
            self._stopping.stop(owned, 0.0, f"the rank that created this mesh {fate}" if fate.kind != "stopped" else "")

    def own(self, owner: Owner, mesh_id: str) -> None:
        """A rank has made a mesh, which ends with it."""
        record = self._registry.meshes.get(owner.mesh_id)
        if record is None or owner.rank in record.fates:
            self._stopping.stop(mesh_id, 0.0, "the rank that created this mesh has ended")
            return
        address = (owner.mesh_id, owner.rank)
        self._owned[address] = [*self._known(self._owned.get(address, ())), mesh_id]

    def _known(self, meshes: Iterable[str]) -> list[str]:
        """Return those that are not forgotten: meshes that ended long ago are."""
        return [mesh_id for mesh_id in meshes if mesh_id in self._registry.meshes]

    def _actor(self, mesh_id: str, rank: int, report: ActorBegun) -> None:
        """An actor has begun."""
        self._registry.actor(mesh_id, rank, report.actor, here=True)
        hooks.run(self._services.actor_begun, mesh_id, rank, report.actor)

    def _actor_ended(self, mesh_id: str, rank: int, report: ActorEnded) -> None:
        """An actor was stopped."""
        self._registry.actor(mesh_id, rank, report.actor, here=False)
        self._restarts.forget_actor(mesh_id, rank, report.actor)

    def _cut(self, mesh_id: str, rank: int, report: CutOff) -> None:
        """A rank reports what it still does at the end of the grace."""
        record = self._registry.meshes.get(mesh_id)
        if record is not None:
            record.cut.told(rank, report)

    def stopped_on(self, agent: AgentLink, record: MeshRecord) -> None:
        """An agent has ended its part of a mesh."""
        for rank in record.alive():
            if record.agent_of[rank] is agent:
                # It was never asked for: Ctrl-C came in the middle of `spawn`.
                self.gone(record.mesh_id, rank, Fate("stopped", host=agent.host))
        record.stopped_agents.add(agent)
        self._stopping.check(record)

    def lose(self, agent: AgentLink) -> None:
        """An agent is gone, and its ranks with it."""
        why = agent.why()
        for record, ranks in self._registry.of_agent(agent):
            if ranks:
                # As of a rank that dies then: within the grace, what was sent before is lost with it.
                kind = "host" if record.stopped is None or record.grace else "stopped"
                with self._driver.lost.together():
                    for rank in ranks:
                        fate = Fate(
                            kind,
                            host=agent.host,
                            pid=record.pids.get(rank, 0),
                            log_tail=(*record.last_lines.get(rank, ()), *agent.output.tail),
                            hint=why,
                            low=agent.alive_at,
                            high=agent.gone_at,
                        )
                        self.gone(record.mesh_id, rank, fate)
                if kind == "host":
                    self._services.announce(
                        f"the agent of host {agent.host} was lost, and with it {counted(len(ranks))} of {record.name}"
                        + (f" ({why})" if why else "")
                        + ("" if record.stopped is None else ", which was being stopped")
                        + (f"; {counted(len(record.homeless))} will be restarted" if record.homeless else "")
                    )
                if record.homeless:
                    for move in self.on_homeless:
                        move(agent, record)
            record.stopped_agents.add(agent)
            self._stopping.check(record)

    def _fail_pending(self) -> None:
        self._failing_soon = False
        self._driver.lost.fail_pending()


def _unstarted(record: MeshRecord, rank: int, fate: Fate) -> MeshError:
    if fate.kind == "stopped":
        return fate.error(RankPlace(record.mesh_id, "", rank), "")
    error = SpawnError(f"rank {rank} of {record.name} {fate}{last_lines(fate.log_tail)}")
    if fate.kind in ("died", "host"):
        # A caller that is given this error has been told of that failure, too.
        error.__cause__ = replace(fate, log_tail=()).error(record.rank_place(rank), "")
    return error
