"""One question to many ranks: the root's side of `meshrt.host.gather`. On the root's loop.

The agents say which ranks are silent. The root gives up an agent that says nothing itself: at once one that a signal
has stopped, any other one later, as it may lack a processor.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgpack
from msgspec.structs import replace

from meshrt.errors import ProtocolError, UsageError
from meshrt.hooks.facts import Answered, Gathered, Unanswered
from meshrt.hooks.operations import Data, GroupedOperation, body_of
from meshrt.mesh.registry import Registry
from meshrt.transport.kernel import is_stopped
from meshrt.wire.pending import PendingTable
from meshrt.wire.tree import Gather, LeaveGather
from meshrt.wire.tree import Gathered as AgentGathered

if TYPE_CHECKING:
    from meshrt.mesh.agents import AgentLink

__all__ = ["Gathers"]

S = TypeVar("S")
P = TypeVar("P")

_FIRST = 0.05
_NEXT = 0.1
#: Seconds beyond the time of a question after which an agent that is stopped is no longer waited for.
_OVERDUE = 0.3
#: ... and any other: so many times the time of the question, and seconds at most.
_LATE_TIMES = 4
_LATE_SECONDS = 5.0


class _Gather(Generic[S, P]):
    """A question under way, and the answers since the last report."""

    def __init__(
        self, operation: GroupedOperation[S, P], registry: Registry, report: Callable[[Gathered[S, P]], None]
    ) -> None:
        self.operation = operation
        self.registry = registry
        self.report = report
        self.waiting: dict[str, set[int]] = {}
        #: The agents that were asked, each for its ranks.
        self.agents: dict[AgentLink, dict[str, list[int]]] = {}
        #: When each was last heard of, monotonic seconds.
        self.heard: dict[AgentLink, float] = {}
        self.groups: dict[tuple[str, str, bytes], tuple[list[int], Any, dict[int, Any]]] = {}
        self.reported = False
        self.ended = False

    def add(self, mesh_id: str, kind: str, ranks: Sequence[int], same: Any, per: Sequence[Any] | None = None) -> None:
        """Take in the state of some ranks."""
        waiting = self.waiting.get(mesh_id)
        if waiting is None:
            return
        key = (mesh_id, kind, msgpack.packb(same, unicode_errors="backslashreplace"))
        members, _, pers = self.groups.setdefault(key, ([], same, {}))
        for index, rank in enumerate(ranks):
            if rank in waiting:
                waiting.remove(rank)
                members.append(rank)
                if per is not None and per[index] is not None:
                    pers[rank] = per[index]
        if not members:
            del self.groups[key]
        if not waiting:
            del self.waiting[mesh_id]

    def add_silent(self, share: Mapping[str, Sequence[int]]) -> None:
        """The agent of these ranks does not answer."""
        for mesh_id, ranks in share.items():
            self.add(mesh_id, "silent", ranks, {"state": "host", "stack": ""})

    def take(self) -> Gathered[S, P]:
        """Return what is new."""
        groups = [
            self._on_root_clock(self.operation.read_group(mesh_id, tuple(sorted(members)), kind, same, per))
            for (mesh_id, kind, _), (members, same, per) in self.groups.items()
        ]
        self.groups.clear()
        self.reported = True
        return Gathered(groups, not self.waiting)

    def _on_root_clock(self, group: Answered[S, P] | Unanswered) -> Answered[S, P] | Unanswered:
        """Convert the times of ranks of other machines: they are in what differs from rank to rank."""
        if isinstance(group, Unanswered) or not group.per:
            return group
        clocks = self.registry.clocks_of(group.mesh_id)
        if not clocks:
            return group
        per = {
            rank: each.on_root_clock(clocks[rank]) if rank in clocks and isinstance(each, Data) else each
            for rank, each in group.per.items()
        }
        return replace(group, per=per)


class Gathers:
    """The questions under way.

    Args:
        registry: The meshes.
        call_later: Runs a function on the root's loop after so many seconds.
    """

    def __init__(self, registry: Registry, call_later: Callable[[float, Callable[[], None]], None]) -> None:
        self._registry = registry
        self._call_later = call_later
        self._gathers: PendingTable[_Gather[Any, Any]] = PendingTable()

    def begin(
        self,
        targets: Mapping[str, Sequence[int]],
        operation: GroupedOperation[S, P],
        seconds: float,
        report: Callable[[Gathered[S, P]], None],
        *,
        stack_suffices: bool = False,
    ) -> int:
        """See `meshrt.hooks.services.RootServices.gather`."""
        gather = _Gather(operation, self._registry, report)
        shares: dict[AgentLink, dict[str, list[int]]] = {}
        for mesh_id, ranks in targets.items():
            if ranks:
                self._share_out(gather, mesh_id, ranks, shares)
        number = self._gathers.add(gather)
        try:
            for agent, share in shares.items():
                if agent.full:
                    gather.add_silent(share)
                    continue
                agent.send(Gather(number, operation.name(), body_of(operation), seconds, stack_suffices, share))
                gather.agents[agent] = share
                gather.heard[agent] = time.monotonic()
        except ProtocolError:
            self.leave(number)
            raise
        self._call_later(0.0 if not gather.waiting else _FIRST, lambda: self._tick(number))
        self._call_later(seconds + _OVERDUE, lambda: self._give_up(number, seconds))
        return number

    def _share_out(
        self, gather: _Gather[S, P], mesh_id: str, ranks: Sequence[int], shares: dict[AgentLink, dict[str, list[int]]]
    ) -> None:
        asked = gather.waiting[mesh_id] = set(ranks)
        record = self._registry.meshes.get(mesh_id)
        if record is None:
            gather.add(mesh_id, "gone", sorted(asked), "was stopped")
            return
        count = len(record.shape)
        for rank in sorted(asked):
            if not 0 <= rank < count:
                raise UsageError(f"{record.name} has ranks 0 to {count - 1}, and no rank {rank}")
            fate = record.fates.get(rank)
            if fate is not None:
                gather.add(mesh_id, "gone", [rank], str(fate))
            else:
                shares.setdefault(record.agent_of[rank], {}).setdefault(mesh_id, []).append(rank)

    def leave(self, number: int) -> None:
        """End the reports of a question; a no-op for one that is done."""
        gather = self._gathers.remove(number)
        if gather is not None:
            for agent in gather.agents:
                if not agent.gone:
                    agent.send(LeaveGather(number))

    def received(self, agent: AgentLink, gathered: AgentGathered) -> None:
        """An agent has answers, or says that it waits for some."""
        gather = self._gathers.find(gathered.id)
        if gather is not None:
            gather.heard[agent] = time.monotonic()
            for mesh_id, kind, ranks, same, per in gathered.groups:
                gather.add(mesh_id, kind, ranks, same, per)
            self._look(gathered.id)

    def gone(self, mesh_id: str, rank: int, how: str) -> None:
        """A rank has ended."""
        for number, gather in self._gathers.waiting():
            if rank in gather.waiting.get(mesh_id, ()):
                gather.add(mesh_id, "gone", [rank], how)
                self._look(number)

    def _look(self, number: int) -> None:
        """All in?"""
        gather = self._gathers.find(number)
        if gather is not None and not gather.waiting and not gather.ended:
            # Behind the current function: that may be the call that asked.
            gather.ended = True
            self._call_later(0.0, lambda: self._tick(number))

    def _tick(self, number: int) -> None:
        gather = self._gathers.find(number)
        if gather is None:
            return
        gathered = gather.take() if gather.groups or not gather.waiting or not gather.reported else None
        if gathered is not None and gathered.done:
            self._gathers.remove(number)
        else:
            self._call_later(_NEXT, lambda: self._tick(number))
        if gathered is not None:
            gather.report(gathered)

    def _give_up(self, number: int, seconds: float) -> None:
        """Wait no longer for agents that say nothing."""
        gather = self._gathers.find(number)
        if gather is None or not gather.waiting:
            return
        late = seconds + min(_LATE_SECONDS, _LATE_TIMES * seconds)
        for agent in [*gather.agents]:
            passed = time.monotonic() - gather.heard[agent]
            if passed >= late or (passed >= seconds and _is_stopped(agent)):
                gather.add_silent(gather.agents.pop(agent))
                if not agent.gone:
                    agent.send(LeaveGather(number))
        self._look(number)
        self._call_later(_OVERDUE, lambda: self._give_up(number, seconds))


def _is_stopped(agent: AgentLink) -> bool:
    """Whether a signal has stopped an agent. Of one on another machine that is not known: False."""
    with contextlib.suppress(OSError):
        return not agent.machine and is_stopped(agent.pid)
    return False
