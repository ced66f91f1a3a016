"""What a terminal asks the root of recordings, and what the root asks ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from msgspec.structs import replace

from meshrt.hooks.clock import HostClock
from meshrt.hooks.operations import Data, GroupedOperation, Nothing, Operation

__all__ = [
    "Begin",
    "BeginOnRank",
    "Begun",
    "DropOnRank",
    "End",
    "EndOnRank",
    "Missing",
    "Part",
    "Parts",
    "Ranks",
    "RanksOfMesh",
    "RanksToAsk",
    "Row",
    "Script",
    "Sent",
    "Take",
    "TakeOnRank",
]


# -- what was recorded: tuples, as there are thousands


class Row(NamedTuple):
    """One run of an endpoint.

    Attributes:
        number: Of the run, in its process.
        begin, end: Monotonic ns.
        thread: Id of the thread.
        actor, endpoint, raised: Indices into ``Part.texts``; the last one is the class of the exception, or "".
        caller, call_id: The process that has called (`meshrt.transport.link.Link.caller`), and the number of the call
            there; 0: not known.
        cut: Which ends are missing: `meshrt.timeline.recorder.BEGUN_BEFORE`, `meshrt.timeline.recorder.NOT_ENDED`.
    """

    number: int
    begin: int
    end: int
    thread: int
    actor: int
    endpoint: int
    raised: int
    caller: int
    call_id: int
    cut: int

    def on_root_clock(self, clock: HostClock) -> Row:
        """Return the same with the times on the root's clock."""
        return self._replace(begin=clock.time(self.begin), end=clock.time(self.end))


class Sent(NamedTuple):
    """A call that was sent: its number in this process, when (monotonic ns), and in which run (`Row.number`)."""

    call_id: int
    when: int
    number: int


class Part(Data, frozen=True):
    """What was recorded since the part before.

    Attributes:
        part: Its number in the recording, from 1.
        pid: The process.
        texts: Those that the rows name by index.
        spans: Runs that have ended, the oldest first.
        open: Runs that have not ended, in each part.
        threads: Id and name.
        dropped: Number of runs that were pushed out so far.
        more: Whether to ask again at once.
        process: Number of the process among those of all machines (`meshrt.wire.handshake.Identity`); 0: not known.
    """

    part: int
    pid: int
    texts: Sequence[str]
    spans: Sequence[Row]
    open: Sequence[Row]
    sends: Sequence[Sent]
    threads: Sequence[tuple[int, str]]
    dropped: int
    more: bool
    process: int = 0

    def on_root_clock(self, clock: HostClock) -> Self:
        """See `meshrt.hooks.operations.Data`."""
        spans, runs = [[row.on_root_clock(clock) for row in rows] for rows in (self.spans, self.open)]
        sends = [send._replace(when=clock.time(send.when)) for send in self.sends]
        return replace(self, spans=spans, open=runs, sends=sends)


class Missing(NamedTuple):
    """A rank that has not answered, and why."""

    mesh_id: str
    rank: int
    why: str


# -- root to ranks


class BeginOnRank(GroupedOperation[None, None], frozen=True, tag="timeline.begin"):
    """Record from now on, under this name; a repeated request has no effect."""

    recording: str


class TakeOnRank(GroupedOperation[None, Part], frozen=True, tag="timeline.take"):
    """The next part.

    Attributes:
        room: Bytes of a part, at most.
        got: Number of the last part that has come, by base rank.
    """

    recording: str
    room: int
    got: Mapping[str, int]


class EndOnRank(GroupedOperation[None, None], frozen=True, tag="timeline.end"):
    """Record no more, and keep what there is."""

    recording: str


class DropOnRank(GroupedOperation[None, None], frozen=True, tag="timeline.drop"):
    """Forget a recording; an unknown name has no effect."""

    recording: str


# -- terminal to root


class Begun(Data, frozen=True):
    """The name of a recording that has begun, and the ranks that do not record."""

    recording: str
    without: Sequence[Missing]


class Begin(Operation[Begun], frozen=True, tag="timeline.begin"):
    """Begin to record on the ranks of a selection; "": on all ranks, also those that start later."""

    ranks: str = ""


class RanksOfMesh(Data, frozen=True):
    """The ranks of a mesh in a recording.

    Attributes:
        mesh: Its id.
        shape: As `meshrt.selection.Shape.to_wire` writes it.
        ranks: Base ranks to ask now.
        hosts: Base ranks, and the names of their hosts.
        gone: Base ranks that have ended since the recording began, and how.
    """

    mesh: str
    name: str
    shape: Sequence[object]
    ranks: Sequence[int]
    hosts: Sequence[tuple[int, str]]
    gone: Sequence[tuple[int, str]]


class RanksToAsk(Data, frozen=True):
    """All meshes of the program."""

    meshes: Sequence[RanksOfMesh]


class Ranks(Operation[RanksToAsk], frozen=True, tag="timeline.ranks"):
    """The ranks to ask now."""

    recording: str


class Parts(Data, frozen=True):
    """Parts by base rank, and the ranks that have not answered."""

    parts: Mapping[str, Part]
    without: Sequence[Missing]


class Take(Operation[Parts], frozen=True, tag="timeline.take"):
    """The next part of some ranks of one mesh. ``room`` and ``got`` as in `TakeOnRank`."""

    recording: str
    mesh: str
    ranks: Sequence[int]
    room: int
    got: Mapping[str, int]


class Script(Operation[Part], frozen=True, tag="timeline.script"):
    """The next part of the calls that the script waits for; ``got``: the number of the last part that has come."""

    recording: str
    room: int
    got: int


class End(Operation[Nothing], frozen=True, tag="timeline.end"):
    """Record no more, and keep what there is until the connection ends."""

    recording: str
