"""How many bytes variables hold: one walk for each, within a budget, and what several of them hold together.

A size is *exact* if everything was counted. If the budget ended the walk, or an object hides what it holds, the count
is a lower bound. There may be an *estimate* beside it: the size of the whole, scaled from the part that was walked.
The three are never mixed up: `Size.bytes` is counted, `Size.estimate` is not.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from meshrt.memory.buffers import MAPPED, Place
from meshrt.memory.kinds import Kinds
from meshrt.memory.mappings import Mappings
from meshrt.memory.marks import Marks
from meshrt.memory.walk import BUDGET, Size, Walk, enter_not

__all__ = ["Budget", "Size", "Snapshot"]

#: A walk that waits for the GIL ends after its budget times this.
_PATIENCE = 5


class Budget:
    """Limit on the cost of walks.

    Args:
        seconds: Processor seconds: waiting for the GIL is free, up to `_PATIENCE` times as long. None: no limit.
        objects: Objects of one walk. None: no limit.
    """

    def __init__(self, seconds: float | None = None, objects: int | None = None) -> None:
        self._seconds = seconds
        self._objects = objects
        self._begun = time.monotonic()
        self._used = time.thread_time()

    @classmethod
    def of(cls, milliseconds: float | None, objects: int | None) -> Budget:
        """Return a budget of processor milliseconds."""
        return cls(None if milliseconds is None else milliseconds / 1000, objects)

    def part(self, share: float) -> Budget:
        """Return the budget of one of many walks: ``share`` of the time, but not more than is left."""
        if self._seconds is None:
            return Budget(None, self._objects)
        return Budget(max(0.0, min(self._seconds * share, self._seconds - self.seconds())), self._objects)

    def seconds(self) -> float:
        """Return the processor seconds that the calling thread has used since the budget began."""
        return time.thread_time() - self._used

    def ended(self, objects: int = 0) -> bool:
        """Whether the budget is used up, after ``objects`` objects of a walk."""
        if self._objects is not None and objects >= self._objects:
            return True
        if self._seconds is None:
            return False
        return self.seconds() >= self._seconds or time.monotonic() - self._begun >= self._seconds * _PATIENCE


class Snapshot:
    """Measures variables of one process, one after another, and remembers what they have reached. One thread.

    Args:
        stop: Objects that no walk enters, beside those that walks never enter. Actors are such objects, as their
            variables are measured one by one.
    """

    def __init__(self, stop: Iterable[Any] = ()) -> None:
        self._kinds = Kinds()
        self._segments: list[set[int]] = []
        self._places: dict[Place, int] = {}
        self._stop = list(stop)  # kept alive, so that no other object gets their identity
        #: Which variable reached each object first, of objects with more than one referrer.
        self._holders = Marks()
        enter_not(self._holders, self._stop)
        self._sizes: list[Size] = []
        #: Walks that a budget has ended, by variable.
        self._open: dict[int, Walk] = {}

    def measure(self, value: Any, budget: Budget | None = None) -> Size:
        """Measure ``value`` as the next variable; variables are numbered from 0 in this order."""
        number = len(self._sizes)
        self._segments.append(set())
        self._open[number] = Walk(self._kinds, self._holders, number, value, self._segments[number].add, self._places)
        self._sizes.append(Size(0, 0))
        return self.go_on(number, budget)

    def go_on(self, number: int, budget: Budget | None = None) -> Size:
        """Continue the walk of a variable that a budget has ended; returns what is known then."""
        if number in self._open:
            size = self._sizes[number] = self._open[number].go_on((budget or Budget()).ended)
            if size.why != BUDGET:
                del self._open[number]
        return self._sizes[number]

    def segments(self, number: int) -> set[int]:
        """Return the segments of shared memory that a variable reaches, by references and by arrays."""
        return self._segments[number]

    def unfinished(self) -> list[int]:
        """Return the variables that a budget has ended."""
        return list(self._open)

    def unique(self) -> int:
        """Return the bytes of everything that was counted, each object once."""
        return sum(size.bytes - sum(size.shared.values()) for size in self._sizes)

    def mapped(self) -> int:
        """Return the part of `unique` that is in files or shared with other processes: not in the heap.

        Raises OSError: the kernel does not tell.
        """
        mappings = Mappings.now()
        return sum(
            size
            for (device, address), size in self._places.items()
            if device == MAPPED or (isinstance(address, int) and mappings.of_file(address))
        )

    def sharers(self, least: int) -> list[list[int]]:
        """Return for each variable, by its number, the variables with which it shares ``least`` bytes or more."""
        found: list[list[int]] = [[] for _ in self._sizes]
        pairs: dict[tuple[int, int], int] = {}
        for number, size in enumerate(self._sizes):
            for holder, shared in size.shared.items():  # each of the two may have reached some objects first
                pair = (max(number, holder), min(number, holder))
                pairs[pair] = pairs.get(pair, 0) + shared
        for (number, holder), shared in pairs.items():
            if shared >= least:
                found[number].append(holder)
                found[holder].append(number)
        return found
