"""What the root knows of a mesh at one moment, as plain data for plug-ins. Sends no request."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from meshrt.hooks.fate import Fate
from meshrt.selection import Shape

__all__ = ["MeshFacts", "Silent"]


class Silent(msgspec.Struct, frozen=True):
    """Why a rank that lives does not answer, and since when.

    Attributes:
        state: ``"stopped"`` (its process, by a signal), ``"busy"`` (C code holds its GIL), or ``"host"`` (the agent of
            its host does not answer, which is known only after the agents were asked).
        since: Epoch seconds.
    """

    state: str
    since: float


class MeshFacts(msgspec.Struct, frozen=True):
    """One mesh. Numbers are base ranks; a rank that something is not known of is missing there.

    Attributes:
        hosts: Names of hosts, of every rank.
        pids: Of the ranks that have been born, those that ended since included.
        alive: The ranks that have not ended, those that are not born yet included.
        actors: Those that run, or are to run, the first one first: the view that each was spawned on, by the base ranks
            that have it or are to have it, those that have ended with it included.
        started: When it was asked for (epoch seconds).
        ended: The ranks that have ended, and how.
        silent: The ranks that live and do not answer.
        incarnations: How often a rank was started again.
        joined: Whether something else has started its processes, and ends them.
        script: Whether its ranks run a script.
        stopping: Since when it is being stopped, and ``over``: when nothing of it was left (monotonic ns; 0: not yet).
    """

    mesh_id: str
    name: str
    shape: Shape
    hosts: Mapping[int, str] = {}
    pids: Mapping[int, int] = {}
    alive: tuple[int, ...] = ()
    actors: Mapping[str, Mapping[int, Shape]] = {}
    started: float = 0.0
    ended: Mapping[int, Fate] = {}
    silent: Mapping[int, Silent] = {}
    incarnations: Mapping[int, int] = {}
    joined: bool = False
    script: bool = False
    stopping: int = 0
    over: int = 0

    def actors_of(self, rank: int) -> list[str]:
        """Return the names of the actors of a base rank, the first one first."""
        return [name for name, views in self.actors.items() if rank in views]
