"""Ranks that were lost with another machine, and are started again on a host that is left.

::

    lost --its agent has ended them for sure--> placing --a host--> asked for, as at a first birth
      |                                           `-------none----> lost for good: a failure of the mesh
      `--the mesh is stopped--> stopped (`meshrt.mesh.stopping`)

Nothing runs twice: an agent that hears nothing from the root ends its ranks before the root takes its machine for lost
(`meshrt.transport.liveness`). Where the connection has ended in another way, the root waits for as long.
"""

from __future__ import annotations

import functools
import threading

from meshrt.errors import MeshError
from meshrt.hooks.fate import Fate
from meshrt.mesh.agents import AgentLink
from meshrt.mesh.host_agents import HostAgents
from meshrt.mesh.lifecycle import Lifecycle
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.record import MeshRecord
from meshrt.mesh.services import Services
from meshrt.selection import counted
from meshrt.transport.liveness import FENCE_SECONDS

__all__ = ["Moving"]


class Moving:
    """Finds hosts for ranks that have lost theirs. On the root's loop, unless said otherwise.

    Args:
        loop, agents, lifecycle, services: Those of the root.
    """

    def __init__(self, loop: RootLoop, agents: HostAgents, lifecycle: Lifecycle, services: Services) -> None:
        self._loop = loop
        self._agents = agents
        self._lifecycle = lifecycle
        self._services = services
        lifecycle.on_homeless.append(self._begin)

    def _begin(self, lost: AgentLink, record: MeshRecord) -> None:
        ranks = sorted(rank for rank in record.homeless if record.agent_of[rank] is lost)
        if not ranks:
            return
        work = functools.partial(self._find, lost, record, ranks)
        start = threading.Thread(target=work, name="meshrt-spare", daemon=True).start
        if lost.why():
            start()
        else:
            self._loop.call_later(FENCE_SECONDS, start)

    def _find(self, lost: AgentLink, record: MeshRecord, ranks: list[int]) -> None:
        """Placing may take a moment. A thread of its own."""
        if record.stopped is not None:
            return
        try:
            spare = self._agents.spare(lost, record.agents, len(record.shape))
        except (MeshError, OSError) as error:
            self._loop.post(functools.partial(self._give_up, lost, record, ranks, str(error)))
        else:
            self._loop.post(functools.partial(self._move, record, ranks, spare))

    def _move(self, record: MeshRecord, ranks: list[int], spare: AgentLink) -> None:
        moved = [rank for rank in ranks if rank in record.homeless]
        record.homeless.difference_update(moved)
        for rank in moved:
            record.agent_of[rank] = spare
        if moved:
            self._services.announce(f"restarting {counted(len(moved))} of {record.name} on host {spare.host}")
        for rank in moved:
            spare.send_frames(record.births([rank]))
        if spare.gone:  # since it was chosen
            self._lifecycle.lose(spare)

    def _give_up(self, lost: AgentLink, record: MeshRecord, ranks: list[int], problem: str) -> None:
        why = f"{lost.why() or 'its host was lost'}; no other host can replace it: {problem}"
        for rank in ranks:
            if rank in record.homeless:
                record.homeless.discard(rank)
                self._lifecycle.gone(record.mesh_id, rank, Fate("host", host=lost.host, hint=why))
