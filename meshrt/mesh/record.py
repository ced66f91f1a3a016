"""What the root keeps of one mesh: where its ranks live, how they have ended, how it is being stopped."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Set
from typing import NamedTuple

from meshrt.errors import RankPlace
from meshrt.hooks.fate import Fate
from meshrt.hooks.snapshot import Silent
from meshrt.mesh.agents import AgentLink
from meshrt.mesh.cut import CutWork
from meshrt.mesh.future import Settled
from meshrt.mesh.progress import Progress
from meshrt.mesh.spec import MeshSpec
from meshrt.selection import Shape
from meshrt.transport.driver import Driver
from meshrt.wire.addresses import MeshAddress
from meshrt.wire.operations import LogLevels

__all__ = ["MeshRecord", "Owner"]


class Owner(NamedTuple):
    """A rank that has made a mesh; ``actor`` is "" where no actor ran."""

    mesh_id: str
    rank: int
    actor: str


class ActorRecord:
    """Where one actor lives. Its spawner tells the ranks; each of them tells when it begins there and when it ends.

    Of a rank: ``spawned -> begun -> stopped -> spawned ...``; if its process is started again, it is spawned again.
    """

    def __init__(self) -> None:
        #: Whether it lives there, by the ranks that have begun it.
        self.begun: dict[int, bool] = {}
        #: The view that it was spawned on last, by base rank.
        self._spawned: dict[int, Shape] = {}
        #: Who has spawned it last, by base rank; None: the script.
        self.spawners: dict[int, Owner | None] = {}
        #: What `views` has returned; None: something has changed since.
        self._views: dict[int, Shape] | None = None

    def spawned(self, view: Shape, spawner: Owner | None) -> None:
        """Note that it is spawned on a view."""
        self._views = None
        for rank in view.ndslice:
            self._spawned[rank] = view
            self.spawners[rank] = spawner
            if not self.begun.get(rank):
                self.begun.pop(rank, None)

    def renamed(self, before: Shape, after: Shape) -> None:
        """Note that the dimensions of the mesh have other names."""
        self._views = None
        self._spawned = {rank: after if view == before else view for rank, view in self._spawned.items()}

    def told(self, rank: int, *, here: bool) -> None:
        """Note that a rank has begun it, or has stopped it (``here`` is False)."""
        self._views = None
        self.begun[rank] = here

    def restarted(self, rank: int, *, again: bool) -> None:
        """Note that the process of a rank is started again, with the actor or without it."""
        if self.had_by(rank):
            self.told(rank, here=False)
            if again:
                del self.begun[rank]

    def lives_on(self, rank: int) -> bool:
        """Whether a rank has it, or is to have it."""
        return self.begun.get(rank, rank in self._spawned)

    def had_by(self, rank: int) -> bool:
        """Whether it was spawned on a rank, whatever has become of it."""
        return rank in self.begun or rank in self._spawned

    def views(self, whole: Shape) -> Mapping[int, Shape]:
        """Return the view that it was spawned on, by the ranks that have it or are to have it.

        Args:
            whole: The view that is returned where it is not known yet: a rank tells its part at another time.
        """
        if self._views is None:
            ranks = {rank for rank in self._spawned if self.begun.get(rank, True)}
            ranks.update(rank for rank, here in self.begun.items() if here)
            self._views = {rank: self._spawned.get(rank, whole) for rank in sorted(ranks)}
        return self._views


class MeshRecord:
    """One mesh.

    Args:
        mesh_id, name, spec: What it is.
        agents: Those that are to have its ranks.
        driver: Its futures wait with it.
        owner: The rank that has made it; None: the script.
        births: Makes the messages that ask an agent to start some ranks.
        progress: Shows how many ranks have started.
    """

    def __init__(
        self,
        mesh_id: str,
        name: str,
        spec: MeshSpec,
        agents: list[AgentLink],
        driver: Driver,
        owner: Owner | None,
        births: Callable[[MeshRecord, list[int]], list[bytes]],
        progress: Progress,
    ) -> None:
        self.mesh_id = mesh_id
        self.name = name
        self.owner = owner
        self._births = births
        self.progress = progress
        self.shape = Shape.from_extent(spec.extent)
        #: The same before its script has named the dimensions.
        self.unnamed = self.shape
        #: Whether its ranks run a script.
        self.script = spec.script
        #: What it shows of the output at all (`meshrt.mesh.live`); None: what holds for the program.
        self.shown = spec.shown
        #: What its ranks were told of the levels of the script's loggers; None: they are not to send log records.
        self.levels: LogLevels | None = None
        #: Whether it has no owner who is told of its failures.
        self.singleton = spec.singleton
        #: Whether something else starts and ends its processes.
        self.joined = bool(spec.meeting)
        #: The agent of each rank; hosts take contiguous blocks, so the leading dimension runs over them.
        count = len(self.shape)
        self.agent_of = [agents[rank * len(agents) // count] for rank in range(count)]
        self._hosts = len(agents)
        #: Where they listen.
        self.address = MeshAddress.of([agent.where for agent in agents], count)
        self.pids: dict[int, int] = {}
        self.fates: dict[int, Fate] = {}
        #: When the mesh was asked for, seconds since the epoch.
        self.started = time.time_ns() / 1e9
        #: Ranks that live but do not answer. No other code keeps a table of them.
        self.silent: dict[int, Silent] = {}
        #: What ranks of other machines have printed last, for the report of a loss: such a machine tells nothing then.
        self.last_lines: dict[int, deque[str]] = {}
        #: Every actor that there was, the first one first.
        self.actors: dict[str, ActorRecord] = {}
        self.initialized: Settled[None] = _Start(
            driver, f"starting the ranks of {name}", lambda: self._places(self.pids.keys() | self.fates.keys())
        )
        self.stopped: Settled[None] | None = None
        #: When that began; monotonic ns, 0: it was not stopped.
        self.stopped_at = 0
        #: It is stopped because of an error, or with the program: what still uses it is not waited for.
        self.abandoned = False
        #: Its block has ended without an error.
        self.left = False
        #: When its end was complete; monotonic ns, 0: not yet.
        self.over_at = 0
        #: When what runs on it is interrupted, because it is stopped: monotonic ns; 0 until a stop is requested.
        self.interrupted = 0
        #: Seconds that its ranks have for what was sent before; 0: they were interrupted at once.
        self.grace = 0.0
        self.cut = CutWork(name, script=spec.script)
        self.stopped_agents: set[AgentLink] = set()
        self.born_callbacks: dict[int, list[Callable[[], None]]] = {}
        self.gone_callbacks: dict[int, list[Callable[[Fate], None]]] = {}
        #: How often a rank was started again; 0 if it is not here.
        self.incarnations: dict[int, int] = {}
        #: Ranks that are to be started again on another host, which is looked for.
        self.homeless: set[int] = set()
        self.restart_callbacks: dict[int, list[tuple[str, Callable[[int, Fate], None]]]] = {}

    def place_on_host(self, rank: int) -> int:
        """Return how many ranks before this one its host has, whichever host they are moved to."""
        count = len(self.agent_of)
        first = -(-(rank * self._hosts // count) * count // self._hosts)  # the division rounds up
        return rank - first

    def name_dimensions(self, shape: Shape) -> None:
        """Note that the script on it calls its dimensions so; the first one decides."""
        if self.shape == self.unnamed:
            self.shape = shape
            for actor in self.actors.values():
                actor.renamed(self.unnamed, shape)

    @property
    def agents(self) -> list[AgentLink]:
        """The agents that have ranks of this mesh, each once."""
        return list(dict.fromkeys(self.agent_of))

    def births(self, ranks: list[int]) -> list[bytes]:
        """Return the messages that ask an agent to start some ranks. Raises UsageError: they are too long."""
        return self._births(self, ranks)

    def interrupt_after(self, grace: float) -> None:
        """Note that calls that still run after ``grace`` seconds are ended."""
        moment = time.monotonic_ns() + int(max(0.0, grace) * 1e9)
        self.interrupted = min(self.interrupted or moment, moment)

    def begin_stop(self, driver: Driver) -> Settled[None]:
        """Make (and keep) the future of the mesh's end."""
        self.stopped_at = time.monotonic_ns()
        self.stopped = Settled(driver, f"stopping {self.name}", lambda: self._places(self.fates.keys()))
        return self.stopped

    def _places(self, without: Set[int]) -> tuple[list[RankPlace], int]:
        count = len(self.shape)
        return [self.rank_place(rank) for rank in range(count) if rank not in without], count

    def rank_place(self, rank: int) -> RankPlace:
        """Return the identity of a rank."""
        coords = tuple(self.shape.coordinates(rank).items())
        return RankPlace(self.mesh_id, "", rank, coords, self.agent_of[rank].host, self.pids.get(rank, 0))

    def place(self, rank: int) -> str:
        """Say where a rank is: ``"rank 3 (hosts=0, gpus=3) on node1, pid 4711"``."""
        return self.rank_place(rank).where

    def owner_of(self, actor: str, rank: int) -> Owner | None:
        """Return who is asked about a failure of an actor: who has spawned it there. None: the script."""
        known = self.actors.get(actor)
        return self.owner if known is None else known.spawners.get(rank, self.owner)

    def owners_at(self, rank: int) -> list[Owner | None]:
        """Return who is asked about the end of a rank: who has spawned the actors there; for none, who has made it."""
        found = [self.owner_of(name, rank) for name, actor in self.actors.items() if actor.lives_on(rank)]
        return list(dict.fromkeys(found)) or [self.owner]

    def alive(self) -> list[int]:
        """Return the ranks that have not ended."""
        return [rank for rank in range(len(self.shape)) if rank not in self.fates]

    def actors_of(self, rank: int, *, stopped: bool = False) -> list[str]:
        """Return the actors that live on a rank, the first one first; ``stopped``: with those that did before."""
        return [name for name, actor in self.actors.items() if rank in actor.begun and (stopped or actor.begun[rank])]

    def running_actors(self) -> dict[str, Mapping[int, Shape]]:
        """Return the actors that some rank has or is to have, and those that were never stopped, though ranks died.

        Each with the view that it was spawned on, by base rank.
        """
        return {
            name: actor.views(self.shape)
            for name, actor in self.actors.items()
            if all(actor.begun.values()) or any(here and rank not in self.fates for rank, here in actor.begun.items())
        }


class _Start(Settled[None]):
    """The future of the start of a mesh's ranks."""

    __slots__ = ()

    @property
    def tells(self) -> bool:
        """True, although nothing else interrupts a wait for it."""
        return True
