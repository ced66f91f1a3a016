"""How much memory ranks have: the root's side of `meshrt.host.memory`. On the root's loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from meshrt.hooks.measured import Measured
from meshrt.mesh.registry import Registry
from meshrt.wire.pending import PendingTable
from meshrt.wire.tree import Measure
from meshrt.wire.tree import Measured as AgentMeasured

if TYPE_CHECKING:
    import asyncio

    from meshrt.mesh.agents import AgentLink

__all__ = ["Measures"]


class _Question:
    def __init__(self, waiting: set[AgentLink], done: asyncio.Future[None]) -> None:
        self.waiting = waiting
        self.done = done
        self.answer = Measured()


class Measures:
    """The questions under way.

    Args:
        registry: The meshes.

    Attributes:
        others: Return agents without ranks that are to be asked, too: they may have shared memory.
    """

    def __init__(self, registry: Registry) -> None:
        self.others: list[Callable[[], Sequence[AgentLink]]] = []
        self._registry = registry
        self._questions: PendingTable[_Question] = PendingTable()

    async def ask(
        self,
        targets: Mapping[str, Sequence[int]],
        seconds: float,
        references: str | None = None,
        *,
        work: bool = False,
        children: bool = False,
    ) -> Measured:
        """See `meshrt.hooks.services.RootServices.measure`."""
        import asyncio  # start-up: the loop that runs has loaded it

        shares: dict[AgentLink, dict[str, list[int]]] = {}
        for mesh_id, ranks in targets.items():
            record = self._registry.meshes.get(mesh_id)
            for rank in ranks:
                if record is not None and rank not in record.fates:
                    shares.setdefault(record.agent_of[rank], {}).setdefault(mesh_id, []).append(rank)
        if not work:
            for others in self.others:
                for agent in others():
                    shares.setdefault(agent, {})
        asked = {agent for agent in shares if not (agent.gone or agent.full)}
        question = _Question(set(asked), asyncio.get_running_loop().create_future())
        number = self._questions.add(question)
        try:
            for agent in asked:
                agent.send(Measure(number, shares[agent], references, work, children))
            if question.waiting:
                await asyncio.wait([question.done], timeout=seconds)
        finally:
            self._questions.remove(number)
        silent = question.waiting | {agent for agent in shares.keys() - asked if not agent.gone}
        question.answer.silent.extend(sorted(agent.host for agent in silent))
        return question.answer

    def received(self, agent: AgentLink, measured: AgentMeasured) -> None:
        """An agent has measured."""
        question = self._questions.find(measured.id)
        if question is None:
            return  # too late
        answer = question.answer
        for mesh_id, rank, facts in measured.rows:
            known = answer.ranks.get((mesh_id, rank))
            answer.ranks[mesh_id, rank] = facts if known is None else known.joined(facts)
        answer.references += [msgspec.structs.replace(row, host=agent.host) for row in measured.references]
        if measured.agent is not None:
            answer.agents[agent.host] = measured.agent
        if measured.done:
            self._end(question, agent)

    def gone(self, agent: AgentLink) -> None:
        """An agent has ended."""
        for _, question in self._questions.waiting():
            self._end(question, agent)

    @staticmethod
    def _end(question: _Question, agent: AgentLink) -> None:
        question.waiting.discard(agent)
        if not question.waiting and not question.done.done():
            question.done.set_result(None)
