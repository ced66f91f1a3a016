"""What plug-ins know of ranks that the runtime does not: each registers a source when it is loaded.

Until then nothing is known: the first stop loads the debugger, an IDE its own side, and the first rank that has
something to tell the inspection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from meshrt.program.states import NOT_STOPPED, PostMortem, State, Stop
from meshrt.selection import Shape

__all__ = ["ActivitySource", "HoldSource", "Sources", "StopSource"]


class StopSource(Protocol):
    """What a debugger has stopped. On the root's loop.

    ``thread`` is "" for the thread that runs the endpoints of an actor, or the name of another one beside it.
    """

    def threads(self) -> Iterable[tuple[str, str, str]]:
        """Return what has ever been stopped and can be named: mesh id, actor, thread. May repeat itself."""

    def views(self, mesh_id: str, actor: str, thread: str) -> Mapping[int, Shape | None]:
        """Return the base ranks where it was stopped, with the view through which it was called there, if known."""

    def stop(self, mesh_id: str, rank: int, actor: str, thread: str) -> Stop:
        """Return what is known of it on one rank."""

    def post_mortems(self) -> Iterable[PostMortem]:
        """Return what is stopped after an exception."""


class HoldSource(Protocol):
    """What an IDE has stopped. On the root's loop."""

    def stopped(self, mesh_id: str, rank: int, actor: str) -> State | None:
        """Return how an actor of a rank is stopped; None: it is not."""


class ActivitySource(Protocol):
    """What ranks and host agents have told by themselves. On the root's loop."""

    def state(self, mesh_id: str, rank: int, actor: str) -> State | None:
        """Return what an actor of a rank was doing when it was last heard of; None: it has told nothing."""


class _Nothing:
    """Every source, before its plug-in is loaded."""

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


@dataclass(slots=True)
class Sources:
    """The sources of one program. A plug-in that is loaded puts its own in the place of the one that knows nothing."""

    stops: StopSource = field(default_factory=_Nothing)
    holds: HoldSource = field(default_factory=_Nothing)
    activity: ActivitySource = field(default_factory=_Nothing)
