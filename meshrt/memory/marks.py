"""What walks remember of objects and of memory: a number for each, by its address, in mappings.

A table of Python would be in the heap of the process that is measured: as large as a tenth of what it is about. The C
library keeps such memory when it is free, above all that of a thread (`malloc_trim` does not give back its upper end).
A mapping is given back to the kernel when its last reference is dropped. Only the pages of it exist that were written.
"""

from __future__ import annotations

import mmap

from meshrt.memory.buffers import HOST, Place

__all__ = ["REGION", "SLOT", "SLOTS", "Addresses", "Marks"]

#: Addresses of one mapping, as a power of two: 64 MiB. Two objects, or two pieces of memory, that begin less than 16
#: bytes (a power, too) from each other do not exist: so many bytes have one number.
REGION, SLOT = 26, 4
#: Numbers of one mapping, less one; each takes 4 bytes.
SLOTS = (1 << (REGION - SLOT)) - 1


class Addresses:
    """Numbers by address; 0: an address has none. One thread.

    Attributes:
        regions: The numbers of a region, by ``address >> REGION``; the number of an address is at
            ``address >> SLOT & SLOTS``. For loops that cannot afford a call.
    """

    def __init__(self) -> None:
        self.regions: dict[int, memoryview] = {}

    def add(self, region: int) -> memoryview:
        """Return the numbers of a region that had none. Raises OSError: the kernel gives no mapping."""
        # Shared: it counts in no limit of private memory, of which a process that is looked at may have nothing left.
        mapping = mmap.mmap(-1, (SLOTS + 1) * 4)
        mapping.madvise(mmap.MADV_DONTFORK)
        self.regions[region] = numbers = memoryview(mapping).cast("I")
        return numbers

    def get(self, address: int) -> int:
        """Return the number of an address."""
        numbers = self.regions.get(address >> REGION)
        return 0 if numbers is None else numbers[address >> SLOT & SLOTS]

    def set(self, address: int, number: int) -> None:
        """Give a number to an address. Raises OSError."""
        numbers = self.regions.get(address >> REGION)
        if numbers is None:
            numbers = self.add(address >> REGION)
        numbers[address >> SLOT & SLOTS] = number


class Marks:
    """Numbers of objects, by identity, and of memory, by place. One thread."""

    def __init__(self) -> None:
        self.objects = Addresses()
        self._memory = Addresses()
        self._elsewhere: dict[Place, int] = {}

    def of_place(self, place: Place) -> int:
        """Return the number of a place; 0: it has none."""
        device, address = place
        if device == HOST and isinstance(address, int):
            return self._memory.get(address)
        return self._elsewhere.get(place, 0)

    def set_place(self, place: Place, number: int) -> None:
        """Give a number to a place."""
        device, address = place
        if device == HOST and isinstance(address, int):
            self._memory.set(address, number)
        else:
            self._elsewhere[place] = number
