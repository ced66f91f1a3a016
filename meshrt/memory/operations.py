"""What the memory view asks ranks and the root, and the rows of its answers, from the rank to the table.

A field that is None is not known, or does not apply; it is missing on the wire, in JSON and in files. Sizes are bytes.
docs/json.md describes the fields of rows for users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Self

import msgspec

from meshrt.hooks.measured import Count, Number, ProcessFacts, ReferenceRow, StoreRow
from meshrt.hooks.operations import Data, GroupedOperation, Nothing, Operation

__all__ = [
    "MILLISECONDS",
    "Device",
    "FindHolders",
    "Heap",
    "Holders",
    "HoldingRow",
    "LeftOut",
    "LookAtMemory",
    "Looked",
    "MeasureVariables",
    "ProcessRow",
    "RankRow",
    "ReadHeap",
    "SetLimit",
    "SizeRow",
    "VariableRow",
    "Variables",
    "WireRank",
    "weight",
]

#: Processor time for the variables of one rank, if a look names none.
MILLISECONDS = 200.0

Pid = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,18}$")]
Some = msgspec.Meta(min_length=1)


class LeftOut(Data, frozen=True, omit_defaults=True):
    """Rows that are not in an answer: how many, and their bytes; ``exact``: the bytes are no lower bound."""

    count: Count
    bytes: Count
    exact: bool | None = None


class Device(Data, frozen=True, omit_defaults=True):
    """Memory of torch on a device; ``visible``: its entry in CUDA_VISIBLE_DEVICES."""

    kept: Count
    used: Count | None = None
    visible: str | None = None


class SizeRow(Data, frozen=True, kw_only=True, omit_defaults=True):
    """The size of a variable on some ranks.

    Attributes:
        ranks: Base ranks that say the same; empty in the answer of a rank.
        bytes: Bytes that were counted, in the memory of the processor.
        exact: Whether that is all; otherwise the variable holds at least so much.
        estimate: What it may be on all devices together, if it is not exact.
        why: Why it is not exact.
        devices: Bytes that were counted in other memory, by device.
        shares: Other variables that hold the same memory.
        growth, grown: Since an earlier view, and since the first one; ``..._exact``: False for a lower bound.
    """

    ranks: Annotated[Sequence[Count], Some] = ()
    bytes: Count
    exact: bool
    length: Count | None = None
    shape: Sequence[Count] | None = None
    dtype: str | None = None
    device: str | None = None
    objects: Count = 0
    estimate: Count | None = None
    why: str = ""
    devices: Mapping[str, Count] = {}
    shares: Sequence[str] = msgspec.field(default=(), name="with")
    growth: Count | None = None
    grown: Count | None = None
    growth_exact: bool | None = None
    grown_exact: bool | None = None

    @property
    def held(self) -> int:
        """The bytes that were counted, on all devices."""
        return self.bytes + sum(self.devices.values())

    @property
    def likely(self) -> int:
        """The bytes on all devices, estimated where they were not counted."""
        return max(self.held, self.estimate or 0)


class VariableRow(Data, frozen=True, kw_only=True):
    """A variable, and its sizes: those of the most ranks first. In the answer of a rank there is one."""

    mesh_id: str = ""
    actor: str
    kind: str
    where: str
    type: str
    sizes: Annotated[Sequence[SizeRow], Some]


class HoldingRow(Data, frozen=True, kw_only=True, omit_defaults=True):
    """A variable that holds references; ``references``: the names of the first, ``count``: of how many."""

    mesh_id: str = ""
    ranks: Annotated[Sequence[Count], Some] = ()
    actor: str
    kind: str
    where: str
    type: str
    references: Sequence[str]
    count: Count


class OfProcess(ProcessFacts, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a rank, a host agent or the script.

    Attributes:
        unique, total: Sums over its variables: ``unique`` counts shared bytes once, ``total`` for each variable.
        mapped: The part of ``unique`` that is in files or shared with other processes.
        exact: Whether neither is a lower bound.
    """

    host: str | None = None
    node: str | None = None
    address: str | None = None
    pid: Count
    unique: Count | None = None
    mapped: Count | None = None
    total: Count | None = None
    exact: bool | None = None
    variables_left_out: LeftOut | None = None

    def with_sums(self, told: Variables | None) -> Self:
        """Return this row with the sums of the process's answer about its variables; None: there is none."""
        if told is None:
            return self
        return msgspec.structs.replace(
            self,
            unique=told.unique,
            mapped=told.mapped,
            total=told.total,
            exact=told.exact,
            variables_left_out=told.left_out,
        )


class ProcessRow(OfProcess, frozen=True, kw_only=True, omit_defaults=True):
    """The script (``kind`` is ``"script"``) or a host agent (``"agent"``)."""

    kind: str


