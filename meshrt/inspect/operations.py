"""What ranks report of themselves, and what terminals ask about ranks (docs/json.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from msgspec.structs import replace

from meshrt.collectives.facts import WorldFacts
from meshrt.hooks.clock import HostClock
from meshrt.hooks.facts import Wait
from meshrt.hooks.operations import Data, Operation, Report
from meshrt.inspect.merged import MergedStacks, Waits
from meshrt.program.places import NOWHERE, Place

__all__ = [
    "FindOutput",
    "KnownNames",
    "ListRanks",
    "Listing",
    "MeshStatus",
    "Names",
    "Output",
    "Outputs",
    "Placed",
    "ProgramStatus",
    "Progress",
    "RankRow",
    "ReadStatus",
    "StateGroup",
    "Where",
]


class Progress(Report, frozen=True, tag="inspect.progress"):
    """An endpoint is blocked or stopped, waits for fewer ranks than before, goes on or has ended; its actor is idle.

    Attributes:
        state: A word of `meshrt.program.words`.
        since: Epoch seconds.
        place: The innermost frame of the user's.
        waits: The calls whose answers it waits for.
        beside: It waits in a concurrent endpoint.
        world: The process groups of its rank; None: it has none, or the actor is not blocked.
    """

    actor: str
    endpoint: str
    state: str
    since: float
    place: Place = NOWHERE
    waits: Sequence[Wait] = ()
    beside: bool = False
    world: WorldFacts | None = None

    def on_root_clock(self, clock: HostClock) -> Self:
        """See `meshrt.hooks.operations.Data`."""
        return replace(self, since=clock.date(self.since))


class Placed(Report, frozen=True, tag="inspect.placed"):
    """The ident of the thread and the name of every actor that is not on the main thread. Always all of them."""

    actors: Sequence[tuple[int, str]]


class RankRow(Data, frozen=True, omit_defaults=True):
    """One rank of an actor, in one state.

    Attributes:
        actor: As a user names it.
        coords: Coordinates in ``view``.
        view: The view through which its endpoint was called, or its whole mesh (`Shape.from_wire`).
        file, line, function, module: Where it is; ``line`` is 0 if that is not known.
        since: Epoch seconds; 0: not known.
        breakpoint: The number of the breakpoint that it is stopped at; 0: none.
        breakpoint_error: What was wrong with the condition of the breakpoint, or "".
        holder: The pid of the terminal that is attached to it; 0: none.
        rss: Bytes of its process in RAM, 0 if it has ended; None: not requested.
        children: The pids of the processes that it has started, where `rss` was requested.
    """

    actor: str
    mesh: str
    rank: int
    coords: Mapping[str, int]
    view: Sequence[object]
    host: str
    pid: int
    endpoint: str
    file: str
    line: int
    function: str
    module: str
    state: str
    note: str
    since: float
    breakpoint: int
    breakpoint_error: str
    holder: int
    rss: int | None = None
    children: Sequence[int] = ()


class Listing(Data, frozen=True):
    """Rows by actor and rank; ``left_out``: number of further rows; ``state``: the state that was asked for."""

    rows: Sequence[RankRow]
    left_out: int
    state: str


class ListRanks(Operation[Listing], frozen=True, tag="inspect.list"):
    """The ranks in a state. No rank is asked.

    Attributes:
        state: A word of the grammar, or "all"; "": stopped.
        actor: Only this actor; "": all.
        ranks: A selection; "": all ranks.
        memory: Fill `RankRow.rss` and `RankRow.children`.
        hosts: Ask the agents of hosts first whether they answer.
    """

    state: str = ""
    actor: str = ""
    ranks: str = ""
    memory: bool = False
    hosts: bool = False


class MeshStatus(Data, frozen=True):
    """A mesh.

    Attributes:
        sizes: Label and size of each dimension.
        alive: How many ranks have not ended.
        gone: Base ranks that have ended, by how.
        silent: Base ranks that do not answer, by the reason.
    """

    mesh: str
    name: str
    sizes: Sequence[tuple[str, int]]
    alive: int
    actors: Sequence[str]
    gone: Mapping[str, Sequence[int]]
    silent: Mapping[str, Sequence[int]]


class StateGroup(Data, frozen=True):
    """Ranks of an actor that are in the same state at the same place.

    Attributes:
        place: In words; "": not known.
        since, latest: When the first and the last of them came to the state, epoch seconds.
    """

    actor: str
    mesh: str
    state: str
    place: str
    note: str
    ranks: Sequence[int]
    count: int
    since: float
    latest: float


class ProgramStatus(Waits, frozen=True, kw_only=True):
    """A summary of a program.

    Attributes:
        terminals: Pids of the debugger's terminals that persons use.
        own: The pid of the process that asks.
    """

    meshes: Sequence[MeshStatus]
    groups: Sequence[StateGroup]
    terminals: Sequence[int]
    own: int


class ReadStatus(Operation[ProgramStatus], frozen=True, tag="inspect.status"):
    """A summary of all states; ``hosts``: as of `ListRanks`."""

    hosts: bool = False


class Where(Operation[MergedStacks], frozen=True, tag="inspect.where"):
    """The merged stacks of ranks, which are asked.

    Attributes:
        actor: Only this actor, or this thread (``trainer/loader``); "": all.
        ranks: A selection; "": all ranks.
        verbose: Also the runtime's own frames.
    """

    actor: str = ""
    ranks: str = ""
    verbose: bool = False


class Output(Data, frozen=True):
    """Ranks with output.

    Attributes:
        label: What a user calls them.
        mesh, name: Id and name of their mesh.
        joined: Whether a launcher has started them: their output is not kept.
    """

    label: str
    mesh: str
    name: str
    ranks: Sequence[int]
    joined: bool = False


class Outputs(Data, frozen=True):
    """Each mesh once."""

    printing: Sequence[Output]


class FindOutput(Operation[Outputs], frozen=True, tag="inspect.printing"):
    """The ranks that have output: of an actor, of a selection, or all."""

    actor: str = ""
    ranks: str = ""


class KnownNames(Data, frozen=True):
    """Names for completion: actors, dimensions, and the numbers of stopped ranks by actor."""

    actors: Sequence[str]
    dims: Sequence[str]
    stopped: Mapping[str, Sequence[int]]


class Names(Operation[KnownNames], frozen=True, tag="inspect.names"):
    """The names that may be typed now."""
