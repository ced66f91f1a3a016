"""What plug-ins know of ranks and the runtime does not: each plug-in registers a source when it is loaded.

Until then nothing is known. The first stop loads the debugger; an IDE loads its own side; the first report of a rank
loads the inspection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from meshrt.program.states import NOT_STOPPED, PostMortem, State, Stop
from meshrt.program.waits import WaitGraph
from meshrt.selection import Shape

__all__ = ["ActivitySource", "HoldSource", "Sources", "StopSource"]


class StopSource(Protocol):
    """What a debugger has stopped. On the root's loop.

    ``thread`` is "" for the thread that runs the endpoints of an actor, or the name of another one beside it.
    """

    def threads(self) -> Iterable[tuple[str, str, str]]:
        """Return all threads that were ever stopped and can be named: mesh id, actor, thread. May repeat entries."""

    def views(self, mesh_id: str, actor: str, thread: str) -> Mapping[int, Shape | None]:
        """Return the base ranks where a thread was stopped, with the view of the call that ran there, if known."""

    def stop(self, mesh_id: str, rank: int, actor: str, thread: str) -> Stop:
        """Return what is known of a thread on one rank."""

    def post_mortems(self) -> Iterable[PostMortem]:
        """Return the actors that are stopped after an exception."""


class HoldSource(Protocol):
    """What an IDE has stopped. On the root's loop."""

    def stopped(self, mesh_id: str, rank: int, actor: str) -> State | None:
        """Return how an actor of a rank is stopped; None: it is not stopped."""


class ActivitySource(Protocol):
    """What ranks and host agents have reported by themselves. On the root's loop."""

    def state(self, mesh_id: str, rank: int, actor: str) -> State | None:
        """Return the last reported state of an actor of a rank; None: there was no report."""

    def waits(self) -> WaitGraph:
        """Return the waits of all actors that are known to be blocked or stopped."""

    def actors(self, mesh_id: str, rank: int) -> Mapping[int, str]:
        """Return the names of the actors of a rank that are not on its main thread, by the ident of their thread."""

    def groups(self, mesh_id: str) -> Mapping[str, Collection[int]]:
        """Return the members of process groups of torch.distributed, base ranks, by the name of the groups."""


class _Nothing:
    """The source in place of each plug-in that is not loaded."""

    def threads(self) -> Iterable[tuple[str, str, str]]:
        return ()

    def views(self, mesh_id: str, actor: str, thread: str) -> Mapping[int, Shape | None]:
        return {}

    def stop(self, mesh_id: str, rank: int, actor: str, thread: str) -> Stop:
        return NOT_STOPPED

    def post_mortems(self) -> Iterable[PostMortem]:
        return ()

    def stopped(self, mesh_id: str, rank: int, actor: str) -> State | None:
        return None

    def state(self, mesh_id: str, rank: int, actor: str) -> State | None:
        return None

    def waits(self) -> WaitGraph:
        return WaitGraph()

    def actors(self, mesh_id: str, rank: int) -> Mapping[int, str]:
        return {}

    def groups(self, mesh_id: str) -> Mapping[str, Collection[int]]:
        return {}


@dataclass(slots=True)
class Sources:
    """The sources of one program. A plug-in that is loaded replaces the one that knows nothing.

    Attributes:
        terminals: Returns the pids of the debugger's terminals that persons use.
    """

    stops: StopSource = field(default_factory=_Nothing)
    holds: HoldSource = field(default_factory=_Nothing)
    activity: ActivitySource = field(default_factory=_Nothing)
    terminals: Callable[[], Sequence[int]] = field(default=lambda: ())