class RankRow(OfProcess, frozen=True, kw_only=True, omit_defaults=True):
    """A rank.

    Attributes:
        counted: Processor seconds that the count of its variables took.
        unexplained: Bytes that are not in files, not free in malloc, and not held by its variables.
        restarted: Whether it is another process than in the earlier view.
    """

    mesh_id: str
    mesh: str
    rank: Count
    coords: Mapping[str, Count]
    host: str
    actors: Sequence[str]
    state: str
    note: str | None = None
    store_own: Count | None = None
    store_held: Count | None = None
    store_pinned: Count | None = None
    blocks: Count | None = None
    malloc_used: Count | None = None
    malloc_free: Count | None = None
    devices: Mapping[str, Device] | None = None
    counted: Number | None = None
    unexplained: Count | None = None
    growth: Count | None = None
    grown: Count | None = None
    restarted: bool | None = None

    @property
    def weight(self) -> int:
        """See `weight`."""
        return weight(self.rss, self.shmem, self.store_own, self.store_held)


def weight(rss: int | None, shmem: int | None, store_own: int | None, store_held: int | None) -> int:
    """Return the bytes of a rank without pages of shared memory: each that it has read counts in its RSS, too."""
    return (rss or 0) - (shmem or 0) + (store_own or 0) + (store_held or 0)


class WireRank(RankRow, frozen=True, array_like=True):
    """A rank on the wire: there may be thousands."""


class SetLimit(Operation[Nothing], frozen=True, tag="memory.limit"):
    """Set the limit of a rank: see `meshrt.memory.limit`."""

    bytes: int


class Heap(Data, frozen=True, kw_only=True):
    """The facts of the allocators of a rank.

    Attributes:
        blocks: Number of blocks that Python's allocator has given out.
        malloc_used, malloc_free: Of the C library; free memory is kept. None: it does not tell.
        devices: Memory of torch, by device.
        counted: Processor seconds that the count of variables took; None: none were counted.
    """

    blocks: int
    malloc_used: int | None
    malloc_free: int | None
    devices: Mapping[str, Device]
    counted: float | None = None


class ReadHeap(GroupedOperation[None, Heap], frozen=True, tag="memory.heap"):
    """The facts of the allocators."""


class Variables(Data, frozen=True, kw_only=True, omit_defaults=True):
    """The variables of a rank, the largest ``rows`` one by one.

    Attributes:
        mapped: The part of ``unique`` that is in files or shared with other processes; None: not known.
        exact: Whether neither ``unique`` nor ``total`` is a lower bound.
        unknown: Why there is no variable of the name that was asked for; "": there is one, or none was named.
    """

    rows: Sequence[VariableRow] = ()
    left_out: LeftOut = LeftOut(0, 0, True)
    unique: int = 0
    mapped: int | None = None
    total: int = 0
    exact: bool = True
    unknown: str = ""


class MeasureVariables(GroupedOperation[Variables, Heap], frozen=True, kw_only=True, tag="memory.variables"):
    """What the variables of a rank hold.

    Attributes:
        actor: Of this actor only; "": of all.
        frames: Include the local variables of stopped stack frames.
        milliseconds: Processor time; None: no limit.
        objects: Objects of one variable; None: no limit.
        most: Rows of variables.
        opened: The name of a variable: what is inside it (`meshrt.memory.opening`). "": all variables.
    """

    actor: str = ""
    frames: bool = False
    milliseconds: float | None = None
    objects: int | None = None
    most: int = 0
    opened: str = ""


class Holders(Data, frozen=True):
    """The variables of a rank that hold references; ``exact``: all variables were walked."""

    rows: Sequence[HoldingRow]
    exact: bool


class FindHolders(GroupedOperation[Holders, None], frozen=True, kw_only=True, tag="memory.holding"):
    """Which variables hold references whose name begins with ``begins``; the limits are those of `MeasureVariables`."""

    actor: str = ""
    milliseconds: float | None = None
    objects: int | None = None
    begins: str


class Looked(Data, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of the root: see docs/json.md.

    Attributes:
        holders: Mesh and rank by pid, of ranks that have to do with the references.
    """

    time: Number
    run_id: str
    script: str | None = None
    chosen: bool | None = None
    opened: str | None = None
    ranks: Sequence[RankRow]
    processes: Sequence[ProcessRow]
    variables: Sequence[VariableRow] | None = None
    variables_left_out: LeftOut | None = None
    references: Sequence[ReferenceRow] | None = None
    references_left_out: LeftOut | None = None
    holders: Mapping[Pid, tuple[str, int]] = {}
    holding: Sequence[HoldingRow] | None = None
    holding_exact: bool | None = None
    stores: Sequence[StoreRow] = ()


class LookedAtRanks(Looked, frozen=True, kw_only=True, omit_defaults=True):
    """The same on the wire."""

    ranks: Sequence[WireRank]


class LookAtMemory(Operation[LookedAtRanks], frozen=True, kw_only=True, omit_defaults=True, tag="memory.look"):
    """A look at ranks.

    Attributes:
        actor, ranks: Which ranks; "": all.
        variables: Return variables.
        opened: The name of a variable: return what is inside it, and nothing else.
        frames: Include the local variables of stack frames that are stopped in the debugger.
        milliseconds: Processor time for the variables of one rank; None: no limit.
        references: Include references in the store whose name begins so ("": all); None: no references. For names that
            are given, return the variables that hold them too.
    """

    actor: str = ""
    ranks: str = ""
    variables: bool = False
    opened: str = ""
    frames: bool = False
    milliseconds: float | None = MILLISECONDS
    references: str | None = None
