"""Which memory of this process belongs to a file, or is shared: the kernel does not count it as heap."""

from __future__ import annotations

import ctypes
import mmap
from bisect import bisect_right
from pathlib import Path

__all__ = ["Mappings", "address_of"]

_MAPS = Path("/proc/self/maps")


class Mappings:
    """The mappings of this process, from ``/proc/PID/maps``.

    Args:
        text: Content of that file.
    """

    def __init__(self, text: str) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for line in text.splitlines():
            addresses, rights, _offset, _device, inode = line.split(maxsplit=5)[:5]
            if rights.endswith("s") or inode != "0":
                start, _, end = addresses.partition("-")
                self._starts.append(int(start, 16))
                self._ends.append(int(end, 16))

    @classmethod
    def now(cls) -> Mappings:
        """Read the mappings of this process. Raises OSError."""
        return cls(_MAPS.read_text(encoding="utf-8", errors="replace"))

    def of_file(self, address: int) -> bool:
        """Whether the memory at an address belongs to a file, or is shared."""
        number = bisect_right(self._starts, address) - 1
        return number >= 0 and address < self._ends[number]


def address_of(mapped: mmap.mmap) -> int:
    """Return the address of a mapping. Raises ValueError: it is closed."""
    address, size = ctypes.c_void_p(), ctypes.c_ssize_t()
    # One call: the buffer is never exported, so another thread can close the mapping at any time.
    ctypes.pythonapi.PyObject_AsReadBuffer(ctypes.py_object(mapped), ctypes.byref(address), ctypes.byref(size))
    return address.value or 0
