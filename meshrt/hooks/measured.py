"""How much memory processes have, as host agents tell it: plain data for the root and its plug-ins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from meshrt.hooks.operations import Data

__all__ = [
    "AgentFacts",
    "Count",
    "Fetched",
    "Measured",
    "Number",
    "ProcessFacts",
    "ReferenceRow",
    "StoreFacts",
    "StoreRow",
]


#: More bytes than any memory has: a larger number in a file cannot be shown or added up.
_MOST = 1 << 62
Count = Annotated[int, msgspec.Meta(gt=-_MOST, lt=_MOST)]
Number = Annotated[float, msgspec.Meta(gt=-float(_MOST), lt=float(_MOST))]


class ProcessFacts(Data, frozen=True, omit_defaults=True, kw_only=True):
    """What the kernel tells of a process; None: it was not asked, or has not told in time. Bytes.

    Attributes:
        pss: Counts a page that n processes have as 1/n, so those of all processes add up.
        shared, private: What other processes have too, and the rest.
        peak: The highest ``rss``.
        cpu: Processor time of all its threads so far, seconds, in steps of a clock tick.
        at: When that was, monotonic seconds.
        kernel: The letter of its state ("R", "S", "D", "T", ...).
        threads: How many.
        children: The pids of processes that it has started, and they in turn; absent: none.
    """

    rss: Count | None = None
    pss: Count | None = None
    shared: Count | None = None
    private: Count | None = None
    anonymous: Count | None = None
    file: Count | None = None
    shmem: Count | None = None
    swap: Count | None = None
    peak: Count | None = None
    cpu: Number | None = None
    at: Number | None = None
    kernel: str | None = None
    threads: Count | None = None
    children: Sequence[int] | None = None

    def known(self) -> dict[str, Any]:
        """Return the facts that are known, by name."""
        facts: dict[str, Any] = msgspec.to_builtins(self)  # Any: numbers, texts, and a list
        return facts

    def joined(self, other: ProcessFacts) -> ProcessFacts:
        """Return these facts and those that another answer has told."""
        return msgspec.structs.replace(self, **other.known())


class Fetched(Data, frozen=True):
    """Objects that a host has fetched from other machines so far, once for all its ranks."""

    bytes: Count
    count: Count


class StoreRow(Data, frozen=True, kw_only=True, omit_defaults=True):
    """The shared memory of a host.

    Attributes:
        committed: Bytes that processes have taken.
        files: Bytes in files of the run directory, as there was no memory for them.
        sent: Bytes that other machines were sent.
    """

    host: str = ""
    committed: Count
    limit: Count
    files: Count | None = None
    fetched: Fetched
    sent: Count | None = None


class StoreFacts(StoreRow, frozen=True, kw_only=True):
    """The same, from its agent; ``held``: pid, and its bytes in the order of `meshrt.store.table.held_by`."""

    held: Sequence[tuple[int, int, int, int]]


class AgentFacts(ProcessFacts, frozen=True, kw_only=True):
    """A host agent; ``node``: the name of its machine, ``address``: its IP address, or ""."""

    pid: Count
    node: str
    address: str
    store: StoreFacts | None = None


class ReferenceRow(Data, frozen=True, kw_only=True, omit_defaults=True):
    """Segments in the store of a host that are alike.

    Attributes:
        kind: ``"put"``, ``"argument"`` or ``"result"``.
        disk: Whether they are in a file.
        site: The line that has written them.
        owner: Pid.
        size: Bytes of one.
        holders: Pids with the number of their references; a negative pid is another machine.
        age: Seconds, of the oldest.
        names: The first of them.
        growth, grown: See `meshrt.memory.growth`.
    """

    host: str = ""
    kind: str
    disk: bool
    site: str
    owner: Count
    size: Count
    count: Count
    holders: Sequence[tuple[Count, Count]]
    age: Number
    names: Annotated[Sequence[str], msgspec.Meta(min_length=1)]
    growth: Count | None = None
    grown: Count | None = None


class Measured(msgspec.Struct):
    """How much memory processes have, as their host agents read it in ``/proc``.

    Attributes:
        ranks: By mesh and base rank. A rank that is gone is missing.
        agents: Host agents, by host.
        silent: Hosts whose agent has not answered in time.
        references: The objects in the stores of the hosts, if requested.
    """

    ranks: dict[tuple[str, int], ProcessFacts] = {}
    agents: dict[str, AgentFacts] = {}
    silent: list[str] = []
    references: list[ReferenceRow] = []
