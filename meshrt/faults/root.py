"""The root's side of plans of faults: brings them to ranks, and passes on what these tell."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from meshrt.errors import MeshError
from meshrt.faults.operations import Armed, BeginOnRank, Happens, Planned
from meshrt.hooks.facts import Answered, Gathered, Unanswered
from meshrt.hooks.operations import GroupedOperation, Nothing
from meshrt.hooks.services import RootServices

__all__ = ["Faults", "load"]

S = TypeVar("S")
P = TypeVar("P")

#: Seconds without an answer after which a rank counts as silent; and until the root itself counts so.
_SECONDS = 5.0
_PATIENCE = 60.0


class Faults:
    """The plans that are under way. Threads of the script, where a method does not say otherwise."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        self._told: dict[str, Callable[[int, int], None]] = {}

    def begin(
        self, plan: str, mesh_id: str, faults: Sequence[Planned], told: Callable[[int, int], None]
    ) -> list[Answered[Armed, None] | Unanswered]:
        """Bring a plan to its ranks; returns their answers.

        Args:
            told: Called with the number of a fault and the base rank that is about to have it, which waits meanwhile.
                On the root's loop: it must not block.
        """
        self._told[plan] = told
        ranks = sorted({rank for fault in faults for rank in fault.ranks})
        return self.ask(mesh_id, ranks, BeginOnRank(plan, faults))

    def forget(self, plan: str) -> None:
        """Pass on nothing more of a plan."""
        self._told.pop(plan, None)

    def ask(
        self, mesh_id: str, ranks: Sequence[int], operation: GroupedOperation[S, P]
    ) -> list[Answered[S, P] | Unanswered]:
        """Put an operation to ranks of a mesh, and wait for all answers."""
        groups: list[Answered[S, P] | Unanswered] = []
        done = threading.Event()

        def report(gathered: Gathered[S, P]) -> None:
            groups.extend(gathered.groups)
            if gathered.done:
                done.set()

        self._services.call_soon(lambda: self._gather(mesh_id, ranks, operation, report))
        if not done.wait(_PATIENCE):
            raise MeshError("the program does not answer about its ranks")
        return groups

    def _gather(
        self,
        mesh_id: str,
        ranks: Sequence[int],
        operation: GroupedOperation[S, P],
        report: Callable[[Gathered[S, P]], None],
    ) -> None:
        self._services.gather({mesh_id: ranks}, operation, _SECONDS, report)

    def happens(self, mesh_id: str, rank: int, happens: Happens) -> Nothing:
        """A rank is about to have a fault. On the root's loop."""
        told = self._told.get(happens.plan)
        if told is None:
            raise MeshError("this plan has ended")  # then the fault does not happen
        told(happens.number, rank)
        return Nothing()


def load(services: RootServices) -> None:
    """Take what ranks tell: called once, by the first plan."""
    faults = Faults(services)
    services.tables["faults"] = faults
    services.serve_ranks(Happens, faults.happens)
