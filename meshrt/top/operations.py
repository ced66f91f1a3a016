"""What ``top`` asks the root and ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshrt.hooks.operations import Data, GroupedOperation, Operation

__all__ = ["ActorWork", "Look", "Looked", "MeshLook", "RankLook", "Use", "Work", "WorkOfRank"]


class ActorWork(Data, frozen=True, array_like=True):
    """How much an actor has to do (`meshrt.hooks.facts.Workload`); ``endpoint``: the one that runs, or ""."""

    name: str
    endpoint: str
    calls: int
    waiting: int
    more: bool


class WorkOfRank(Data, frozen=True, array_like=True):
    """The work of one rank.

    Attributes:
        devices: Bytes that torch keeps on each device.
        told: When, monotonic seconds.
    """

    actors: Sequence[ActorWork]
    devices: Mapping[str, int]
    told: float


class Work(GroupedOperation[None, WorkOfRank], frozen=True, tag="top.work"):
    """The work of the actors of each rank."""


class Use(Data, frozen=True, array_like=True):
    """What a host agent has read of the process of a rank. None: not known.

    Attributes:
        rss, shmem, swap: Bytes.
        cpu: Processor time so far, seconds, at the monotonic time ``at``.
    """

    rss: int | None = None
    shmem: int | None = None
    swap: int | None = None
    cpu: float | None = None
    at: float | None = None
    threads: int | None = None


class RankLook(Data, frozen=True, array_like=True):
    """One rank.

    Attributes:
        pid: 0: not known.
        incarnation: How often it was started again.
        actors: Their names.
        state: A word of `meshrt.program.words`; ``since``: epoch seconds, 0: not known.
        place, note: Where it is stopped, and further facts of its state; "": none.
        store: Bytes in shared memory, its own and the references it holds of others.
        work: None: it has not answered.
    """

    mesh_id: str
    rank: int
    host: str
    pid: int
    incarnation: int
    actors: Sequence[str]
    state: str
    since: float
    place: str
    note: str
    use: Use
    store: int
    work: WorkOfRank | None


class MeshLook(Data, frozen=True):
    """A mesh; ``shape``: as `Shape.to_wire` writes it."""

    mesh_id: str
    name: str
    shape: Sequence[object]


class Looked(Data, frozen=True):
    """A look: ``time``: epoch seconds; ``meshes``: all; ``ranks``: those that were asked for."""

    time: float
    run_id: str
    meshes: Sequence[MeshLook]
    ranks: Sequence[RankLook]


class Look(Operation[Looked], frozen=True, tag="top.look"):
    """A look at ranks: of an actor, of a selection ("": all)."""

    actor: str = ""
    ranks: str = ""
