"""The chain of hosts that a segment goes along, as the store of its owner keeps it. Pure: no I/O.

The owner sends the bytes to one host. That one sends them on to the next while they come, and so on: each host that
asks later is told to fetch them from the last one that has asked before. So the owner sends them once, whatever the
number of hosts, and none of them has to know the others.

========================== ============================ ==================================================
what a host says           where it is in the chain     where it gets the bytes
========================== ============================ ==================================================
it wants the segment       nowhere: becomes the last    from the one before it; the first from the owner
it wants the segment       somewhere                    from the one before it
another one does not       behind that one              from the one before that one; the owner, if it was
deliver                                                 the first
another one does not       that one has left            from the one before itself
deliver
it lets go, or is lost     leaves                       (the next one finds that out, and asks)
========================== ============================ ==================================================

A host is told of hosts before it only, and each answer lies before the one that it was told before. So no two hosts
wait for each other, and after as many questions as there are hosts before it, a host gets the bytes from the owner.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Chains", "StoreName"]


class StoreName(NamedTuple):
    """The store of a host agent: pids repeat on other machines."""

    machine: int
    agent_pid: int


class Chains:
    """The chains of all segments of one store. One thread.

    A host is known by the number of its connection (see `meshrt.store.registry`).
    """

    def __init__(self) -> None:
        #: By segment: the hosts in their order.
        self._chains: dict[int, dict[int, StoreName]] = {}

    def join(self, segment: int, number: int, host: StoreName) -> StoreName | None:
        """A host wants a segment. Returns where it is to fetch that; None: from the owner."""
        chain = self._chains.setdefault(segment, {})
        chain.setdefault(number, host)
        return self._before(chain, host)

    def skip(self, segment: int, number: int, host: StoreName, without: StoreName) -> StoreName | None:
        """A host does not get a segment from ``without``. Returns where it is to go on; None: at the owner."""
        chain = self._chains.setdefault(segment, {})
        chain.setdefault(number, host)
        before = list(chain.values())
        before = before[: before.index(host)]
        return self._before(chain, without if without in before else host)

    def leave(self, segment: int, number: int) -> None:
        """A host holds a segment no more."""
        chain = self._chains.get(segment)
        if chain is not None and chain.pop(number, None) is not None and not chain:
            del self._chains[segment]

    def ended(self, number: int) -> None:
        """A host is lost."""
        for segment in tuple(self._chains):
            self.leave(segment, number)

    def has(self, segment: int, number: int) -> bool:
        """Whether a host is in the chain of a segment."""
        return number in self._chains.get(segment, {})

    def of(self, segment: int) -> list[StoreName]:
        """Return the hosts that a segment goes along, in their order."""
        return list(self._chains.get(segment, {}).values())

    @staticmethod
    def _before(chain: dict[int, StoreName], host: StoreName) -> StoreName | None:
        found: StoreName | None = None
        for each in chain.values():
            if each == host:
                return found
            found = each
        return found
