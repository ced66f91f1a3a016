"""The parts of a recording that were fetched, by process. Plain data in, spans out. Any one thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from meshrt.selection import Shape
from meshrt.timeline.operations import Missing, Part, RanksOfMesh, Row
from meshrt.timeline.recorder import BEGUN_BEFORE, NOT_ENDED

__all__ = ["PIDS", "SCRIPT", "Collected", "RankTrack", "Span"]

#: The rank of the script.
SCRIPT = -1
#: The numbers of the processes of one machine differ by less.
PIDS = 1 << 22


class Span(NamedTuple):
    """One run of an endpoint. Times are monotonic ns; ``cut`` says in words which part of it is missing."""

    number: int
    begin: int
    end: int
    thread: int
    actor: str
    endpoint: str
    #: The class of the exception that it raised, or "".
    raised: str
    #: The caller (`RankTrack.number`), and the number of the call there; 0: not known.
    caller: int
    call_id: int
    cut: str


_CUT = {
    0: "",
    BEGUN_BEFORE: "began before the recording",
    NOT_ENDED: "had not ended when it was last seen",
    BEGUN_BEFORE | NOT_ENDED: "began before the recording, and had not ended when it was last seen",
}


@dataclass
class RankTrack:
    """The process of one rank, or of the script (rank -1). A rank that was started again has several."""

    pid: int
    mesh: str
    rank: int
    #: Its name for users: ``mesh1 rank 3 (hosts=1, gpus=1)``.
    name: str
    host: str
    #: Of the process among those of all machines: pids repeat.
    number: int = 0
    spans: list[Span] = field(default_factory=list)
    #: Calls that ran when it was last asked.
    open: list[Span] = field(default_factory=list)
    #: Number of a call that it has sent -> when, and in which of its spans.
    sends: dict[int, tuple[int, int]] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)
    dropped: int = 0


class Collected:
    """All processes that were recorded."""

    def __init__(self) -> None:
        #: By `RankTrack.number`.
        self.tracks: dict[int, RankTrack] = {}
        #: Ranks without an answer, by (mesh id, rank): the name of the rank, and why.
        self.without: dict[tuple[str, int], tuple[str, str]] = {}
        self.spans = 0
        self._meshes: dict[str, tuple[str, Shape, Mapping[int, str]]] = {}

    def know(self, meshes: Sequence[RanksOfMesh]) -> None:
        """Add the meshes of the program."""
        for mesh in meshes:
            self._meshes[mesh.mesh] = (mesh.name or mesh.mesh, Shape.from_wire(mesh.shape), dict(mesh.hosts))
            self.miss([Missing(mesh.mesh, rank, how) for rank, how in mesh.gone])

    def add(self, mesh_id: str, rank: int, part: Part) -> None:
        """Add a part of one rank."""
        host = self._meshes[mesh_id][2].get(rank, "")
        self._extend(RankTrack(part.pid, mesh_id, rank, self.name(mesh_id, rank), host, part.process or part.pid), part)
        self.without.pop((mesh_id, rank), None)

    def add_script(self, part: Part, name: str) -> None:
        """Add a part of the script."""
        track = self._extend(RankTrack(part.pid, "", SCRIPT, name, "", part.process or part.pid), part)
        # Each of its spans is a call that was sent when it began.
        spans = (*track.spans[len(track.spans) - len(part.spans) :], *track.open)
        track.sends.update((span.call_id, (span.begin, span.number)) for span in spans)

    def ranks(self) -> list[RankTrack]:
        """Return the processes of ranks."""
        return [track for track in self.tracks.values() if track.rank != SCRIPT]

    def _extend(self, new: RankTrack, part: Part) -> RankTrack:
        """Add a part to the process that it is of, which is ``new`` with its first part."""
        track = self.tracks.setdefault(new.number, new)
        track.spans += [_span(row, part) for row in part.spans]
        track.open = [_span(row, part) for row in part.open]
        track.sends.update((call_id, (when, number)) for call_id, when, number in part.sends)
        track.threads.update(part.threads)
        track.dropped = part.dropped
        self.spans += len(part.spans)
        return track

    def miss(self, without: Sequence[Missing]) -> None:
        """Add the ranks that have not answered."""
        for mesh_id, rank, why in without:
            self.without[mesh_id, rank] = (self.name(mesh_id, rank), why)

    def name(self, mesh_id: str, rank: int) -> str:
        """Return the name of a rank for users."""
        if mesh_id not in self._meshes:
            return f"{mesh_id} rank {rank}"
        name, shape, _ = self._meshes[mesh_id]
        coordinates = ", ".join(f"{label}={index}" for label, index in shape.coordinates(rank).items())
        return f"{name} rank {rank}" + (f" ({coordinates})" if coordinates else "")


def _span(row: Row, part: Part) -> Span:
    number, begin, end, thread, actor, endpoint, raised, caller, call_id, cut = row
    texts = part.texts
    if caller < PIDS:  # of the same machine
        caller = caller and part.process - part.process % PIDS + caller
    return Span(number, begin, end, thread, texts[actor], texts[endpoint], texts[raised], caller, call_id, _CUT[cut])
